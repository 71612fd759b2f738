"""Events: what happened to a lease, told to listeners. Metrics and traces hang here.

    acquired         granted; `duration` is the time from the first request to the grant, `detail` is
                     `waited` if it had to queue
    waited           it had to queue, and was granted or gave up; `duration` is the time in the queue
    timed_out        not granted in the caller's time, which is `duration`; `detail` is `busy` for a
                     caller that did not wait, else `gave up`
    failed           not granted, because of the error that `detail` tells
    interrupted      not granted, because its task was cancelled, or a signal's handler raised
    renewed          the store confirmed it; `duration` is the round trip, `detail` is `late` if less
                     than half of the TTL was left
    uncertain        a renewal was not answered; `detail` says why
    lost             it ended under us; `duration` is how long it had been held, `detail` why
    released         given back; `duration` is how long it had been held
    release_failed   leaving `with` could not reach the store: the TTL will free it
    forced           somebody force-released the lock through this manager

Listeners are called where the event happens, in the thread or the event loop that noticed it, so
they should be quick, and may not be `async def`. What a listener raises is logged and otherwise
ignored: a broken metric must not break a lock.
"""

from __future__ import annotations

from collections.abc import Callable, Sized
from types import CoroutineType
from typing import NamedTuple, Protocol, TypeVar

from . import checks
from .errors import StaleToken
from .interrupts import is_from_handler


class Event(NamedTuple):
    """One thing that happened to a lease."""

    kind: str
    name: str
    owner: str
    token: int
    duration: float
    at: float
    """Seconds since the epoch."""
    detail: str = ""


class Call(NamedTuple):
    """One call to the store."""

    verb: str
    """The verb of the backend contract: `acquire`, `renew`, `release`, …"""
    duration: float
    at: float
    """Seconds since the epoch."""
    error: BaseException | None = None
    """The error with which it ended; a cancelled task's too."""


class Cancellable(Protocol):
    """A call that goes on by itself: a future, a task, a loop's handle, a timer."""

    def cancel(self) -> object:
        """Cancels it."""


Ignored = int | Sized | Cancellable | None
"""The type of what a callback returns, for type checkers. Nobody looks at it, so it may be whatever
functions return that are called for what they do; but no coroutine, which nobody would await."""
Told = TypeVar("Told")
Listener = Callable[[Event], Ignored]
CallListener = Callable[[Call], Ignored]
RefusalListener = Callable[[StaleToken], Ignored]


class Listeners(list[Callable[[Told], Ignored]]):
    """The listeners of one kind. Empty is the common case and costs one truth test."""

    __slots__ = ()

    def add(
        self, listener: Callable[[Told], Ignored], what: str = "on_event"
    ) -> Callable[[], None]:
        checks.callback(what, listener)
        self.append(listener)

        def remove() -> None:
            self[:] = [one for one in self if one is not listener]

        return remove

    def tell(self, told: Told) -> None:
        for listener in tuple(self):
            try:
                refuse_coroutine(listener(told))
            except BaseException as error:  # also one that exits: it must not take the keeper along
                if isinstance(error, KeyboardInterrupt) or is_from_handler(error):
                    raise
                report(f"a listener failed on {_title(told)}", error)


refusals: Listeners[StaleToken] = Listeners()
"""The listeners of all fences of this process: `holdfast.fences.on_refusal`."""


def _title(told: object) -> str:
    if isinstance(told, Event):
        return f"the event {told.kind!r} of {told.name!r}"
    return f"the call {told.verb!r}" if isinstance(told, Call) else repr(told)


def refuse_coroutine(result: object) -> None:
    """Raises if a callback returned a coroutine, which nobody would await."""
    if isinstance(result, CoroutineType):
        result.close()  # lest Python warn of it somewhere else
        raise TypeError("a callback returned a coroutine, which nobody awaits")


def warn(message: str) -> None:
    """Logs what a person should know, though the library goes on by itself."""
    import logging

    logging.getLogger("holdfast").warning(message)


def report(message: str, error: BaseException) -> None:
    """Logs an exception of a user's callback, which has nowhere to go and must not be lost."""
    import logging  # 20 ms that most programs never need

    logging.getLogger("holdfast").error(message, exc_info=error)
