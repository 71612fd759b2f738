"""One keeper for all leases and all waiters of a session: it renews them in batches.

A lease is renewed after a third of its TTL, a place in the queue at every heartbeat. What the store
does not answer is tried again soon, until the lease's own deadline; the keeper never waits for one
answer longer than the next renewal can bear. When a lease ends is not left to the keeper alone: its
holder's clock decides, and the alarm rings whatever the store does.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from math import inf
from threading import RLock
from typing import TYPE_CHECKING

from .._runtime.aio import Routine, Signal
from ..entries import Claim
from ..errors import LockError
from ..events import report
from ..lifecycle import HELD, drift_margin
from ..model import UNKNOWN, Gone, Outcome, Renewed, Waiting, quick_new
from ..timer_wheel import TimerWheel as Wheel

if TYPE_CHECKING:
    from .hold import Hold
    from .session import Session

BATCH = 128
"""Renewals in one call: enough to share its cost, few enough to keep a transaction short."""
LONGEST_CALL = 5.0
SHORT_CALL = 0.5
"""A call that may take longer is cut short for the sake of others, see `_limit`."""
SPAN = 2 * LONGEST_CALL
"""Seconds after which what could be spared is found out anew: of those who matter to that, each was
seen by then, since it is renewed as often as it can spare."""
LINGER = 1.0
CONFIRM_AFTER = 0.02
"""Seconds until a hand-over is confirmed in the background. A lock that is given back sooner never
needs it; the claim window is a hundred times as long."""
TICK, LONGEST_TICK = 0.015, 0.25
"""Where hand-overs follow each other, each has to be confirmed so soon, and hardly any is still held by
then. For a while after such a one the keeper looks by itself: to be woken for each of them would cost
two switches between threads. It looks every `TICK`, less often while there is nothing to confirm."""


class Keeper:
    def __init__(self, session: Session) -> None:
        self._session = session
        self._clock = session.clock
        self._mutex = RLock()
        self._wheel: Wheel[Hold] = Wheel()
        self._newcomers: dict[Hold, float] = {}
        """With when they are due; sorted in by the routine. Most are forgotten before that."""
        self._signal = Signal(session.clock)
        self._next = inf
        _, least = session.claim
        self._soon = min(LONGEST_TICK, least / 2)
        """Seconds after which it is soon enough to look at a hand-over, whatever is left of it."""
        self._handed_at = -inf
        """When the last one was handed over, as far as we know."""
        self._tick = TICK
        self._spare = self._spare_before = inf
        """What any of those could spare who were seen since `_seen_since`, and in the span before."""
        self._seen_since = -inf
        self._routine: Routine | None = None
        self._closed = False

    def keep(self, lease: Hold, due: float) -> None:
        """Renew this lease from now on, at `due` for the first time."""
        # No mutex: this first writes and then looks at `_next`; the routine does it the other way
        # round. So one of the two sees what the other did.
        lease._kept = True
        self._newcomers[lease] = due
        if due < self._next:
            self._wake()

    def _wake(self) -> None:
        with self._mutex:
            if self._routine is not None:
                self._signal.set()
            elif not self._closed:
                self._routine = Routine(self._run, "holdfast-keeper")

    def keep_soon(self, lease: Hold, now: float) -> None:
        """As `keep`, for one that was handed over: one of many, hardly any of which comes due."""
        self._handed_at = now
        lease._kept = True
        self._newcomers[lease] = now + CONFIRM_AFTER
        if self._next > now + self._soon:
            self._wake()

    def hurry(self, lease: Hold, due: float) -> None:
        """See to it at `due`, if it is still kept: one that is being released stays forgotten."""
        with self._mutex:
            if lease._kept and not self._closed:
                self._newcomers.pop(lease, None)
                self._see(lease)
                self._wheel.add(lease, due, self._clock.now())
        self._signal.set()

    def forget(self, lease: Hold) -> None:
        """Never renew it again, not even by a renewal that is under way."""
        lease._kept = False
        if self._newcomers.pop(lease, None) is None or lease in self._wheel.where:
            with self._mutex:  # also until the routine has sorted it in
                self._wheel.remove(lease)

    async def close(self) -> None:
        with self._mutex:
            self._closed = True
            kept = [*list(self._newcomers), *self._wheel.things()]
            freeing = [one for one in kept if one._freeing]
            self._newcomers.clear()
            self._wheel = Wheel()
            routine = self._routine
        self._signal.set()
        if routine is not None:
            await routine.join()
        for lease in freeing:
            await self._session.clean_up(lease._ticket)

    async def _run(self) -> None:
        fresh = True
        while True:
            with self._mutex:
                if self._closed:
                    return
                now = self._clock.now()
                self._sort_in(now)
                due = self._wheel.pop_due(now)
                if not due:
                    if now >= self._seen_since + SPAN:
                        self._spare_before, self._spare = self._spare, inf
                        self._seen_since = now
                    self._next = self._wheel.next_due()
                    if self._next == inf and fresh:
                        # A lock that is taken and given back in a loop leaves nothing to keep each
                        # time. Do not go to sleep for good at once, only to be woken by the next.
                        self._next = now + LINGER
                    if now < self._handed_at + LINGER:
                        self._next = min(self._next, now + self._tick)
                        self._tick = min(2 * self._tick, self._soon)
                    else:
                        fresh = False
                    if self._newcomers:
                        continue  # one who may have looked at `_next` before this
                until = None if self._next == inf else self._next
            if due:
                self._tick = TICK
                for start in range(0, len(due), BATCH):
                    await self._renew(due[start : start + BATCH])
                fresh = True
            elif await self._signal.wait(until):
                fresh = True

    def _sort_in(self, now: float) -> None:
        """Under the mutex; but newcomers may come, and be forgotten, at any moment."""
        newcomers = self._newcomers
        while newcomers:
            try:
                lease, moment = newcomers.popitem()
            except KeyError:
                return  # the last one was forgotten
            self._see(lease)
            self._wheel.add(lease, moment, now)

    def _see(self, lease: Hold) -> None:
        # A waiter may miss more than one of its heartbeats, and keeps its place.
        self._seen(lease.ttl / 3 if lease._state is HELD else 3 * lease._interval())

    def _seen(self, spare: float) -> None:
        with self._mutex:
            self._spare = min(self._spare, spare)

    async def _renew(self, leases: list[Hold]) -> None:
        sent = self._clock.now()
        due: list[Hold] = []
        ttl, shortest = inf, LONGEST_CALL
        for lease in leases:
            if lease._state is HELD and lease._renewing and lease._kept and sent < lease._deadline:
                due.append(lease)  # nearly all are such; the rest in full:
                if lease.ttl < ttl:
                    ttl = lease.ttl
            elif lease._over(sent):
                if lease._freeing:
                    lease._freeing = False
                    await self._session.clean_up(lease._ticket)
            elif not lease._wants_renewal():
                self._again(lease, lease._due(sent))
            elif lease._kept:
                due.append(lease)
                self._see(lease)
                shortest = min(shortest, lease._interval())
        if not due:
            return
        claims: list[Claim] = [
            quick_new(Claim, ((ticket := lease._ticket).terms.name, ticket.owner, lease.ttl))
            for lease in due
        ]
        self._seen(ttl / 3)
        deadline = sent + self._limit(min(shortest, ttl / 3))
        outcomes: Sequence[Outcome]
        detail = "the store did not answer for this lease"
        try:
            outcomes = await self._session.backend.renew(claims, deadline)
        except Exception as error:
            # Whatever it was, the leases are unconfirmed; and the keeper has to go on.
            outcomes = [UNKNOWN] * len(due)
            detail = str(error)
            if not isinstance(error, LockError):
                report("the keeper could not renew leases", error)
        for lease, outcome in self._renewed(due, outcomes, sent):
            self._again(lease, self._apply(lease, outcome, sent, detail))

    def _limit(self, shortest: float) -> float:
        """Seconds for one call. If it is not answered, whoever else comes due meanwhile has to wait
        for its end: so it takes no longer than any of them can spare."""
        limit = min(LONGEST_CALL, max(shortest, 0.05))
        return min(limit, max(self._spare, SHORT_CALL), max(self._spare_before, SHORT_CALL))

    def _renewed(
        self, leases: Sequence[Hold], outcomes: Sequence[Outcome], sent: float
    ) -> list[tuple[Hold, Outcome]]:
        """What is true of nearly all: held before, and renewed. Answers those that are not such."""
        session = self._session
        if session.listeners:
            return list(zip(leases, outcomes, strict=True))
        others: list[tuple[Hold, Outcome]] = []
        plain: dict[float, list[Hold]] = {}
        """By TTL: they were sent together, so they end and are due together."""
        ttl = deadline = 0.0
        same: list[Hold] = []
        with session.mutex, self._mutex:
            for lease, outcome in zip(leases, outcomes, strict=True):
                if (
                    type(outcome) is Renewed
                    and lease._state is HELD
                    and lease._end_at is None
                    and lease._renewing
                    and lease._kept
                ):
                    token, given, since = outcome
                    if token == lease.token and given == lease.ttl and not since:
                        if given != ttl:
                            ttl = given
                            deadline = sent + ttl - drift_margin(ttl)
                            same = plain.setdefault(ttl, [])
                        if lease._deadline < deadline:
                            lease._deadline = deadline
                        if not lease._confirmed:
                            lease._confirmed = True
                        same.append(lease)
                        continue
                others.append((lease, outcome))
            if not self._closed:
                now = self._clock.now()
                newcomers, where = self._newcomers, self._wheel.where
                for ttl, some in plain.items():
                    # It may have been given another time meanwhile.
                    mine = [one for one in some if one not in newcomers and one not in where]
                    self._wheel.add_all(mine, sent + ttl / 3, now)
        return others

    def _again(self, lease: Hold, due: float | None) -> None:
        if due is not None:
            with self._mutex:
                # It may have been released meanwhile, or granted and given another time.
                elsewhere = lease in self._newcomers or lease in self._wheel
                if lease._kept and not self._closed and not elsewhere:
                    self._wheel.add(lease, due, self._clock.now())

    def _apply(self, lease: Hold, outcome: Outcome, sent: float, detail: str) -> float | None:
        """Tell the lease; answers when it is due again."""
        if not lease._kept:
            return None  # released while this was under way: whatever was answered, it is no loss
        if lease._refuted(outcome, sent):
            return None
        if isinstance(outcome, Renewed):
            sent = outcome.since or sent
            lease._renewed(outcome, sent)
            return lease._due(sent)
        if isinstance(outcome, Waiting):
            sent = outcome.since or sent
            lease._waits(sent, outcome.remaining)
            return lease._due(sent)
        if isinstance(outcome, Gone):
            lease._gone()
            return None
        lease._doubted(detail)
        # Soon again, not all at once, and never past the deadline: `_over` has to see that in time.
        pause = min(lease._interval() / 3, 1.0) * (0.5 + os.urandom(1)[0] / 256)
        return self._clock.now() + pause
