"""Observers of elections: one look at all of them at a time, more often while something happens.

Nodes keep no list of changes, since each has seen others. So the number of a change is made from the
leader's token, and two changes between two looks are seen as one.
"""

from __future__ import annotations

from threading import Lock

from ...._runtime.aio import Routine, Signal
from ....clock import Clock
from ....errors import LockError
from ....events import report
from ....model import NOBODY, Change, Observation
from ..._async.contract import BEFORE_ALL, OBSERVED_FOR, Ticket
from ..lock_state import Reading
from .inspection import SHOWN_AT_ONCE, Inspection
from .recovery import JOIN_LIMIT

SHORTEST_PAUSE = 0.1
"""Seconds between two looks while something happens; doubled up to the heartbeat."""
VERSIONS = 1 << 16
"""The numbers for each token: of its leader's values, and the last for nobody."""


class Observing:
    """The observers of one backend, and the routine that looks for them."""

    def __init__(self, clock: Clock, inspection: Inspection, heartbeat: float) -> None:
        self._clock = clock
        self._inspection = inspection
        self._longest_pause = max(heartbeat, SHORTEST_PAUSE)
        self._observed: dict[str, tuple[Ticket, int, float]] = {}
        """By owner of a ticket: it, the number that it knows, and until when it is told of changes."""
        self._mutex = Lock()
        self._signal = Signal(clock)
        self._routine: Routine | None = None
        self._closed = False

    async def observe(self, ticket: Ticket, after: int, deadline: float) -> Observation:
        """Returns the change since `after`, and lets the ticket be told of the next."""
        (reading,) = await self._inspection.read([ticket.name], deadline)
        change = self._change_in(reading, after)
        holders = reading.state.holders
        known = after if change is None else change.number
        with self._mutex:
            if not self._closed:
                until = self._clock.now() + OBSERVED_FOR
                self._observed[ticket.owner] = (ticket, known, until)
                if self._routine is None:
                    self._routine = Routine(self._look_on, "holdfast-redlock-observers")
        changes = () if change is None else (change,)
        return Observation(changes, holders[0].remaining if holders else 0.0)

    def unobserve(self, ticket: Ticket) -> None:
        """Ends what `observe` began."""
        with self._mutex:
            self._observed.pop(ticket.owner, None)

    async def close(self) -> None:
        """Ends the looking."""
        with self._mutex:
            self._closed = True
            routine = self._routine
        self._signal.set()
        if routine is not None:
            await routine.join(JOIN_LIMIT)

    async def _look_on(self) -> None:
        """Looks again and again, as long as there are observers."""
        pause = SHORTEST_PAUSE
        while True:
            await self._signal.wait(self._clock.now() + pause)
            with self._mutex:
                now = self._clock.now()
                for owner, (_, _, until) in list(self._observed.items()):
                    if until < now:
                        del self._observed[owner]
                if self._closed or not self._observed:
                    self._routine = None
                    return
                observed = list(self._observed.values())
            try:
                happened = await self._look(observed)
            except LockError:
                happened = False
            except Exception as error:
                report("looking at elections failed", error)
                happened = False
            pause = SHORTEST_PAUSE if happened else min(2 * pause, self._longest_pause)

    async def _look(self, observed: list[tuple[Ticket, int, float]]) -> bool:
        """Looks once at all elections. Returns whether there was a change."""
        names = sorted({ticket.name for ticket, _, _ in observed})
        readings: dict[str, Reading] = {}
        for start in range(0, len(names), SHOWN_AT_ONCE):
            some = names[start : start + SHOWN_AT_ONCE]
            deadline = self._clock.now() + self._longest_pause + 1.0
            readings |= zip(some, await self._inspection.read(some, deadline), strict=True)
        happened = False
        for ticket, known, _ in observed:
            if self._change_in(readings[ticket.name], known) is not None:
                happened = True
                ticket.tell()
        return happened

    def _change_in(self, reading: Reading, after: int) -> Change | None:
        """Returns the change that an observer has not seen who knows the one of the number `after`.

        `BEFORE_ALL` or 0: it knows none. Then it is not known whether anybody has led before.
        """
        token, version = divmod(after, VERSIONS)
        if reading.state.holders:
            leader = reading.state.holders[0]
            number = leader.token * VERSIONS + min(reading.version, VERSIONS - 2)
            if number <= after:
                return None
            return Change(number, leader.token, leader.owner, leader.label, leader.since)
        if after <= BEFORE_ALL or version == VERSIONS - 1:
            return None  # nobody led, and nobody does
        number = token * VERSIONS + VERSIONS - 1
        return Change(number, token, "", NOBODY, reading.read_at)
