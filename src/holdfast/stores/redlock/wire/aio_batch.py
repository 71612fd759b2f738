"""Several requests to one node in one command, in asyncio.

This is here for one figure, 64 coroutines on five nodes: without it a pair takes a fifth longer.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ....errors import BackendUnavailable
from ...redis.wire.reply import Reply
from ..commands import BatchItem
from .aio_fan_out import FanOut

LARGEST = 32
"""Requests in one command. The server replies to none of them before it has dealt with all."""


class Batch(Reply):
    """The reply to several requests that go to one node in one command: a list, or one error."""

    __slots__ = (
        "_arguments",
        "_command",
        "_fan_outs",
        "_index",
        "_keys",
        "_last",
        "_position",
        "_settled",
        "_untold",
    )

    def __init__(self, index: int, item: BatchItem, fan_out: FanOut, position: int) -> None:
        self._loop = fan_out._loop
        self._index = index
        self._command = item.command
        self._last = item.last[index]
        self._keys = [item.keys]
        self._arguments = [item.arguments]
        self._fan_outs = [fan_out]
        self._position = position
        """The place of the command among those that are not sent yet."""
        self._settled = False
        self._untold: Iterator[tuple[FanOut, Any]] = iter(())
        """The fan-outs that have not been told, each with its reply."""

    @property
    def settled(self) -> bool:
        return self._settled

    def add(self, item: BatchItem, fan_out: FanOut) -> bool:
        """Takes one more request, and returns True; returns False if it is of another kind."""
        if item.command is not self._command or item.last[self._index] != self._last:
            return False
        self._keys.append(item.keys)
        self._arguments.append(item.arguments)
        self._fan_outs.append(fan_out)
        return True

    def is_full(self) -> bool:
        """Returns whether the batch should be sent."""
        return len(self._fan_outs) >= LARGEST

    def write_into(self, unsent: list[bytes]) -> None:
        """Puts the command in the place of its first request, which is right as long as it is alone."""
        if len(self._fan_outs) > 1:
            unsent[self._position] = self._command.pack(self._keys, self._arguments, self._last)

    def settle(self, value: Any) -> None:
        """Passes each fan-out its reply. Only from a callback of the event loop."""
        if self._settled:
            return
        self._settled = True
        if type(value) is not list or len(self._fan_outs) == 1:  # one reply; or an error, for all
            value = [value] * len(self._fan_outs)
        self._untold = zip(self._fan_outs, value, strict=True)
        self._tell()

    def _tell(self) -> None:
        try:
            for fan_out, reply in self._untold:
                fan_out.receive(self._index, reply)
        except BaseException:
            # A task raised what ends the event loop. If that goes on, so does the rest.
            self._loop.call_soon(self._tell)
            raise

    def settle_soon(self, value: Any, error: BaseException | None = None) -> None:
        """Passes all fan-outs the error, from anywhere in the thread of the event loop."""
        if not self._settled:
            self._settled = True
            reason = error if isinstance(error, Exception) else BackendUnavailable(repr(value))
            for fan_out in self._fan_outs:
                fan_out.receive_soon(self._index, reason)
