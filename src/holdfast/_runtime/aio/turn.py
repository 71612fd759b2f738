"""Turns at what one caller at a time may do."""

from __future__ import annotations

import asyncio


class Turn:
    """A turn that one task has at a time, across calls to the store.

    `end` gives it back if the caller has it, and does nothing otherwise.
    """

    __slots__ = ("_lock", "_owner")

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._owner: object = None

    async def take(self, within: float) -> bool:
        """Takes the turn; returns False if others have had it for all of `within` seconds."""
        try:
            async with asyncio.timeout(within):
                await self._lock.acquire()
        except TimeoutError:
            return False
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
