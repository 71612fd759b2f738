"""Making a waiter the holder by its own write, and keeping a holder on the right lease."""

from __future__ import annotations

from ....model import GONE, Outcome, Renewed
from ..keys import GRANTED, StoredEntry
from ..wire import messages
from ..wire.failures import Failure
from .attempt import Attempt
from .leases import HOLD, QUEUE, Lease, seconds
from .parts import Parts


class Granter:
    """The writes by which an attempt takes the lock, or stays its holder."""

    def __init__(self, parts: Parts) -> None:
        self._clock, self._naming, self._retrier, self._leases, self._attempts = parts

    async def lease_to_hold(self, attempt: Attempt, deadline: float) -> Lease:
        """Returns a lease for a holder: one of its own, if it is not to be renewed."""
        if attempt.terms.renew:
            return await self._leases.shared(HOLD, attempt.ttl, deadline)
        return await self._leases.own(attempt.ttl, deadline)

    async def take(self, attempt: Attempt, deadline: float) -> Outcome:
        """Makes a waiter whose turn has come the holder, if its key is still there as it was."""
        while True:
            hold = await self.lease_to_hold(attempt, deadline)
            revision = attempt.waits_at()
            if revision is None:  # handed to it meanwhile; its waiter was told which token it has
                return await self.confirm(attempt, attempt.ttl, deadline)
            wall = self._clock.wall()
            try:
                reply = await self._retrier.txn(
                    messages.changed_at(attempt.key, revision)
                    + messages.then(
                        messages.put(attempt.key, attempt.entry(GRANTED, wall), hold.on)
                    )
                    + messages.otherwise(messages.read(attempt.key)),
                    deadline,
                )
            except Failure:
                await self._leases.keep_alive(hold, deadline)
                continue
            if reply.succeeded:
                grant = self._attempts.granted(attempt, hold, reply.revision, wall)
                return GONE if grant is None else Renewed(grant.token, grant.ttl, grant.since)
            entries = self._naming.stored_entries(messages.held_keys(reply.results))
            mine = position(entries, attempt)
            if mine is None:
                return GONE
            self._attempts.seen(attempt, entries[mine])

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
        return Renewed(attempt.token, ttl, lease.sent)

    async def _move(self, attempt: Attempt, deadline: float) -> Outcome:
        """Moves the key to a lease of the TTL that is wanted now. Its value says which token it has."""
        while True:
            lease = await self.lease_to_hold(attempt, deadline)
            value = attempt.entry(GRANTED, attempt.since, attempt.token)
            try:
                reply = await self._retrier.txn(
                    messages.created_at(attempt.key, attempt.created)
                    + messages.then(messages.put(attempt.key, value, lease.on)),
                    deadline,
                )
            except Failure:
                await self._leases.keep_alive(lease, deadline)
                continue
            if not reply.succeeded:
                return GONE
            attempt.moved(reply.revision)
            self._attempts.hang_on(attempt, lease)
            if not attempt.extend(lease.sent + lease.ttl):
                return GONE
            return Renewed(attempt.token, lease.ttl, lease.sent)


def position(queue: list[StoredEntry], attempt: Attempt) -> int | None:
    """Returns the index of the entry of `attempt`; None if it has none."""
    for number, one in enumerate(queue):
        if attempt.owns(one):
            return number
    return None
