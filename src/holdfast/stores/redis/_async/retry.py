"""Asking a Redis server, and asking again where that is right.

What may be repeated without harm is asked again on a new connection when the one it was sent on broke.
What is only late is not: it stays in its place on its connection. A server that forgot the scripts gets
them again; one that loads its data is asked until it has.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Container, Sequence
from typing import Any, Protocol, cast

from ...._runtime.aio import Signal
from ....clock import Clock
from ....errors import BackendUnavailable, ConfigError
from ....model import Granted
from ..._async.contract import Ticket
from ..address import Address
from ..wire.protocol import PASSING, TURNED, Late, Lost, code_of, refusal

Send = Callable[[], Awaitable[Any]]

TRIES = 3
"""How often the scripts are brought to a server that forgot them, for one command."""
RESTART = 2.0
"""Seconds for which connections may break under a command, or not be had, before that is given up."""
FAILOVER = 60.0
"""The same where a failover is to be expected: all the time that the call has."""
PAUSE = 0.02
"""Seconds before a server is asked again that was loading its data, busy, or gone."""


class Link(Protocol):
    """The way to a server, or to several: a `Wire`, or what looks like one."""

    @property
    def address(self) -> Address: ...
    @property
    def waiting(self) -> Container[str]: ...
    def open(self, deadline: float) -> Awaitable[None]: ...
    def call(self, command: bytes, deadline: float) -> Awaitable[Any]: ...
    def release(self, command: bytes, deadline: float) -> Awaitable[Any]: ...
    def batch(self, commands: Sequence[bytes], deadline: float) -> Awaitable[list[Any]]: ...
    def ask(
        self, ticket: Ticket, command: bytes, owner: bytes, deadline: float
    ) -> Awaitable[Any]: ...
    def enqueue(
        self, ticket: Ticket, command: bytes, owner: bytes, deadline: float
    ) -> Awaitable[Any]: ...
    def listen(self, ticket: Ticket, until: float | None) -> Awaitable[Granted | None]: ...
    def forget(self, owner: str) -> None: ...
    def turn_away(self) -> None: ...
    def close(self) -> Awaitable[None]: ...


class Calls:
    def __init__(
        self,
        wire: Link,
        clock: Clock,
        loads: Sequence[bytes],
        passing: frozenset[str] = PASSING,
    ) -> None:
        """`passing`: refusals that end by themselves. With more than usual, failovers do, too."""
        self._wire = wire
        self._clock = clock
        self._loads = loads
        self._passing = passing
        self._restart = RESTART if passing is PASSING else FAILOVER

    async def call(self, command: bytes, deadline: float) -> Any:
        """For what may be repeated without harm. Raises for an error that the server answered."""

        async def send() -> Any:
            return await self._wire.call(command, deadline)

        reply = await self._persistently(send, deadline)
        if isinstance(reply, Exception):
            raise self.refused(reply)
        return reply

    async def many(self, commands: Sequence[bytes], deadline: float) -> Sequence[Any]:
        """The same for many at once; an error that the server answered is among the answers."""

        async def send() -> Any:
            replies = await self._wire.batch(commands, deadline)
            for reply in replies:
                if isinstance(reply, Exception) and code_of(reply) in {"NOSCRIPT", *self._passing}:
                    return reply  # for all of them: to repeat one does no harm
            return replies

        replies = await self._persistently(send, deadline)
        if isinstance(replies, Exception):
            raise self.refused(replies)
        return cast(Sequence[Any], replies)

    async def _persistently(self, send: Send, deadline: float) -> Any:
        try:
            reply = await send()
            return (
                await self.settled(reply, send, deadline) if isinstance(reply, Exception) else reply
            )
        except Lost as error:
            return await self.again(error, send, deadline)

    async def settled(self, reply: Any, send: Send, deadline: float) -> Any:
        """An answer that is no passing refusal: scripts that the server forgot, or data it loads."""
        tries = TRIES
        while isinstance(reply, Exception):
            code = code_of(reply)
            if code == "NOSCRIPT" and tries:
                tries -= 1
                await self.load(deadline)
            elif code in self._passing and self._clock.now() + PAUSE < deadline:
                if code in TURNED:
                    self._wire.turn_away()
                await Signal(self._clock).wait(self._clock.now() + PAUSE)
            else:
                break
            try:
                reply = await send()
            except Lost as error:
                if error.broken or self._clock.now() + PAUSE < deadline:
                    raise
                # As below; but it may still be carried out, which whoever asked has to know.
                raise Late(str(self.refused(reply))) from error
            except BackendUnavailable:
                if self._clock.now() + PAUSE < deadline:
                    raise
                break  # the time is over, and the refusal says more
        return reply

    async def again(self, error: Lost, send: Send, deadline: float) -> Any:
        """Its connection broke: on a new one, while there is time. What is only late is not asked.

        A server that broke it by restarting cannot be reached for a moment: that is waited for.
        """
        reason: BackendUnavailable = error
        until = min(deadline, self._clock.now() + self._restart)
        while error.broken and self._clock.now() < until:
            try:
                return await self.settled(await send(), send, deadline)
            except Lost as another:
                reason = error = another
            except BackendUnavailable as unreachable:
                reason = unreachable
            await Signal(self._clock).wait(min(until, self._clock.now() + PAUSE))
        raise reason

    def refused(self, error: Exception) -> BackendUnavailable | ConfigError:
        """What to raise for it."""
        if code_of(error) in TURNED:
            self._wire.turn_away()
        return refusal(error, self._wire.address)

    async def load(self, deadline: float) -> None:
        """Bring the scripts. A server that is loading its data gets them when it is asked again."""
        for reply in await self._wire.batch(self._loads, deadline):
            if isinstance(reply, Exception) and code_of(reply) not in self._passing:
                raise self.refused(reply)
