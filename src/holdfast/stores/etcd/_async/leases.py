"""The leases of one manager: few, each of which carries many locks, and all that hangs on that.

etcd expires leases, not keys. There is one for each TTL in use, kept alive when the engine renews what
hangs on it or when something new is put on it; the deadline of all of that counts from the *sending* of
the last answered keep-alive, since to put a key on a lease renews nothing. A keep-alive is one
call; etcd has a stream for it, and answers a stream of one message just as well.

**A keep-alive proves nothing by itself.** The leader counts leases in its memory and asks nobody; one
that was deposed while its disk or the whole of it stood still goes on answering, while its successor
lets the lease run out. So each is followed by a read that a majority has to confirm. If both answers
are of the same term, the one who kept the lease alive still led after that, and whoever leads later
starts to count the lease anew. If not, it is kept alive once more. (Found by the simulator.)

What may end while the lease lives on has to be ended by us: an attempt that nobody has renewed until
its own time was over, or whose release could not be sent. Those are *owed* to the store, and paid
before a lease is kept alive again.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from functools import partial
from math import ceil
from threading import RLock
from typing import TYPE_CHECKING

from ...._runtime.aio import Mutex
from ....clock import Clock
from ....errors import BackendUnavailable, LockError
from ....lifecycle import drift_margin
from ..wire import messages
from ..wire.failures import Failure
from .retry import Calls

if TYPE_CHECKING:
    from .attempt import Attempt

HOLD, QUEUE, OWN, GRAVES, FOREIGN = "hold", "queue", "own", "graves", "foreign"
STALE = 4
"""One kept alive longer ago than its TTL divided by this is so again before anything is put on it."""
FRESH = 12
"""What was kept alive within this part of its TTL is not again when the engine renews."""
LONGEST = 9_000_000_000
IDLE_OWN = 8
"""Leases kept for the next attempt that must have one of its own."""


class Lease:
    """One lease at etcd."""

    __slots__ = (
        "answered",
        "asked",
        "attempts",
        "dead",
        "id",
        "keeping",
        "kind",
        "on",
        "sent",
        "ttl",
    )

    def __init__(self, lease_id: int, kind: str, asked: int, ttl: int, sent: float) -> None:
        self.id = lease_id
        self.on = messages.on_lease(lease_id)
        self.kind = kind
        self.asked = asked
        self.ttl = float(ttl)
        """What was given: etcd has a shortest TTL of its own."""
        self.sent = sent
        """When the last answered request was sent that renewed it."""
        self.answered = sent
        """The same, where that has still to be proved: no deadline counts from it."""
        self.dead = False
        self.keeping = Mutex()
        self.attempts: dict[Attempt, None] = {}

    @property
    def lasting(self) -> float:
        """Seconds after it was kept alive for which more is put on it without doing that again."""
        return self.ttl / STALE

    def fresh(self, now: float) -> bool:
        """More may be put on it as it is."""
        return not self.dead and now < self.sent + self.lasting

    def kept(self, sent: float, ttl: float) -> None:
        """It was kept alive, by a leader that still led afterwards."""
        if sent > self.sent:
            self.ttl = ttl
            self.sent = sent

    def over(self, now: float) -> bool:
        """By our own clock: no more is to be put on it, and it is never kept alive again."""
        last = max(self.sent, self.answered)
        if not self.dead and now >= last + self.ttl - drift_margin(self.ttl):
            self.dead = True
        return self.dead

    def __repr__(self) -> str:
        return f"<etcd lease {self.id:x} of {self.ttl:g} s>"


class Leases:
    def __init__(
        self,
        calls: Calls,
        clock: Clock,
        pay: Callable[[Attempt, float], Awaitable[None]],
        readable: bytes,
    ) -> None:
        self._calls = calls
        self._clock = clock
        self._pay = pay
        self._proof = messages.range_of(readable)
        self._shared: dict[tuple[str, int], Lease] = {}
        self._idle: dict[int, list[Lease]] = {}
        self._all: dict[int, Lease] = {}
        self._owed: dict[Attempt, None] = {}
        self.queues = False
        """Somebody here has had to wait: there may be a lease for that."""
        self._granting = Mutex()
        self.mutex = RLock()
        """Guards what is known of attempts, which `Roll` has part of: both mostly change together."""

    def alive(self, kind: str, ttl: float) -> Lease | None:
        """The shared lease of that TTL, if it is there and fresh: nothing is asked."""
        lease = self._shared.get((kind, seconds(ttl)))
        return lease if lease is not None and lease.fresh(self._clock.now()) else None

    async def shared(self, kind: str, ttl: float, deadline: float) -> Lease:
        """A lease for anything of that TTL, with most of its time ahead."""
        lease = self.alive(kind, ttl)
        if lease is not None:
            return lease
        key = kind, seconds(ttl)
        lease = self._shared.get(key)
        if lease is not None and await self.keep(lease, deadline, lease.lasting, proof=False):
            return lease
        await self._calls.take_turn(self._granting, deadline)
        try:
            lease = self.alive(kind, ttl)  # somebody else may have made one
            if lease is None:
                lease = self._shared[key] = await self._grant(kind, key[1], deadline)
                self.queues = self.queues or kind == QUEUE
            return lease
        finally:
            self._granting.release()

    async def own(self, ttl: float, deadline: float) -> Lease:
        """A lease for one attempt alone, with all of its time ahead."""
        key = seconds(ttl)
        while True:
            with self.mutex:
                idle = self._idle.get(key)
                lease = idle.pop() if idle else None
            if lease is None:
                return await self._grant(OWN, key, deadline)
            if await self.keep(lease, deadline):
                return lease

    def leave(self, attempt: Attempt) -> None:
        """Nothing of this attempt is on its lease any more."""
        with self.mutex:
            if self._owed:
                self._owed.pop(attempt, None)
            lease, attempt.lease = attempt.lease, None
            if lease is None:
                return
            lease.attempts.pop(attempt, None)
            if lease.kind == OWN and not lease.dead and not attempt.doubtful:
                idle = self._idle.setdefault(lease.asked, [])
                if len(idle) < IDLE_OWN:
                    idle.append(lease)

    def begin_leaving(self, attempt: Attempt) -> bool:
        """It is given up. True if nobody else is about to tell the store."""
        with self.mutex:
            attempt.owed = True
            first = not attempt.leaving
            attempt.leaving = True
            if first and self._owed:
                self._owed.pop(attempt, None)
            return first

    def still_owed(self, attempt: Attempt) -> None:
        """The store could not be told: it will be, before what it hangs on is kept alive again."""
        with self.mutex:
            attempt.leaving = False
            self._owed[attempt] = None

    def join(self, attempt: Attempt, lease: Lease) -> None:
        with self.mutex:
            if attempt.lease is not lease and not attempt.owed:
                if attempt.lease is not None:
                    self.leave(attempt)
                lease.attempts[attempt] = None
                attempt.lease = lease

    def named(self, lease_id: int, ttl: float) -> Lease:
        """The lease on which an entry hangs; another manager's, if we are asked to renew for it."""
        with self.mutex:
            lease = self._all.get(lease_id)
            if lease is None:
                whole = seconds(ttl)
                # Neither over nor fresh: it is kept alive before anything is said of it.
                sent = self._clock.now() - whole / 2
                lease = self._all[lease_id] = Lease(lease_id, FOREIGN, whole, whole, sent)
            return lease

    async def keep(
        self, lease: Lease, deadline: float, within: float = 0.0, *, proof: bool = True
    ) -> bool:
        """Keep it alive; False if it has ended. Kept alive so many seconds ago is enough.

        Without `proof` it counts once the transaction is answered for which it is needed.
        """
        arrived = self._clock.now() - within
        if lease.sent >= arrived and not lease.dead:
            return True
        await self._calls.take_turn(lease.keeping, deadline)
        try:
            if lease.sent >= arrived and not lease.dead:
                return True  # somebody else's, sent after we had come
            await self._settle(lease, deadline)
            return await self._keep(lease, deadline, proof)
        finally:
            lease.keeping.release()

    async def _keep(self, lease: Lease, deadline: float, proof: bool) -> bool:
        request = messages.lease_id(lease.id)
        while True:
            sent = self._clock.now()
            if lease.over(sent):
                return False
            answer = await self._calls.call(messages.LEASE_KEEP_ALIVE, request, deadline)
            term = messages.parse_term(answer)
            _, ttl = messages.parse_lease(answer)
            if ttl <= 0 or proof:
                if await self._led_by(term, deadline):
                    break
            else:
                lease.answered = sent
                self._calls.unproven[partial(lease.kept, sent, float(ttl))] = term
                return True
        if ttl <= 0:
            self.end(lease)
            return False
        lease.kept(sent, float(ttl))
        return True

    async def _led_by(self, term: int, deadline: float) -> bool:
        """Whether the leader of that term still leads."""
        answer = await self._calls.call(messages.RANGE, self._proof, deadline)
        return messages.parse_term(answer) == term

    async def _settle(self, lease: Lease, deadline: float) -> None:
        """End what would go on living with the lease, though nobody holds it any more."""
        if lease.kind == GRAVES:
            return  # which is what paying needs
        with self.mutex:
            due = [*self._owed, *lease.attempts]
        for attempt in due:
            if attempt in self._owed or self._give_up(attempt):
                try:
                    await self._pay(attempt, deadline)
                except LockError:
                    return  # next time; there is an end to what one call may take

    def extend(self, attempt: Attempt, until: float) -> bool:
        """It lasts until then; False if it was given up meanwhile, and nobody has it any more."""
        with self.mutex:
            if not attempt.owed:
                attempt.until = until
            return not attempt.owed

    def _give_up(self, attempt: Attempt) -> bool:
        """One that nobody has renewed in time. Either this or `extend` has the last word."""
        with self.mutex:
            over = not attempt.owed and attempt.until <= self._clock.now()
            attempt.owed = attempt.owed or over
            return over

    def end(self, lease: Lease) -> None:
        """It is gone at the store, and with it every key on it."""
        lease.dead = True
        self._all.pop(lease.id, None)

    async def _grant(self, kind: str, ttl: int, deadline: float) -> Lease:
        # We name it, so that asking again after a lost answer makes no second one.
        lease_id = int.from_bytes(os.urandom(8), "big") >> 1 or 1
        sent = self._clock.now()
        try:
            answer = await self._calls.call(
                messages.LEASE_GRANT, messages.lease_grant(lease_id, ttl), deadline
            )
            _, given = messages.parse_lease(answer)
        except Failure as failure:
            if not failure.lease_exists:
                raise BackendUnavailable(f"etcd made no lease: {failure.details}") from None
            # An earlier try of ours was carried out. Its TTL counts from when that was sent.
            given = ttl
        lease = Lease(lease_id, kind, ttl, given, sent)
        with self.mutex:
            for dead in [other for other in self._all.values() if other.dead]:
                del self._all[dead.id]
            self._all[lease_id] = lease
        return lease

    async def remaining(self, lease_id: int, deadline: float) -> float:
        """Seconds it has at the most, as etcd says; 0 or less if it has ended."""
        answer = await self._calls.call(
            messages.LEASE_TIME_TO_LIVE, messages.lease_id(lease_id), deadline
        )
        parts = messages.parse_time_to_live(answer)
        # Whole seconds, rounded down.
        return min(parts.remaining + 1.0, float(parts.granted)) if parts.remaining >= 0 else 0.0

    async def revoke_all(self, deadline: float) -> None:
        """At the end: nothing of ours stays behind, and nothing that is still under way can land."""
        with self.mutex:
            leases = [lease for lease in self._all.values() if lease.kind != FOREIGN]
            self._all.clear()
            self._shared.clear()
        for lease in leases:
            if not lease.dead:
                lease.dead = True
                try:
                    request = messages.lease_id(lease.id)
                    await self._calls.call(messages.LEASE_REVOKE, request, deadline)
                except (Failure, LockError):
                    continue  # it ends by itself


def seconds(ttl: float) -> int:
    """etcd's leases are of whole seconds: rounded up."""
    return min(max(1, ceil(ttl)), LONGEST)
