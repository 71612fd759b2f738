"""A line between the engine and a real backend, on which every fault can be had exactly."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from holdfast import aio as holdfast
from holdfast.model import Granted
from worlds.aio import eventually, pause

ALL = {"acquire", "renew", "release"}


class Line:
    """Stands between the engine and a backend: cut, or losing what comes back."""

    def __init__(self, backend: Any) -> None:
        self._backend = backend
        self.cut = False
        self.refuse: set[str] = set()
        """Verbs that are not carried out."""
        self.lose: set[str] = set()
        """Verbs that are carried out, and whose answers do not arrive."""
        self.one_by_one = False
        """Several locks cannot be asked for in one step."""
        self.delay = 0.0
        self.late = False
        """Grants arrive when they are over."""
        self.deaf = False
        """Wake-ups do not arrive."""
        self.silent: set[str] = set()
        """Verbs that are not answered: each call would take all the time that it is given."""
        self.given: list[tuple[str, float]] = []
        """For each such call, its verb and those seconds."""
        self.slow = False
        """Each such call does take all that time."""

    def __getattr__(self, name: str) -> Any:
        verb = getattr(self._backend, name)
        if name != "acquire_all":  # which not every backend has
            return verb
        if self.one_by_one:
            raise AttributeError(name)

        async def acquire_all(*args: Any) -> Any:
            return await self._call("acquire", args, name)

        return acquire_all

    async def acquire(self, *args: Any) -> Any:
        return await self._call("acquire", args)

    async def renew(self, *args: Any) -> Any:
        return await self._call("renew", args)

    async def release(self, *args: Any) -> Any:
        return await self._call("release", args)

    async def amend(self, *args: Any) -> Any:
        return await self._call("amend", args)

    async def detach(self, *args: Any) -> Any:
        return await self._call("detach", args)

    async def _call(self, name: str, args: Any, verb: str = "") -> Any:
        if self.cut or name in self.refuse:
            raise holdfast.BackendUnavailable("the line is cut")
        if name in self.silent:
            given = args[-1] - self.clock.now()
            self.given.append((name, given))
            if self.slow:
                await pause(max(given, 0.0))
            raise holdfast.BackendUnavailable("no answer in time")
        answer = await getattr(self._backend, verb or name)(*args)
        if name in self.lose:
            self.lose.discard(name)
            raise holdfast.BackendUnavailable("the answer was lost")
        if self.delay:
            await pause(self.delay)
        if self.late and isinstance(answer, Granted):
            await pause(answer.ttl)
        return answer

    async def wait(self, ticket: Any, until: float | None) -> Any:
        while True:
            grant = await self._backend.wait(ticket, until)
            if not self.deaf or grant is None:
                return grant


class Scene:
    def __init__(self, locks: holdfast.Locks, line: Line, others: holdfast.Locks) -> None:
        self.locks = locks
        self.line = line
        self.others = others
        self.events: list[holdfast.Event] = []
        locks.on_event(self.events.append)

    def kinds(self) -> list[str]:
        return [event.kind for event in self.events]

    async def waiters(self, number: int) -> None:
        async def there() -> bool:
            return len((await self.others.inspect("x")).waiters) == number

        await eventually(there)

    async def look_at(self, lease: holdfast.Lease) -> None:
        """Have it renewed now, rather than when it is due."""
        (await self.locks._session()).look_at([lease.owner])


@asynccontextmanager
async def scene(url: str, **options: Any) -> AsyncIterator[Scene]:
    async with holdfast.connect(url, **options) as locks, holdfast.connect(url) as others:
        session = await locks._session()
        line = Line(session.backend)
        session.backend = line
        yield Scene(locks, line, others)
        line.cut = False
