"""Turns at what one caller at a time may do.

For a while this process may stand still, or the loop be held. Whoever waits for a turn could not have
been given it then, and that time does not count: it is counted by ticks, however late each of them is.
"""

from __future__ import annotations

import asyncio

TICK = 0.1
"""Seconds for which a tick counts at the most."""


class Turn:
    """A turn that one task has at a time, across calls to the store.

    `end` gives it back if the caller has it, and does nothing otherwise.
    """

    __slots__ = ("_line", "_lock", "_owner", "_ticked", "_ticker")

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._owner: object = None
        self._line: dict[asyncio.Timeout, float] = {}
        """The seconds for which each task in line still waits."""
        self._ticker: asyncio.TimerHandle | None = None
        self._ticked = 0.0
        """When the tick under way began, on the loop's clock."""

    async def take(self, within: float) -> bool:
        """Takes the turn; returns False if others have had it for all of `within` seconds.

        Seconds in which this process did not run do not count.
        """
        limit = asyncio.timeout(None if within > 0 else 0.0)
        try:
            async with limit:
                if within > 0:
                    self._stand_in_line(limit, within)
                await self._lock.acquire()
        except TimeoutError:
            return False
        finally:
            self._leave_line(limit)
        self._owner = asyncio.current_task()
        return True

    def end(self) -> None:
        """Gives the turn back, if the caller has it."""
        try:
            caller = asyncio.current_task()
        except RuntimeError:
            return  # the loop has ended, and with it all who could want the turn
        if self._owner is not None and self._owner is caller:
            self._owner = None
            self._lock.release()

    def _stand_in_line(self, limit: asyncio.Timeout, within: float) -> None:
        loop = asyncio.get_running_loop()
        if self._ticker is None:
            self._begin_tick(loop)
        # The tick that is under way will count as a whole.
        self._line[limit] = within + min(loop.time() - self._ticked, TICK)

    def _leave_line(self, limit: asyncio.Timeout) -> None:
        self._line.pop(limit, None)
        if not self._line and self._ticker is not None:
            self._ticker.cancel()
            self._ticker = None

    def _begin_tick(self, loop: asyncio.AbstractEventLoop) -> None:
        self._ticked = loop.time()
        self._ticker = loop.call_later(TICK, self._tick, loop)

    def _tick(self, loop: asyncio.AbstractEventLoop) -> None:
        for limit, left in list(self._line.items()):
            if left > TICK:
                self._line[limit] = left - TICK
            else:
                del self._line[limit]
                limit.reschedule(loop.time())
        self._begin_tick(loop)
