"""One keeper for all leases and all waiters of a session: it renews them in batches.

A lease is renewed after a third of its TTL, a place in the queue at every heartbeat. What the store
does not answer is tried again soon, until the lease's own deadline; the keeper never waits for one
answer longer than the next renewal can bear. When a lease ends is not left to the keeper alone: its
holder's clock decides, and the alarm rings whatever the store does.

The keeper sleeps until the next renewal is due. While leases come and go it looks by itself, every
`NAP`: to be woken for each of them would cost two switches between threads, and hardly any is still
held when its first renewal comes due.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from math import inf
from typing import TYPE_CHECKING

from .. import forks
from .._runtime.aio import Routine, Signal, send_home
from ..entries import Claim
from ..errors import LockError
from ..events import report
from ..lifecycle import HELD, drift_margin
from ..model import UNKNOWN, Outcome, Renewed, Waiting, quick_new
from ..recent import RecentMinimum
from ..timer_wheel import TimerWheel
from .hold import Hold
from .renewals import Unwanted
from .waiter import Waiter

if TYPE_CHECKING:
    from .session import Session

Kept = Hold | Waiter
"""A lease, which is renewed, or a waiter, whose renewal is its heartbeat."""

BATCH = 128
"""Renewals in one call: enough to share its cost, few enough to keep a transaction short."""
LONGEST_CALL = 5.0
SHORT_CALL = 0.5
"""Seconds for a call: the most, and the least to which it is cut short for the sake of others."""
SPAN = 2 * LONGEST_CALL
"""Seconds in which everybody is seen who could be kept waiting by a call: each is renewed as often as
it can spare."""
LEAST_JOIN, JOIN_LIMIT = 0.1, 1.0
"""Seconds that `close` waits for the routine, which ends by itself: on a store that does not answer,
and at the most."""
NAP, LINGER = 0.05, 1.0
"""Seconds between two looks while leases come and go, and after the last of them."""


class Keeper:
    """The routine that renews, and what it has to renew."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._clock = session.clock
        self._mutex = forks.mutex()
        self._wheel: TimerWheel[Kept] = TimerWheel()
        self._newcomers: dict[Kept, float] = {}
        """Newcomers, and when each is due. The routine sorts them in; most are forgotten by then."""
        self._signal = Signal(session.clock)
        self._next = inf
        """The time at which the routine will look again by itself."""
        self._spare = RecentMinimum(SPAN)
        """Seconds that the one in the greatest hurry can wait for another's call to end."""
        self._taken: list[Kept] = []
        """Leases and waiters that the routine has taken from the wheel, and not put back yet."""
        self._routine: Routine | None = None
        self._closed = False

    def keep(self, one: Kept, due: float) -> None:
        """Renews this lease or waiter from now on, at `due` for the first time."""
        # No mutex: this first writes and then looks at `_next`; the routine does it the other way
        # round. So one of the two sees what the other did.
        one._kept = True
        self._newcomers[one] = min(due, self._newcomers.get(one, due))
        if due < self._next:
            self._wake()

    def _wake(self) -> None:
        if send_home(self._wake, self._session.home):
            return
        with self._mutex:
            if self._routine is not None:
                self._signal.set()
            elif not self._closed:
                self._routine = Routine(self._run, "holdfast-keeper")

    def hurry(self, one: Kept, due: float) -> None:
        """Renews it at `due`, if it is still kept: one that is being released stays forgotten."""
        with self._mutex:
            if one._kept and not self._closed:
                self._newcomers.pop(one, None)
                self._put(one, due, self._clock.now())
        self._signal.set()

    def forget(self, one: Kept) -> None:
        """Never renews it again, not even by a renewal that is under way."""
        one._kept = False
        if self._newcomers.pop(one, None) is None or one in self._wheel.where:
            with self._mutex:  # also until the routine has sorted it in
                self._wheel.remove(one)

    def soon(self, interval: float) -> float:
        """Returns when to ask again after no answer came: soon, and not everybody at once."""
        return self._clock.now() + min(interval / 3, 1.0) * (0.5 + os.urandom(1)[0] / 256)

    async def close(self) -> None:
        """Ends the routine."""
        with self._mutex:
            self._closed = True
            self._newcomers.clear()
            self._wheel = TimerWheel()
            routine = self._routine
        self._signal.set()
        if routine is not None:
            # A signal's handler may close while its own thread has the mutex that the routine needs.
            await routine.join(min(max(self._session.patience, LEAST_JOIN), JOIN_LIMIT))

    async def _run(self) -> None:
        for one in self._taken:  # by an earlier run, which was cancelled or failed
            self._again(one, self._clock.now())
        nap_until = self._clock.now() + LINGER
        while True:
            with self._mutex:
                if self._closed:
                    return
                now = self._clock.now()
                if self._sort_in(now):
                    nap_until = now + LINGER
                due = self._taken = self._wheel.pop_due(now)
                if not due:
                    self._next = self._wheel.next_due()
                    if now < nap_until:
                        self._next = min(self._next, now + NAP)
                    if self._newcomers:
                        continue  # one who may have looked at `_next` before this
                until = None if self._next == inf else self._next
            if due:
                for start in range(0, len(due), BATCH):
                    await self._renew(due[start : start + BATCH])
            elif await self._signal.wait(until):
                nap_until = self._clock.now() + LINGER

    def _sort_in(self, now: float) -> bool:
        """Puts the newcomers into the wheel, under the mutex; returns whether there were any.

        Others may come, and be forgotten, at any moment.
        """
        newcomers = self._newcomers
        found = bool(newcomers)
        while newcomers:
            try:
                one, due = newcomers.popitem()
            except KeyError:
                break  # the last one was forgotten
            self._put(one, due, now)
        return found

    def _put(self, one: Kept, due: float, now: float) -> None:
        # A waiter may miss more than one of its heartbeats, and keeps its place.
        self._spare.note(one._interval() * (3 if isinstance(one, Waiter) else 1), now)
        self._wheel.add(one, due, now)

    async def _renew(self, some: list[Kept]) -> None:
        sent = self._clock.now()
        due: list[Kept] = []
        shortest = LONGEST_CALL
        for one in some:
            if isinstance(one, Hold) and (one._to_be_freed(sent) or one._usage.confirm_dropped()):
                one._free_later()  # the others are not to wait for that
            elif one._expire_if_due(sent):
                continue
            elif self._session.closed:
                continue  # whatever is still held by then is freed by `close`, or ends by itself
            elif not one._wants_renewal():
                self._again(one, one._due(sent))
            elif one._kept:
                due.append(one)
                shortest = min(shortest, one._interval())
        if not due:
            return
        claims: list[Claim] = [
            quick_new(Claim, ((ticket := one._ticket).terms.name, ticket.owner, ticket.ttl))
            for one in due
        ]
        outcomes: Sequence[Outcome]
        detail = "the store did not answer for this lease"
        try:
            limit = sent + self._limit(shortest, sent)
            outcomes = await self._session.renewals.send(
                claims, limit, lambda: all(one._kept for one in due)
            )
        except Unwanted:  # whoever has forgotten one of them may not have seen this call
            return await self._renew(due)
        except Exception as error:
            # Whatever it was, the leases are unconfirmed; and the keeper has to go on.
            outcomes = [UNKNOWN] * len(due)
            detail = str(error)
            if not isinstance(error, LockError):
                report("the keeper could not renew leases", error)
        for one, outcome in self._plainly_renewed(due, outcomes, sent):
            if one._kept:  # else it was released meanwhile: whatever was answered, it is no loss
                self._again(one, one._hear(outcome, sent, detail))

    def _limit(self, shortest: float, now: float) -> float:
        """Returns the seconds for one call.

        If it is not answered, all others that come due meanwhile have to wait for its end: so it takes
        no longer than any of them can spare.
        """
        self._spare.note(shortest, now)
        limit = min(LONGEST_CALL, max(shortest, 0.05))
        return min(limit, max(self._spare.value(now), SHORT_CALL))

    def _plainly_renewed(
        self, some: Sequence[Kept], outcomes: Sequence[Outcome], sent: float
    ) -> list[tuple[Kept, Outcome]]:
        """Notes the renewal of leases and waiters to which nothing else happened; returns all others.

        Nearly all are such, and are noted together under one mutex.
        """
        session = self._session
        if session.listeners:
            return list(zip(some, outcomes, strict=True))
        others: list[tuple[Kept, Outcome]] = []
        plain: dict[float, list[Kept]] = {}
        """The leases and waiters by the time at which they are due again."""
        ttl = deadline = 0.0
        same: list[Kept] = []
        with session.mutex, self._mutex:
            for one, outcome in zip(some, outcomes, strict=True):
                if (
                    type(outcome) is Renewed
                    and isinstance(one, Hold)
                    and one._state is HELD
                    and one._end_at is None
                    and one._ticket.terms.renew
                    and one._kept
                ):
                    token, given, since, _ = outcome
                    if token == one.token and given == one.ttl and not since:
                        if given != ttl:
                            ttl = given
                            deadline = sent + ttl - drift_margin(ttl)
                            same = plain.setdefault(sent + ttl / 3, [])
                        if one._deadline < deadline:
                            one._deadline = deadline
                        one._confirmed = True
                        same.append(one)
                        continue
                elif type(outcome) is Waiting and isinstance(one, Waiter) and one._kept:
                    began = outcome.since or sent
                    one.waits(began, outcome.remaining)
                    plain.setdefault(one._due(began), []).append(one)
                    continue
                others.append((one, outcome))
            if not self._closed:
                now = self._clock.now()
                newcomers, where = self._newcomers, self._wheel.where
                for due, ones in plain.items():
                    # It may have been given another time meanwhile.
                    mine = [one for one in ones if one not in newcomers and one not in where]
                    self._wheel.add_all(mine, due, now)
        return others

    def _again(self, one: Kept, due: float | None) -> None:
        if due is not None:
            with self._mutex:
                # It may have been released meanwhile, or granted and given another time.
                elsewhere = one in self._newcomers or one in self._wheel
                if one._kept and not self._closed and not elsewhere:
                    self._wheel.add(one, due, self._clock.now())
