"""Making a waiter the holder by its own write, and keeping a holder on the right lease."""

from __future__ import annotations

from ....model import GONE, UNKNOWN, Outcome, Renewed
from .. import slots
from ..keys import GRANTED, Entry, StoredEntry
from ..wire import messages
from ..wire.failures import Failure
from ..wire.messages import Result, Transaction
from .attempt import Attempt
from .leases import HOLD, QUEUE, Lease, seconds
from .parts import Parts


class Granter:
    """The writes by which an attempt takes the lock, or stays its holder."""

    def __init__(self, parts: Parts) -> None:
        self._clock, self._naming, self._retrier, self._leases, self._attempts, self._log = parts

    async def lease_to_hold(self, attempt: Attempt, deadline: float) -> Lease:
        """Returns a lease for a holder: one of its own, if it is not to be renewed."""
        if attempt.terms.renew:
            return await self._leases.shared(HOLD, attempt.ttl, deadline, attempt.terms.delay)
        return await self._leases.own(attempt.ttl, deadline)

    async def take(
        self, attempt: Attempt, deadline: float, queue: list[StoredEntry] | None = None
    ) -> Outcome:
        """Makes a waiter whose turn has come the holder, if its key is still there as it was.

        `queue` is the queue as it was read: it says which slots of a semaphore are taken.
        """
        naming, name = self._naming, attempt.name
        taken = slots.taken_slots(queue or ())
        revisions: dict[bytes, int] = {}
        look = [messages.read(attempt.key)]
        if attempt.kind == slots.SEMAPHORE:
            look += [*attempt.queue.read, slots.read_slots(naming, name)]
        while True:
            hold = await self.lease_to_hold(attempt, deadline)
            revision = attempt.waits_at()
            if revision is None:  # handed to it meanwhile; its waiter was told which token it has
                return await self.confirm(attempt, attempt.ttl, deadline)
            wall = self._clock.wall()
            slot = slots.free_slot(attempt.kind, taken)
            entry = attempt.entry(GRANTED, wall)._replace(slot=slot)
            notes = await self._log.lease(attempt.kind, deadline)
            try:
                reply = await self._retrier.txn(
                    messages.changed_at(attempt.key, revision)
                    + slots.if_free(naming, name, slot, revisions)
                    + messages.then(
                        messages.put(attempt.key, entry.encode(), hold.on),
                        *slots.put_slot(naming, name, slot, attempt.owner, hold.on),
                        *self._log.leader(notes, name, entry),
                    )
                    + messages.otherwise(*look),
                    deadline,
                )
            except Failure:
                await self._leases.find_ended((hold, notes), deadline)
                continue
            if reply.succeeded:
                grant = self._attempts.granted(attempt, hold, reply.revision, wall, slot)
                if grant is None:
                    return GONE
                return Renewed(grant.token, grant.ttl, grant.since, slot)
            if not self._see(attempt, reply.results):
                return GONE
            found = messages.held_keys(reply.results)
            taken = slots.taken_slots(naming.stored_entries(found))
            revisions = slots.revisions_of(found)

    async def confirm(self, attempt: Attempt, ttl: float, deadline: float) -> Outcome:
        """Renews a holder whose lease was just kept alive; the key moves if that is the wrong one."""
        lease = attempt.lease
        if lease is None:
            return GONE  # released meanwhile
        asked = seconds(ttl)
        longer = lease.requested < asked
        # Never shortened: only once less is left than is asked for.
        shorter = lease.requested > asked and self._clock.now() + asked >= attempt.until
        attempt.ask_for(ttl)
        if lease.kind == QUEUE or longer or shorter:
            return await self._move(attempt, deadline)
        if lease.requested == asked:
            ttl = lease.ttl
        if not attempt.extend(max(attempt.until, lease.sent + ttl)):
            return GONE
        return Renewed(attempt.token, ttl, lease.sent, attempt.slot)

    async def _move(self, attempt: Attempt, deadline: float) -> Outcome:
        """Moves the key to a lease of the TTL that is wanted now. Its value says which token it has."""
        while True:
            lease = await self.lease_to_hold(attempt, deadline)
            entry, changed = attempt.held_as()
            if entry.detached:
                return UNKNOWN  # by another call, meanwhile
            try:
                reply = await self.rewrite(attempt, entry, changed, lease.on, deadline)
            except Failure:
                await self._leases.keep_alive(lease, deadline)
                continue
            if reply is None:
                return GONE
            if not reply.succeeded:
                continue
            self._attempts.hang_on(attempt, lease)
            if not attempt.extend(lease.sent + lease.ttl):
                return GONE
            return Renewed(attempt.token, lease.ttl, lease.sent, attempt.slot)

    async def rewrite(
        self,
        attempt: Attempt,
        entry: Entry,
        changed: int,
        on: bytes,
        deadline: float,
        operations: tuple[bytes, ...] = (),
    ) -> Transaction | None:
        """Writes `entry` to the key of a holder, on the lease that `on` says, if it is as the revision
        `changed` left it.

        `operations` are carried out in the same step. The reply that it did not succeed says that we
        know better now, and None that the key is gone.
        """
        slot: tuple[bytes, ...] = ()
        if on != messages.STAY:
            slot = slots.put_slot(self._naming, attempt.name, entry.slot, entry.owner, on)
        reply = await self._retrier.txn(
            messages.changed_at(attempt.key, changed)
            + messages.then(messages.put(attempt.key, entry.encode(), on), *slot, *operations)
            + messages.otherwise(messages.read(attempt.key)),
            deadline,
        )
        if reply.succeeded:
            attempt.rewritten(entry, reply.revision)
            return reply
        return reply if self._see(attempt, reply.results) else None

    async def look(self, attempt: Attempt, deadline: float) -> bool:
        """Reads the entry of `attempt`; returns False if it has none."""
        found = await self._retrier.range(messages.range_of(attempt.key), deadline)
        return self._see(attempt, (found.keys,))

    def _see(self, attempt: Attempt, results: tuple[Result, ...]) -> bool:
        entries = self._naming.stored_entries(messages.held_keys(results))
        mine = position(entries, attempt)
        if mine is None:
            return False
        self._attempts.seen(attempt, entries[mine])
        return True


def position(queue: list[StoredEntry], attempt: Attempt) -> int | None:
    """Returns the index of the entry of `attempt`; None if it has none."""
    for number, one in enumerate(queue):
        if attempt.owns(one):
            return number
    return None
