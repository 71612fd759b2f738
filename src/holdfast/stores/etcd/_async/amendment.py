"""Changing a lease that is held: its weight, its label's text, its end."""

from __future__ import annotations

from ..wire import messages
from ..wire.failures import Failure
from .attempt import Attempt
from .grant import Granter
from .leases import TOMBSTONES
from .parts import Parts
from .release import TOMBSTONE_TTL, Releaser


class Amender:
    """The writes by which a holder of one manager changes its own entry."""

    def __init__(self, parts: Parts, granter: Granter, releaser: Releaser) -> None:
        _, self._naming, self._retrier, self._leases, self._attempts, self._log = parts
        self._granter = granter
        self._releaser = releaser

    async def amend(self, attempt: Attempt, weight: int, text: str | None, deadline: float) -> bool:
        """Gives the lease less weight, or its label another text; returns False if it has ended."""
        if not await self._rewrite(attempt, weight, text, deadline):
            return False
        if weight:
            queue = attempt.queue
            reading = await self._retrier.txn(messages.then(*queue.read), deadline)
            entries = self._naming.stored_entries(messages.held_keys(reading.results))
            await self._releaser.hand_on(entries, deadline)
        return True

    async def _rewrite(
        self, attempt: Attempt, weight: int, text: str | None, deadline: float
    ) -> bool:
        while attempt.token or (await self._granter.look(attempt, deadline) and attempt.token):
            entry, changed = attempt.held_as()
            label = entry.label if text is None else entry.label._replace(text=text)
            amended = entry._replace(weight=min(weight or entry.weight, entry.weight), label=label)
            if amended == entry:  # perhaps by a try whose reply was lost
                return await self._granter.look(attempt, deadline)
            notes = None
            if label != entry.label:
                notes = await self._log.lease(attempt.kind, deadline)
            note = self._log.leader(notes, attempt.name, amended, changed)
            try:
                reply = await self._granter.rewrite(
                    attempt, amended, changed, messages.STAY, deadline, note
                )
            except Failure:
                await self._leases.find_ended((notes,), deadline)
                continue
            if reply is None:
                return False
            if reply.succeeded:
                return True
        return False

    async def detach(self, attempt: Attempt, ttl: float, deadline: float) -> bool:
        """Moves the lease's key to an etcd lease of `ttl` that nobody keeps alive; returns False if it
        has ended.

        A request of this attempt that may still arrive is refused from then on: once the key has gone,
        by an adoption, say, nobody would know of the entry that it makes.
        """
        lease = await self._leases.detached(ttl, deadline)
        while attempt.token or (await self._granter.look(attempt, deadline) and attempt.token):
            before = attempt.lease if attempt.detached else None
            if before is not None and before.id == lease.id:  # by a try whose reply was lost
                self._attempts.forget(attempt)
                self._leases.let_go(lease)
                return True
            entry, changed = attempt.held_as()
            entry = entry._replace(ttl=lease.ttl, detached=True)
            mark: tuple[bytes, ...] = ()
            marks = None
            if attempt.doubtful:
                marks = await self._leases.shared(TOMBSTONES, TOMBSTONE_TTL, deadline)
                mark = (messages.put(self._naming.tombstone(attempt.owner), b"", marks.on),)
            try:
                reply = await self._granter.rewrite(
                    attempt, entry, changed, lease.on, deadline, mark
                )
            except Failure:
                await self._leases.find_ended((marks,), deadline)
                lease = await self._leases.detached(ttl, deadline)
                continue
            if reply is None:
                break
            if reply.succeeded:
                self._attempts.forget(attempt)
                self._leases.let_go(lease)
                if before is not None:
                    await self._leases.revoke(before.id, deadline)
                return True
        await self._leases.revoke(lease.id, deadline)
        return False
