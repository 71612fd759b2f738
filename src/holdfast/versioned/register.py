"""The base of all registers: get, put on a condition, and the loop around them.

Steps yield requests and are sent answers, so that they are written once for both worlds. A request is
a call without arguments; in asyncio its result is awaited if it can be.
"""

from __future__ import annotations

import random
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator
from functools import partial
from inspect import isawaitable
from typing import Any, NamedTuple, TypeVar

from .. import checks
from ..errors import ConfigError, LockError

Result = TypeVar("Result")
Steps = Generator[Callable[[], Any] | float, Any, Result]
"""Yields a request, or a number of seconds to sleep."""

FIRST_PAUSE, LAST_PAUSE = 0.001, 0.1


class Versioned(NamedTuple):
    """A value, and the version it had when it was read; both None if there is none."""

    value: Any
    version: Any


class Conflict(LockError):
    """Raised when a value is not of the expected version any more; nothing was written.

    `key` names the value. Read it again, and decide again: that is what `update` does.
    """

    def __init__(self, key: str, detail: str) -> None:
        super().__init__(f"{key!r} was not written: {detail}")
        self.key = key


class Register(ABC):
    """Values by key. The verbs return coroutines where `asynchronous` is set."""

    asynchronous = False

    def get(self, key: Any) -> Any:
        """Returns the value and its version, as `Versioned`."""
        return self._run(self._get(key))

    def put(self, key: Any, value: Any, version: Any) -> Any:
        """Writes the value if it is still of that version; returns the new version.

        None means that there must be no value yet. Raises `Conflict` otherwise.
        """
        return self._run(self._put(key, value, version))

    def update(
        self, key: Any, change: Callable[[Any], Any], *, timeout: float | None = 10.0
    ) -> Any:
        """Writes `change(value)`, and does it again as often as somebody else was quicker.

        `change` is given None where there is no value yet, may be called several times, and in
        asyncio may be a coroutine function. Returns what was written, with its version. Raises
        `Conflict` if it did not succeed within `timeout` seconds.
        """
        if not callable(change):
            raise ConfigError(f"change must be callable, not {type(change).__name__}")
        return self._run(self._update(key, change, checks.timeout(timeout)))

    def _update(
        self, key: Any, change: Callable[[Any], Any], timeout: float | None
    ) -> Steps[Versioned]:
        until = None if timeout is None else time.monotonic() + timeout
        pause = FIRST_PAUSE
        while True:
            try:
                seen = yield from self._get(key)
            except Conflict as error:
                conflict = error
            else:
                value = yield partial(change, seen.value)
                try:
                    version = yield from self._put(key, value, seen.version)
                    return Versioned(value, version)
                except Conflict as error:
                    conflict = error
            if until is not None and time.monotonic() >= until:
                raise conflict
            yield pause * random.random()
            pause = min(pause * 2, LAST_PAUSE)

    @abstractmethod
    def _get(self, key: Any) -> Steps[Versioned]: ...

    @abstractmethod
    def _put(self, key: Any, value: Any, version: Any) -> Steps[Any]:
        """Returns the new version, or raises `Conflict`."""

    def _run(self, steps: Steps[Any]) -> Any:
        return run_async(steps) if self.asynchronous else run(steps)


def data(value: object) -> bytes:
    """Returns the bytes to write to a file or an object. Not `bytes(5)`, which is five zeros."""
    if isinstance(value, str):
        return value.encode()
    if not isinstance(value, bytes | bytearray | memoryview):
        raise ConfigError(f"the value must be bytes or str, not {type(value).__name__}")
    return bytes(value)


def run(steps: Steps[Result]) -> Result:
    try:
        request = next(steps)
        while True:
            try:
                if isinstance(request, float):
                    request = partial(time.sleep, request)
                answer = request()
            except BaseException as error:  # an interrupt, too, has steps that come after it
                request = steps.throw(error)
            else:
                request = steps.send(answer)
    except StopIteration as stop:
        result: Result = stop.value
        return result


async def run_async(steps: Steps[Result]) -> Result:
    from asyncio import sleep

    try:
        request = next(steps)
        while True:
            try:
                answer = sleep(request) if isinstance(request, float) else request()
                if isawaitable(answer):
                    answer = await answer
            except BaseException as error:  # a cancellation, too, has steps that come after it
                request = steps.throw(error)
            else:
                request = steps.send(answer)
    except StopIteration as stop:
        result: Result = stop.value
        return result
