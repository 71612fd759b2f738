"""What goes on for long ends with its token: waits and streams of a caller who would not be let in now.

Requests that are over soon are judged when they begin. Those that last are looked at each second, while
there are any, and their connections are cut: to the service, their clients have gone away.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

EVERY = 1.0
"""Seconds between two looks."""


class Revocation:
    """The connections to cut, each with the question whether its caller would still be let in."""

    def __init__(self) -> None:
        self._lasting: dict[int, tuple[Callable[[], bool], Callable[[], None]]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._lasting)

    def watch(self, key: int, lasts: Callable[[], bool], cut: Callable[[], None]) -> None:
        """Calls `cut` as soon as `lasts()` is seen to be False, unless `forget` comes first."""
        self._lasting[key] = (lasts, cut)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(EVERY, self._look)

    def forget(self, key: int) -> None:
        """Ends what `watch` began."""
        self._lasting.pop(key, None)
        if not self._lasting and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self._timer = None
        for key, (lasts, cut) in list(self._lasting.items()):
            if not lasts():
                del self._lasting[key]
                cut()
        if self._lasting:
            self._timer = asyncio.get_running_loop().call_later(EVERY, self._look)
