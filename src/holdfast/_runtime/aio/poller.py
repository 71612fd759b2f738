"""Calls when a descriptor becomes readable, made by the event loop."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

from .signal import Signal


class Poller:
    """The caller of functions whose descriptor has become readable, or whose other end hung up."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._watched: set[int] = set()

    def watch(self, fd: int, ready: Callable[[], object]) -> None:
        """Calls `ready` whenever `fd`, which is ours from now on, is readable."""
        self._watched.add(fd)
        self._loop.add_reader(fd, ready)

    def unwatch(self, fd: int) -> bool:
        """Stops watching `fd`, and closes it; returns False if it is not watched."""
        if fd not in self._watched:
            return False
        self._watched.discard(fd)
        if not self._loop.is_closed():
            self._loop.remove_reader(fd)
        os.close(fd)
        return True

    async def attend(self, signal: Signal, until: float | None) -> bool:
        """Waits for `signal` as `Signal.wait` does; the loop serves the descriptors."""
        return await signal.wait(until)

    def close(self) -> None:
        """Closes all descriptors."""
        for fd in list(self._watched):
            self.unwatch(fd)
