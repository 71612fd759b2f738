"""A backend whose calls are told to listeners: `locks.on_call`.

It takes the place of the session's backend as soon as somebody listens. Until then there is none, and
calls cost what they cost.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, cast

from ..events import Call, Listeners
from ..stores._async.contract import Backend

VERBS = (
    "open",
    "acquire",
    "acquire_all",
    "renew",
    "release",
    "release_all",
    "inspect",
    "list",
    "force_release",
    "amend",
    "detach",
    "adopt",
    "observe",
    "unobserve",
)
"""The verbs that are told. Not `wait`, which asks the store nothing."""


class TimedBackend:
    """A backend that tells listeners the verb, the duration and the error of each call."""

    _backend: Backend
    _listeners: Listeners[Call]

    def __init__(self, backend: Backend, listeners: Listeners[Call]) -> None:
        own = self.__dict__
        own["_backend"] = backend
        own["_listeners"] = listeners
        for verb in VERBS:
            if hasattr(backend, verb):  # several at once are not for every store
                own[verb] = self._timed(verb, getattr(backend, verb))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    def __setattr__(self, name: str, value: object) -> None:
        setattr(self._backend, name, value)  # such as `look`

    def _timed(
        self, verb: str, call: Callable[..., Awaitable[Any]]
    ) -> Callable[..., Awaitable[Any]]:
        listeners = self._listeners
        clock = self._backend.clock

        async def timed_call(*args: Any, **options: Any) -> Any:
            if not listeners:  # any more
                return await call(*args, **options)
            began = clock.now()
            try:
                answer = await call(*args, **options)
            except BaseException as error:
                listeners.tell(Call(verb, clock.now() - began, clock.wall(), error))
                raise
            listeners.tell(Call(verb, clock.now() - began, clock.wall()))
            return answer

        return timed_call


def timed(backend: Backend, listeners: Listeners[Call]) -> Backend:
    """Returns the backend as one whose calls are told to `listeners`."""
    if isinstance(backend, TimedBackend):
        return backend
    return cast(Backend, TimedBackend(backend, listeners))


def untimed(backend: Backend) -> Backend:
    """Returns the backend itself, which tells nobody."""
    return backend._backend if isinstance(backend, TimedBackend) else backend
