"""Calls that no signal handler interrupts: in asyncio, that is any callback of the event loop."""

from __future__ import annotations

from collections.abc import Callable


class Deputy:
    """The maker of calls: here the event loop itself, which `asyncio.run` keeps from interrupts."""

    def call(self, function: Callable[[], None]) -> None:
        """Calls `function`."""
        function()

    def close(self) -> None:
        pass
