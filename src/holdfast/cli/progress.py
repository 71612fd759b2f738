"""The line that tells a person at a terminal what `run` waits for, and how long already."""

from __future__ import annotations

import os
from collections.abc import Callable

from .. import LockError, Locks, LockState
from .attempt import holders_of, people_of
from .background import BackgroundCall
from .drawing import clip, width
from .durations import briefly
from .report import say, write_patiently
from .wakeups import now

_EVERY = 2.0
"""Seconds after which the store is asked again who holds the lock."""
_SPARE = len("^C") + 1
"""Columns at the end of the line that stay free for what the terminal echoes: a line that was broken
could not be taken away."""
_LEAST = 12
"""Columns to which a name or a holder may be shortened where both are told."""


class Progress:
    """The progress of one wait, on stderr, which is a terminal."""

    def __init__(self, locks: Locks, name: str, nudge: Callable[[], None], began: float) -> None:
        self._locks = locks
        self._name = name
        self._nudge = nudge
        self._began = began
        self._state: LockState | None = None
        self._call: BackgroundCall | None = None
        self._asked = 0.0
        self._said = False
        self._drawn = False

    def tick(self) -> None:
        """Asks who holds the lock, now and then, and tells of it."""
        if (self._call is None or self._call.ended()) and now() - self._asked >= _EVERY:
            self._asked = now()
            self._call = BackgroundCall(self._ask, self._nudge)
        if _may_draw():
            self._draw()
        elif not self._said and self._call is not None and self._call.ended():
            self._said = True
            say(self._words())

    def clear(self) -> None:
        """Takes the line away."""
        if self._drawn:
            self._drawn = False
            _write("\r\033[K")

    def _ask(self) -> None:
        try:
            self._state = self._locks.inspect(self._name)
        except LockError:
            self._state = None  # it may be known again the next time

    def _words(self) -> str:
        return f"waiting for {self._name!r}{holders_of(self._state)}"

    def _draw(self) -> None:
        waited = round(now() - self._began)
        tail = f" · {waited}s" if waited < 60 else f" · {briefly(waited)}"
        try:
            columns = os.get_terminal_size(2).columns or 80
        except OSError:
            return  # it has gone away
        self._drawn = True
        text = fitted(self._name, self._state, max(columns - len(tail) - _SPARE, 0))
        _write(f"\r{text}{tail}\033[K")


def fitted(name: str, state: LockState | None, room: int) -> str:
    """Returns the lock's name and its holders, with as much detail as there is `room` for."""
    wanted, people = repr(name), [who for who, _ in people_of(state)]
    long = f"holdfast: waiting for {wanted}"
    if not people:
        before = "waiting for "
        if width(long) <= room:
            return long
        return clip(before + clip(wanted, max(room - len(before), 1), "middle"), room)
    others = len(people) - 1
    first = people[0] + (f" and {others} other{'s' if others > 1 else ''}" if others else "")
    queue = f", {len(state.waiters)} waiting" if state and len(state.waiters) > 1 else ""
    for text in (
        f"{long}{holders_of(state)}{queue}",
        f"{long}, held by {', '.join(people)}{queue}",
        f"{long}, held by {first}{queue}",
        f"{long}, held by {first}",
        f"waiting for {wanted}, held by {first}",
        f"{wanted} is held by {first}",
    ):
        if width(text) <= room:
            return text
    between = " is held by "
    left = room - len(between)
    if left >= 2 * _LEAST:
        wanted = clip(wanted, max(left - width(first), left // 2), "middle")
        return wanted + between + clip(first, left - width(wanted), "middle")
    # Whoever waits knows the name, and not the holder.
    return clip("held by " + clip(first, max(room - len("held by "), 1), "middle"), room)


def _may_draw() -> bool:
    """Returns True if a line may be drawn over: on a terminal that can, and that is ours now."""
    if os.environ.get("TERM", "") in ("", "dumb"):
        return False
    try:
        return os.tcgetpgrp(2) == os.getpgrp()
    except OSError:
        return False


def _write(text: str) -> None:
    try:
        write_patiently(2, text.encode(errors="backslashreplace"), 0.0)
    except OSError:
        return  # nobody looks
