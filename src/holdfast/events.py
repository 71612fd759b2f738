"""Events: what happened to a lease, told to listeners. Metrics and traces hang here.

    acquired         granted; `duration` is the time from the first request to the grant
    waited           it had to queue, and was granted or gave up; `duration` is the time in the queue
    renewed          the store confirmed it; `duration` is the round trip
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

from collections.abc import Callable
from types import CoroutineType
from typing import NamedTuple

from . import checks


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


Ignored = bool | None
"""The type of what a callback returns, for type checkers: nobody looks at it, so it is no coroutine."""
Listener = Callable[[Event], Ignored]


class Listeners(list[Listener]):
    """The listeners of one manager. Empty is the common case and costs one truth test."""

    __slots__ = ()

    def add(self, listener: Listener) -> Callable[[], None]:
        checks.callback("on_event", listener)
        self.append(listener)

        def remove() -> None:
            self[:] = [one for one in self if one is not listener]

        return remove

    def tell(self, event: Event) -> None:
        for listener in tuple(self):
            try:
                refuse_coroutine(listener(event))
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # also one that exits: it must not take the keeper along
                report(f"a listener failed on the event {event.kind!r} of {event.name!r}", error)


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
