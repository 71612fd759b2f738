"""The leases of one manager: few, each of which carries the keys of many attempts.

etcd expires leases, not keys. There is one for each TTL in use, kept alive when the engine renews
an attempt on it or when another key is put on it; the deadline of all of them counts from the
*sending* of the last answered keep-alive, since to put a key on a lease renews nothing. A keep-alive
is one call; etcd has a stream for it, and answers a stream of one message just as well.

**A keep-alive proves nothing by itself.** The leader counts leases in its memory and asks nobody; one
that was deposed while its disk or the whole of it stood still goes on answering, while its successor
lets the lease run out. So each is followed by a read that a majority has to confirm. If both replies
are of the same term, the leader that kept the lease alive still led after that, and a later leader
starts to count the lease anew. If not, it is kept alive once more. (Found by the simulator.)

An attempt that ends while its lease lives on has to be ended by us: one that nobody renewed in time, or
whose release could not be sent. `settle` does that, after each time that a lease was kept alive. Nobody
waits for it in the turn to keep the lease alive, which would else run out for all while many are ended.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from math import ceil
from threading import RLock
from typing import Any

from ...._runtime.aio import Turn
from ....clock import Clock
from ....errors import BackendUnavailable, LockError
from ....lifecycle import drift_margin
from ..wire import messages
from ..wire.failures import Failure
from .retry import Retrier

HOLD, QUEUE, OWN, TOMBSTONES, FOREIGN = "hold", "queue", "own", "tombstones", "foreign"
CHANGES, DETACHED = "changes", "detached"
"""The kinds of leases: shared by holders, by waiters; for one attempt alone; for tombstones; those of
another manager; for notes of changes, and for one attempt that is to outlive this manager."""
REPLACED = TOMBSTONES, CHANGES
"""The kinds that are not kept alive, as all that is on them would then be kept for ever."""
LEFT = FOREIGN, CHANGES, DETACHED
"""The kinds that do not end with this manager."""
STALE = 4
"""A lease kept alive longer ago than its TTL divided by this is so again before a key is put on it."""
FRESH = 12
"""A lease kept alive within its TTL divided by this is not again when the engine renews."""
LONGEST = 9_000_000_000
SWEEP = 64
IDLE_OWN = 8
"""The number of idle leases, of each TTL, kept for the next attempt that must have one of its own."""


class Lease:
    """One lease at etcd."""

    __slots__ = (
        "attempts",
        "dead",
        "delay",
        "id",
        "keeping",
        "kind",
        "on",
        "requested",
        "sent",
        "settled",
        "ttl",
        "unproven",
    )

    def __init__(
        self,
        lease_id: int,
        kind: str,
        requested: int,
        ttl: int,
        sent: float,
        delay: float = 0.0,
    ) -> None:
        self.id = lease_id
        self.on = messages.on_lease(lease_id)
        """The part of a put that puts the key on this lease."""
        self.kind = kind
        self.requested = requested
        self.ttl = float(ttl)
        """The TTL that was given: etcd has a shortest one of its own."""
        self.delay = delay
        """The seconds of that for which its locks stay closed, and that nobody may count on."""
        self.sent = sent
        """The time at which the last answered request that renewed it was sent."""
        self.unproven = sent
        """The time at which an unproven keep-alive was sent: no deadline counts from it."""
        self.dead = False
        self.settled = True
        """False once it was kept alive, until what should not live on with it was ended."""
        self.keeping = Turn()
        self.attempts: set[Any] = set()
        """The attempts whose keys are on it; kept by `Attempt`, which knows its lease."""

    @property
    def use(self) -> float:
        """The seconds after a keep-alive for which its holders may count on it."""
        return max(0.0, self.ttl - self.delay)

    @property
    def fresh_for(self) -> float:
        """The seconds after a keep-alive for which keys are put on it without another."""
        return self.use / STALE

    def is_fresh(self, now: float) -> bool:
        """Returns True if keys may be put on it without a keep-alive."""
        return not self.dead and now < self.sent + self.fresh_for

    def renewed(self, sent: float, ttl: float) -> None:
        """Notes a keep-alive by a leader that still led afterwards."""
        if sent > self.sent:
            self.ttl = ttl
            self.sent = sent

    def expire_if_due(self, now: float) -> bool:
        """Declares it dead if its time is over by our own clock; returns True if it is dead.

        No key is put on a dead lease, and it is never kept alive again.
        """
        last = max(self.sent, self.unproven)
        if not self.dead and now >= last + self.ttl - drift_margin(self.ttl):
            self.dead = True
        return self.dead

    def __repr__(self) -> str:
        return f"<etcd lease {self.id:x} of {self.ttl:g} s>"


class Leases:
    """All leases that this manager has made, or was asked to renew."""

    def __init__(
        self,
        retrier: Retrier,
        clock: Clock,
        settle: Callable[[Lease, float], Awaitable[None]],
        readable: bytes,
    ) -> None:
        self._retrier = retrier
        self._clock = clock
        self._settle = settle
        """Ends the attempts that would live on with a lease though nobody holds them any more."""
        self._proof = messages.range_of(readable)
        self._shared: dict[tuple[str, int, float], Lease] = {}
        self._idle: dict[int, list[Lease]] = {}
        self._all: dict[int, Lease] = {}
        self._sweep_at = SWEEP
        """The number of leases from which on those that have ended are forgotten."""
        self._granting = Turn()
        self._settling = Turn()
        self._mutex = RLock()
        """Guards the leases by id, and the idle ones."""

    def fresh(self, kind: str, ttl: float, delay: float = 0.0) -> Lease | None:
        """Returns the shared lease of that TTL if there is a fresh one, without a call."""
        lease = self._shared.get((kind, seconds(ttl), delay))
        return lease if lease is not None and lease.is_fresh(self._clock.now()) else None

    async def shared(self, kind: str, ttl: float, deadline: float, delay: float = 0.0) -> Lease:
        """Returns a lease for any key of that TTL, with most of its time ahead.

        `delay` is the part of the TTL for which a lock stays closed behind its holder.
        """
        lease = self.fresh(kind, ttl, delay)
        if lease is not None:
            return lease
        key = kind, seconds(ttl), delay
        lease = self._shared.get(key)
        if (
            lease is not None
            and kind not in REPLACED
            and await self.keep_alive(lease, deadline, lease.fresh_for, proof=False)
        ):
            await self.settle(lease, deadline)
            return lease

        async def grant() -> Lease:
            lease = self.fresh(kind, ttl, delay)  # another may have made one
            if lease is None:
                lease = self._shared[key] = await self._grant(kind, key[1], deadline, delay)
            return lease

        return await self._retrier.in_turn(self._granting, deadline, grant)

    async def own(self, ttl: float, deadline: float) -> Lease:
        """Returns a lease for one attempt alone, with all of its time ahead."""
        key = seconds(ttl)
        while True:
            with self._mutex:
                idle = self._idle.get(key)
                lease = idle.pop() if idle else None
            if lease is None:
                return await self._grant(OWN, key, deadline)
            if await self.keep_alive(lease, deadline):
                await self.settle(lease, deadline)
                return lease

    async def detached(self, ttl: float, deadline: float) -> Lease:
        """Returns a lease for one attempt alone, which outlives this manager and is not kept alive."""
        return await self._grant(DETACHED, seconds(ttl), deadline)

    def let_go(self, lease: Lease) -> None:
        """Forgets a lease, which lives on."""
        with self._mutex:
            self._all.pop(lease.id, None)

    async def revoke(self, lease_id: int, deadline: float) -> None:
        """Ends a lease that has no keys any more; if that fails, it ends by itself."""
        with self._mutex:
            self._all.pop(lease_id, None)
        try:
            await self._retrier.call(messages.LEASE_REVOKE, messages.lease_id(lease_id), deadline)
        except (Failure, LockError):
            return

    def give_back(self, lease: Lease) -> None:
        """Keeps a lease of one attempt, which has left it, for another."""
        with self._mutex:
            idle = self._idle.setdefault(lease.requested, [])
            if not lease.dead and len(idle) < IDLE_OWN:
                idle.append(lease)
            else:
                self._all.pop(lease.id, None)  # it has no keys, and ends by itself

    def named(self, lease_id: int, ttl: float) -> Lease:
        """Returns the lease that an entry is on; another manager's, if we are asked to renew for it."""
        with self._mutex:
            lease = self._all.get(lease_id)
            if lease is None:
                whole = seconds(ttl)
                # Neither dead nor fresh: it is kept alive before anything is said of it.
                sent = self._clock.now() - whole / 2
                lease = self._all[lease_id] = Lease(lease_id, FOREIGN, whole, whole, sent)
            return lease

    async def keep_alive(
        self, lease: Lease, deadline: float, within: float = 0.0, *, proof: bool = True
    ) -> bool:
        """Keeps it alive, unless that was done `within` so many seconds; returns False if it has ended.

        Without `proof` it counts once the transaction is answered for which it is needed.
        """
        arrived = self._clock.now() - within
        if lease.sent >= arrived and not lease.dead:
            return True

        async def keep() -> bool:
            if lease.sent >= arrived and not lease.dead:
                return True  # another's keep-alive, sent after we had come
            return await self._keep_alive(lease, deadline, proof)

        return await self._retrier.in_turn(lease.keeping, deadline, keep)

    async def settle(self, lease: Lease, deadline: float) -> None:
        """Ends what would live on with a lease that was kept alive; one caller at a time does so.

        It takes half of the time that is left, at the most: the caller has something else to do. And
        no longer than whoever was renewed can wait to hear of it.
        """
        if lease.settled or lease.kind in REPLACED:
            return
        now = self._clock.now()
        within = now + min((deadline - now) / 2, lease.fresh_for)

        async def settle() -> bool:
            lease.settled = True
            await self._settle(lease, within)
            return True

        await self._retrier.in_turn(self._settling, deadline, settle, busy=False)

    async def find_ended(self, leases: Iterable[Lease | None], deadline: float) -> None:
        """Finds out which of these leases has ended, after a write was refused because of one."""
        for lease in leases:
            if lease is not None:
                await self.keep_alive(lease, deadline)

    async def _keep_alive(self, lease: Lease, deadline: float, proof: bool) -> bool:
        request = messages.lease_id(lease.id)
        while True:
            sent = self._clock.now()
            if lease.expire_if_due(sent):
                return False
            reply = await self._retrier.call(messages.LEASE_KEEP_ALIVE, request, deadline)
            term = messages.parse_term(reply)
            _, ttl = messages.parse_lease(reply)
            if ttl <= 0 or proof:
                if await self._led_by(term, deadline):
                    break
            else:
                lease.unproven = sent
                lease.settled = False
                self._retrier.unproven[partial(lease.renewed, sent, float(ttl))] = term
                return True
        if ttl <= 0:
            self._end(lease)
            return False
        lease.renewed(sent, float(ttl))
        lease.settled = False
        return True

    async def _led_by(self, term: int, deadline: float) -> bool:
        """Returns True if the leader of that term still leads."""
        reply = await self._retrier.call(messages.RANGE, self._proof, deadline)
        return messages.parse_term(reply) == term

    def _end(self, lease: Lease) -> None:
        """Notes that it is gone at the store, and with it every key on it."""
        lease.dead = True
        self._all.pop(lease.id, None)

    async def _grant(self, kind: str, ttl: int, deadline: float, delay: float = 0.0) -> Lease:
        # We choose its id, so that asking again after a lost reply makes no second one.
        lease_id = int.from_bytes(os.urandom(8), "big") >> 1 or 1
        sent = self._clock.now()
        try:
            reply = await self._retrier.call(
                messages.LEASE_GRANT, messages.lease_grant(lease_id, ttl), deadline
            )
            _, given = messages.parse_lease(reply)
        except Failure as failure:
            if not failure.lease_exists:
                raise BackendUnavailable(f"etcd made no lease: {failure.details}") from None
            # An earlier try of ours was carried out. Its TTL counts from when that was sent.
            given = ttl
        lease = Lease(lease_id, kind, ttl, given, sent, delay)
        with self._mutex:
            if len(self._all) >= self._sweep_at:
                self._all = {
                    one.id: one for one in self._all.values() if not one.expire_if_due(sent)
                }
                # Twice as many, so that a crowd of living leases is not searched for each new one.
                self._sweep_at = max(SWEEP, 2 * len(self._all))
            self._all[lease_id] = lease
        return lease

    async def remaining(self, lease_id: int, deadline: float) -> float:
        """Returns the most seconds that a lease has left, as etcd says; 0 if it has ended."""
        reply = await self._retrier.call(
            messages.LEASE_TIME_TO_LIVE, messages.lease_id(lease_id), deadline
        )
        parts = messages.parse_time_to_live(reply)
        # Whole seconds, rounded down.
        return min(parts.remaining + 1.0, float(parts.granted)) if parts.remaining >= 0 else 0.0

    async def revoke_all(self, deadline: float) -> None:
        """Ends all leases: nothing of ours stays behind, and no request under way can land.

        A lock with a delay that was not released stays closed, and one that is held stays held, because
        a body goes on under it or it is not ours: its lease ends by itself.
        """
        with self._mutex:
            leases = [
                lease
                for lease in self._all.values()
                if lease.kind not in LEFT
                and not any(
                    (one.token or one.terms.delay or not one.terms.bound) and not one.released
                    for one in lease.attempts
                )
            ]
            self._all.clear()
            self._shared.clear()
        for lease in leases:
            if not lease.dead:
                lease.dead = True
                try:
                    request = messages.lease_id(lease.id)
                    await self._retrier.call(messages.LEASE_REVOKE, request, deadline)
                except (Failure, LockError):
                    continue  # it ends by itself


def seconds(ttl: float) -> int:
    """Returns the TTL of an etcd lease: whole seconds, rounded up."""
    return min(max(1, ceil(ttl)), LONGEST)
