"""Releasing a lock of an etcd cluster by force."""

from __future__ import annotations

from ....refusals import token_not_raised
from .. import slots
from ..keys import GRANTED
from ..wire import messages
from ..wire.failures import Failure
from .parts import Parts
from .release import Releaser

AT_ONCE = 50
"""Holders released by force in one transaction; etcd allows 128 operations."""
TOKEN_BASE = "give all clients a higher `token_base`, or reset the fence"
"""What helps where tokens have to be higher than they are."""


class Forcer:
    """The forced release of locks, whoever holds them."""

    def __init__(self, parts: Parts, token_base: int, releaser: Releaser) -> None:
        self._clock, self._naming, self._retrier, self._leases, _, self._log = parts
        self._token_base = token_base
        self._releaser = releaser

    async def force_release(self, name: str, actor: str, deadline: float, above: int = 0) -> bool:
        """Deletes the keys of all who hold the lock now; returns True if there were any."""
        start = self._naming.queue(name)
        freed = False
        doomed: set[tuple[str, int]] | None = None
        while True:
            found = await self._retrier.range(
                messages.range_of(start, messages.after(start)), deadline
            )
            present = self._token_base + found.revision
            if present < above:
                raise token_not_raised(name, above, present, "the cluster's revision", TOKEN_BASE)
            queue = self._naming.stored_entries(found.keys)
            holders = [one for one in queue if one.entry.state == GRANTED]
            if doomed is None:
                doomed = {(one.entry.owner, one.kv.created) for one in holders}
            # A waiter that is granted the lock because those have gone is not meant.
            holders = [one for one in holders if (one.entry.owner, one.kv.created) in doomed]
            holders = holders[:AT_ONCE]
            if not holders:
                break
            owners = ",".join(one.entry.owner for one in holders)
            record = f"{self._clock.wall():.3f} {found.revision} {owners} {actor}".encode()
            notes = await self._log.lease(holders[0].kind, deadline)
            if_so, succession = self._releaser.succession(holders[0], queue, notes)
            try:
                reply = await self._retrier.txn(
                    b"".join(messages.changed_at(one.kv.key, one.kv.changed) for one in holders)
                    + if_so
                    + messages.then(
                        messages.put_for_ever(self._naming.forced(name), record),
                        *(messages.delete(one.kv.key) for one in holders),
                        *(
                            delete
                            for one in holders
                            for delete in slots.delete_slot(self._naming, name, one.entry.slot)
                        ),
                        *succession,
                    ),
                    deadline,
                )
            except Failure:  # a lease that is needed has ended
                await self._leases.find_ended((notes,), deadline)
                continue
            freed = freed or reply.succeeded
        await self._releaser.hand_on(queue, deadline)
        return freed
