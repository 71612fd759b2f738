"""The credentials that a redis-py client's provider gives, for connections of our own.

A provider may ask a service for a token, which takes as long as it takes. Blocking code asks it in its
own thread; in asyncio it is awaited where it can be, and otherwise asked in a thread of its own, which
is left behind if the caller does not wait for it any longer.
"""

from __future__ import annotations

from _thread import start_new_thread
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ...errors import BackendUnavailable
from ...interrupts import let_through

if TYPE_CHECKING:
    import asyncio


class ProviderLogin:
    """A credential provider. It is asked anew for each connection: its credentials may change."""

    def __init__(self, provider: Any) -> None:
        self._provider = provider

    def get(self) -> tuple[str, str]:
        """Returns user and password."""
        try:
            return _read(self._provider.get_credentials())
        except Exception as error:
            let_through(error)
            raise self._failed(error) from error

    async def get_soon(self) -> tuple[str, str]:
        """Returns user and password, without holding up the event loop."""
        try:
            if _can_be_awaited(self._provider):
                return _read(await self._provider.get_credentials_async())
            given = await _in_thread(self._provider.get_credentials)
            return _read(await given if hasattr(given, "__await__") else given)
        except Exception as error:
            raise self._failed(error) from error

    def _failed(self, error: Exception) -> BackendUnavailable:
        name = type(self._provider).__qualname__
        return BackendUnavailable(
            f"the credential provider of the client ({name}) failed: {type(error).__name__}"
        )


def as_text(value: Any) -> str:
    """Returns a user or a password as text: redis-py takes bytes, too."""
    return value.decode() if isinstance(value, bytes) else str(value or "")


def _read(credentials: Any) -> tuple[str, str]:
    given = tuple(credentials)
    return (as_text(given[0]), as_text(given[1])) if len(given) > 1 else ("", as_text(given[0]))


def _can_be_awaited(provider: Any) -> bool:
    """Returns whether the provider has a coroutine of its own: redis-py's default one blocks."""
    method = getattr(type(provider), "get_credentials_async", None)
    return method is not None and method.__module__ != "redis.credentials"


async def _in_thread(function: Callable[[], Any]) -> Any:
    """Returns the result of `function`, which a new thread calls."""
    import asyncio

    loop = asyncio.get_running_loop()
    result: asyncio.Future[Any] = loop.create_future()

    def settle(value: Any, error: Exception | None) -> None:
        if result.done():
            return  # the caller waits no more
        if error is None:
            result.set_result(value)
        else:
            result.set_exception(error)

    def call() -> None:
        value, error = None, None
        try:
            value = function()
        except Exception as raised:
            error = raised
        with suppress(RuntimeError):  # the loop is closed, and nobody waits
            loop.call_soon_threadsafe(settle, value, error)

    start_new_thread(call, ())  # no Thread, whose start can be interrupted
    return await result
