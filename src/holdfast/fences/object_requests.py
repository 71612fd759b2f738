"""The requests of an `ObjectFence`, and how they reach a store by obstore, in both worlds.

Steps yield a `Request` and are sent what it brought, so that they are written once for both.
"""

from __future__ import annotations

import random
import time
from collections.abc import Generator
from typing import Any, NamedTuple, TypeVar

from .fence import not_installed

FIRST_PAUSE, LAST_PAUSE = 0.005, 0.2

Result = TypeVar("Result")


class Request(NamedTuple):
    """One request: `get`, `head`, `put`, `delete`, or `sleep`."""

    verb: str
    args: tuple[Any, ...] = ()
    options: dict[str, Any] = {}  # noqa: RUF012  never changed


Steps = Generator[Request, Any, Result]


def pause(attempt: int) -> Request:
    """Returns the pause before the next attempt."""
    return Request("sleep", (min(FIRST_PAUSE * 2**attempt, LAST_PAUSE) * random.random(),))


class ObjectRequests:
    """The way to one store of obstore's."""

    def __init__(self, obstore: Any, store: Any) -> None:
        self._obstore = obstore
        self._store = store

    def run(self, steps: Steps[Result]) -> Result:
        try:
            request = next(steps)
            while True:
                try:
                    answer = self._perform(request)
                except Exception as error:
                    answer = self._outcome(request, error)
                # An error goes through the steps too, for what they have to clean up.
                failed = isinstance(answer, _Failed)
                request = steps.throw(answer.error) if failed else steps.send(answer)
        except StopIteration as stop:
            result: Result = stop.value
            return result

    async def run_async(self, steps: Steps[Result]) -> Result:
        try:
            request = next(steps)
            while True:
                try:
                    answer = await self._perform_async(request)
                except Exception as error:
                    answer = self._outcome(request, error)
                failed = isinstance(answer, _Failed)
                request = steps.throw(answer.error) if failed else steps.send(answer)
        except StopIteration as stop:
            result: Result = stop.value
            return result

    def _perform(self, request: Request) -> Any:
        obstore, store = self._obstore, self._store
        if request.verb == "sleep":
            time.sleep(*request.args)
        elif request.verb == "get":
            return obstore.get(store, *request.args).bytes()
        elif request.verb == "head":
            return obstore.get(store, *request.args, options={"head": True})
        elif request.verb == "put":
            obstore.put(store, *request.args, **request.options)
        else:
            obstore.delete(store, *request.args)
        return None

    async def _perform_async(self, request: Request) -> Any:
        from asyncio import sleep

        obstore, store = self._obstore, self._store
        if request.verb == "sleep":
            await sleep(*request.args)
        elif request.verb == "get":
            return await (await obstore.get_async(store, *request.args)).bytes_async()
        elif request.verb == "head":
            return await obstore.get_async(store, *request.args, options={"head": True})
        elif request.verb == "put":
            await obstore.put_async(store, *request.args, **request.options)
        else:
            await obstore.delete_async(store, *request.args)
        return None

    def _outcome(self, request: Request, error: Exception) -> Any:
        """Returns the meaning of an error for the steps."""
        name = type(error).__name__
        missing = isinstance(error, FileNotFoundError)
        if missing and request.verb in ("head", "get", "delete"):
            return None
        if request.verb == "put":
            if missing or name in ("AlreadyExistsError", "PreconditionError"):
                return error  # not the object that was read any more
            if name in ("NotSupportedError", "NotImplementedError"):
                why = f"no conditional put: {error}"
                return _Failed(not_installed(type(self._store).__name__, why))
        return _Failed(error)


class _Failed(NamedTuple):
    error: Exception
