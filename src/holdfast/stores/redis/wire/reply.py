"""What a task awaits of a connection, and the way back into that task without a detour.

A future of asyncio hands its result to the event loop, which resumes the task in its next turn: one
more look at all descriptors for each answer. This one resumes the task from within the callback that
read the answer. That callback is called by the loop itself, so no other task is running then; anybody
else who settles it, who may be a task, does it by way of the loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from contextvars import Context
from typing import Any

_PENDING: Any = object()


class Reply:
    """Settled once, awaited by one task. It is a future as far as tasks are concerned."""

    __slots__ = ("_asyncio_future_blocking", "_callback", "_context", "_error", "_loop", "_value")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._asyncio_future_blocking = False
        self._callback: Callable[[Reply], object] | None = None
        self._context: Context | None = None
        self._value = _PENDING
        self._error: BaseException | None = None

    def __await__(self) -> Generator[Any, None, Any]:
        if self._value is _PENDING:
            self._asyncio_future_blocking = True
            yield self
        if self._error is not None:
            raise self._error
        return self._value

    # For the connection.

    @property
    def settled(self) -> bool:
        return self._value is not _PENDING

    def settle(self, value: Any) -> None:
        """Here it is. Only from a callback of the event loop."""
        if self._value is _PENDING:
            self._value = value
            callback = self._callback
            if callback is not None and self._context is not None:
                self._callback = None
                self._context.run(callback, self)

    def settle_soon(self, value: Any, error: BaseException | None = None) -> None:
        """The same from anywhere in the thread of the event loop."""
        if self._value is _PENDING:
            self._value = value
            self._error = error
            callback = self._callback
            if callback is not None:
                self._callback = None
                self._loop.call_soon(callback, self, context=self._context)

    # For tasks, which know futures by these.

    def add_done_callback(
        self, callback: Callable[[Reply], object], *, context: Context | None = None
    ) -> None:
        if self._value is _PENDING:
            self._callback, self._context = callback, context
        else:
            self._loop.call_soon(callback, self, context=context)

    def result(self) -> Any:
        if self._error is not None:
            raise self._error
        return self._value

    def cancel(self, msg: Any = None) -> bool:
        if self._value is not _PENDING:
            return False
        self.settle_soon(None, asyncio.CancelledError(*([] if msg is None else [msg])))
        return True
