"""Adopting a lease: another owner holds the lock in the giver's place, in one step.

The adopter has a key of its own, and the giver's is deleted with the same transaction: so whatever
the giver's manager sends for its key, late or twice, does not meet the adopter. Its key is younger
than those of the waiters. It stands before them all the same, since entries that adopted a lease
stand first in the queue. The rule of `holdfast.admission` holds for any order of those who are
admitted already, and a holder is.
"""

from __future__ import annotations

from ....model import GONE, Gone, Granted
from ....refusals import given_up, in_use_as, owner_used_again
from .. import slots
from ..keys import GRANTED
from ..wire import messages
from ..wire.failures import Failure
from .attempt import Attempt
from .grant import Granter, position
from .parts import Parts


class Adopter:
    """The requests by which attempts of one manager adopt leases."""

    def __init__(self, parts: Parts, granter: Granter) -> None:
        self._clock, self._naming, self._retrier, self._leases, self._attempts, self._log = parts
        self._granter = granter

    async def adopt(self, attempt: Attempt, giver: str, deadline: float) -> Granted | Gone | None:
        """Adopts the lease of `giver`; returns None if an earlier try has done so, its reply lost."""
        queue = attempt.queue
        tombstone = self._naming.tombstone(attempt.owner)
        while True:
            reading = await self._retrier.range(messages.range_of(queue.start, queue.end), deadline)
            entries = self._naming.stored_entries(reading.keys)
            mine = position(entries, attempt)
            if mine is not None:
                self._attempts.seen(attempt, entries[mine])
                return None
            if any(one.entry.owner == attempt.owner for one in entries):
                raise owner_used_again(attempt.owner, attempt.name)
            given = next((one for one in entries if one.entry.owner == giver), None)
            if given is None or not given.place.granted:
                return GONE
            present = given.kind, given.capacity
            if (*present, given.entry.weight) != (attempt.kind, attempt.capacity, attempt.weight):
                wanted = attempt.kind, attempt.capacity
                raise in_use_as(attempt.name, attempt.owner, present, wanted)
            if any(one.kv.key == attempt.key for one in entries):
                self._attempts.change_key(attempt)  # an earlier attempt's, whose lease is ending
            if len(entries) > 1:
                queue.saw_waiters()
            hold = await self._granter.lease_to_hold(attempt, deadline)
            notes = await self._log.lease(attempt.kind, deadline)
            self._attempts.hang_on(attempt, hold)
            wall = self._clock.wall()
            slot = given.entry.slot
            entry = attempt.entry(GRANTED, wall)._replace(slot=slot)
            try:
                reply = await self._retrier.txn(
                    messages.absent(tombstone)
                    + messages.absent(attempt.key)
                    + messages.changed_at(given.kv.key, given.kv.changed)
                    + messages.then(
                        messages.put(attempt.key, entry.encode(), hold.on),
                        messages.delete(given.kv.key),
                        *slots.put_slot(self._naming, attempt.name, slot, attempt.owner, hold.on),
                        *self._log.leader(notes, attempt.name, entry),
                    )
                    + messages.otherwise(messages.read(tombstone)),
                    deadline,
                    attempt.doubt,
                )
            except Failure:  # one of the leases has ended
                await self._leases.find_ended((hold, notes), deadline)
                continue
            if attempt.released or (not reply.succeeded and messages.held_keys(reply.results)):
                raise given_up(attempt.name, attempt.owner)
            if not reply.succeeded:
                continue
            grant = self._attempts.granted(attempt, hold, reply.revision, wall, slot)
            if grant is None:
                raise given_up(attempt.name, attempt.owner)
            self._attempts.ended(attempt.name, giver)
            if given.entry.detached:
                await self._leases.revoke(given.kv.lease, deadline)
            return grant
