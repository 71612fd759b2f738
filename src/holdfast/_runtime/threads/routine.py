"""Work beside the caller, calls that block, and clean-up: mostly what a thread simply does."""

from __future__ import annotations

from _thread import get_ident
from collections.abc import Callable
from threading import Lock, Thread
from typing import TypeVar

from ...errors import LockError

Result = TypeVar("Result")

Mutex = Lock
"""The mutex to hold across calls to the store; across plain code a `threading.Lock` will do."""


def enter(mutex: Lock, within: float) -> bool:
    """Acquires `mutex`; returns False if others have held it for all of `within` seconds."""
    return mutex.acquire(timeout=max(within, 0.0))


def here() -> object:
    """Returns the place that a session belongs to: an event loop there, the whole process here."""
    return None


class Worker:
    """The runner of blocking calls: here the caller's own thread, which may block."""

    def __init__(self, name: str) -> None:
        pass

    def call(self, function: Callable[..., Result], *args: object) -> Result:
        return function(*args)

    call_ahead = call

    def close(self) -> None:
        pass


class Routine:
    """Work that goes on beside the caller until it returns: a thread here, a task there."""

    def __init__(self, work: Callable[[], None], name: str) -> None:
        self._thread = Thread(target=work, name=name, daemon=True)
        self._thread.start()

    def join(self) -> None:
        """Waits for the end of the work, unless the caller is the work itself."""
        if self._thread.ident != get_ident():
            self._thread.join()


def finish(cleanup: Callable[[], None], grace: float) -> None:
    """Runs `cleanup` whatever happens to the caller. A thread cannot be cancelled: it simply runs."""
    try:
        cleanup()
    except LockError:
        return  # clean-ups tell their failures by events; what a signal's handler raises comes out


class Interrupt:
    """The interruption of a body whose lease is lost: there is no safe one for a thread, so blocking
    code asks its lease instead."""

    works = False

    __slots__ = ()

    def fire(self) -> None:
        pass

    def settle(self, error: BaseException | None) -> bool:
        return False
