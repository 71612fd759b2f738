"""The locks of a store on the whole terminal: counts at the top, the most waited for below."""

from __future__ import annotations

import select
import signal
import time
from collections.abc import Sequence

from .. import Locks, LockState
from . import statuses
from .background import BackgroundCall
from .drawing import BOLD, DIM, RED, YELLOW, Pen, clip, visible, width
from .durations import briefly
from .full_screen import FullScreen
from .lock_rows import counts, lock_table, rows_of
from .wakeups import ENDING, Wakeups, now
from .watch_lines import GONE
from .watch_look import Look

_TICK = 1.0
"""Seconds after which times are drawn anew."""
_REST = 2.0
"""The store is left alone for so many times as long as it took to answer."""
_STALE = 3.0
"""Seconds without an answer of the store after which people are told of it."""
_ABOVE, _BELOW = 3, 1
"""Lines around the rows of the table: a title, an empty line, the heading; and a footer."""
_UP = (b"k", b"\033[A", b"\033OA")
_DOWN = (b"j", b"\033[B", b"\033OB")
_PAGE_UP = (b"b", b"\033[5~")
_PAGE_DOWN = (b" ", b"f", b"\033[6~")
_FIRST = (b"g", b"\033[H", b"\033OH")
_LAST = (b"G", b"\033[F", b"\033OF")
_QUIT = (b"q", b"Q")


class WatchScreen:
    """A full-screen view that ticks, scrolls, resizes and is stopped by Ctrl-Z."""

    def __init__(self, pen: Pen, wakeups: Wakeups, locks: Locks, prefix: str, every: float) -> None:
        self._pen = pen
        self._wakeups = wakeups
        self._url = locks.url
        self._prefix = prefix
        self._every = every
        self._look = Look(locks, prefix)
        self._screen = FullScreen(pen, 1)
        self._first = 0
        """The row of the table that is the first on the screen; a lock has one for each holder."""
        self._ended = False

    def run(self) -> int:
        """Shows the locks until it is ended, and returns the exit status."""
        self._wakeups.watched[1] = 0
        if self._screen.keys_from is not None:
            self._wakeups.watched[self._screen.keys_from] = select.POLLIN
        self._wakeups.hear_stops()
        try:
            self._screen.enter()
            return self._watch()
        finally:
            self._screen.leave()

    def _watch(self) -> int:
        call: BackgroundCall | None = None
        asked = due = now()
        while not self._ended:
            if call is None and now() >= due:
                asked = now()
                call = BackgroundCall(self._look.take, self._wakeups.nudge)
            elif call is not None and call.ended():
                if call.error is not None:
                    raise call.error
                call = None
                due = now() + max(self._every, _REST * (now() - asked))
            self._show()
            until = _TICK if call is not None else min(_TICK, due - now())
            for number in self._wakeups.wait(max(until, 0.0)):
                if number in ENDING:
                    return statuses.ended_by(number)
                self._hear(number)
        return 0

    def _show(self) -> None:
        if self._wakeups.ready.get(1, 0) & GONE:
            self._ended = True
            return
        self._press(self._screen.keys(), sum(map(rows_of, self._look.states)))
        if self._screen.keys_from is None:
            self._wakeups.watched.pop(0, None)
        try:
            self._screen.draw(self._picture(self._look))
        except OSError:
            self._ended = True  # the terminal has gone

    def _hear(self, number: int) -> None:
        """Does what a signal asks for, other than to end."""
        if number == signal.SIGTSTP:
            self._screen.leave()
            self._wakeups.stop(signal.SIGTSTP, everybody=False)
            self._screen.enter()
        elif number == signal.SIGCONT:
            self._screen.enter()  # the shell may have changed the modes

    def _press(self, typed: bytes, rows: int) -> None:
        page = max(self._pen.size()[1] - _ABOVE - _BELOW, 1)
        for key in _keys(typed):
            if key in _QUIT:
                self._ended = True
            elif key in _UP:
                self._first -= 1
            elif key in _DOWN:
                self._first += 1
            elif key in _PAGE_UP:
                self._first -= page
            elif key in _PAGE_DOWN:
                self._first += page
            elif key in _FIRST:
                self._first = 0
            elif key in _LAST:
                self._first = rows
        self._first = max(min(self._first, rows - page), 0)

    def _picture(self, look: Look) -> list[str]:
        columns, height = self._pen.size()
        age = now() - look.at
        states = look.states
        room = max(height - _ABOVE - _BELOW, 1)
        total = sum(map(rows_of, states))
        self._first = max(min(self._first, total - room), 0)
        shown, skipped = _window(states, self._first, room)
        shown = [_aged(state, age) for state in shown]
        table = lock_table(self._pen, shown, time.time(), skipped)
        heading, *rows = self._pen.table(*table, columns)
        rows = rows[:room]
        lines = [self._title(states, columns), self._condition(look, age, columns), heading]
        nothing = clip("nothing is held or waited for", columns)
        lines += rows or [self._pen.paint(nothing, DIM)]
        if not look.taken:
            del lines[2:]
        lines += [""] * (height - _BELOW - len(lines))
        return [*lines, self._footer(total, len(rows), columns)]

    def _title(self, states: Sequence[LockState], columns: int) -> str:
        clock = time.strftime("%H:%M:%S")
        left = f"holdfast · {counts(states)}"
        if columns <= width(left) + len(clock) + 4:
            clock = f" {clock}" if columns > 2 * len(clock) else ""
            return self._pen.paint(clip(left, columns - len(clock)), BOLD) + clock
        place = visible(self._url) + (f" · {visible(self._prefix)}…" if self._prefix else "")
        place = clip(place, max(columns - width(left) - len(clock) - 4, 0), "middle")
        gap = " " * max(columns - width(left) - width(place) - len(clock) - 2, 1)
        pen = self._pen
        return f"{pen.paint(left, BOLD)}  {pen.paint(place, DIM)}{gap}{clock}"

    def _condition(self, look: Look, age: float, columns: int) -> str:
        if look.error is not None:
            text, colour = visible(f"no answer for {briefly(age)}: {look.error}"), RED
        elif age > _STALE:
            text, colour = f"last update {briefly(age)} ago", YELLOW
        else:
            text, colour = "" if look.taken else "asking the store …", DIM
        return self._pen.paint(clip(text, columns), colour)

    def _footer(self, rows: int, shown: int, columns: int) -> str:
        keys = "q quit" if self._screen.keys_from is not None else "Ctrl-C quits"
        if shown < rows:
            keys += f"  ↑ ↓ scroll  {self._first + 1:,}-{self._first + shown:,} of {rows:,}"
        return self._pen.paint(clip(keys, columns), DIM)


def _window(states: Sequence[LockState], first: int, room: int) -> tuple[Sequence[LockState], int]:
    """Returns the locks from the row `first` on, and how many rows of the first one are above it."""
    start = 0
    while start < len(states) and rows_of(states[start]) <= first:
        first -= rows_of(states[start])
        start += 1
    return states[start : start + room], first


def _aged(state: LockState, age: float) -> LockState:
    """Returns a lock as it is, by the clock alone, so many seconds after it was seen."""
    holders = (one._replace(remaining=max(one.remaining - age, 0.0)) for one in state.holders)
    return state._replace(holders=tuple(holders))


def _keys(typed: bytes) -> list[bytes]:
    """Returns the keys of which these bytes are."""
    keys = []
    while typed:
        size = 1
        if typed[:2] in (b"\033[", b"\033O"):
            size = 3
            while size < len(typed) and not 0x40 <= typed[size - 1] <= 0x7E:
                size += 1
        keys.append(typed[:size])
        typed = typed[size:]
    return keys
