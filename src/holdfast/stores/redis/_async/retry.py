"""Retries: commands that are sent again where that is right.

A command that may be repeated without harm is sent again on a new connection when its own broke. One
that is only late is not: it stays in its place on its connection. A server that forgot the scripts gets
them again, and one that is loading its data is asked until it has.
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
from ..wire.protocol import Late, Lost
from ..wire.refusals import NOT_PRIMARY, TRANSIENT, code_of, refusal

Send = Callable[[], Awaitable[Any]]

TRIES = 3
"""Times that the scripts are loaded into a server that forgot them, for one command."""
RESTART_LIMIT = 2.0
"""Seconds for which a command is sent again while connections break, or cannot be made."""
FAILOVER_LIMIT = 60.0
"""Seconds, likewise, where a failover is to be expected: all the time that the call has."""
PAUSE = 0.02
"""Seconds before a command goes again to a server that was loading its data, busy, or gone."""


class AnyWire(Protocol):
    """A wire to one server (`Wire`), or to the servers of a cluster (`ClusterRouter`)."""

    @property
    def address(self) -> Address: ...
    @property
    def waiting(self) -> Container[str]: ...
    def open(self, deadline: float) -> Awaitable[None]: ...
    def call(self, command: bytes, deadline: float) -> Awaitable[Any]: ...
    def release(self, command: bytes, deadline: float) -> Awaitable[Any]: ...
    def batch(self, commands: Sequence[bytes], deadline: float) -> Awaitable[list[Any]]: ...
    def acquire(
        self, ticket: Ticket, command: bytes, owner: bytes, deadline: float
    ) -> Awaitable[Any]: ...
    def enqueue(
        self, ticket: Ticket, command: bytes, owner: bytes, deadline: float
    ) -> Awaitable[Any]: ...
    def listen(self, ticket: Ticket, until: float | None) -> Awaitable[Granted | None]: ...
    def forget(self, owner: str) -> None: ...
    @property
    def attentive(self) -> bool: ...
    def attend(self, owner: str) -> None: ...
    def heed(self, channel: bytes, recalled: Callable[[str], object]) -> None: ...
    def observe(self, ticket: Ticket, command: bytes, deadline: float) -> Awaitable[Any]: ...
    def unobserve(self, ticket: Ticket, command: bytes, deadline: float) -> Awaitable[Any]: ...
    def drop_connections(self) -> None: ...
    def close(self) -> Awaitable[None]: ...


class Retrier:
    """Sends commands on a wire, again where that is right."""

    def __init__(
        self,
        wire: AnyWire,
        clock: Clock,
        loads: Sequence[bytes],
        transient: frozenset[str] = TRANSIENT,
    ) -> None:
        """Takes `transient`, the refusals that end by themselves: some of them end with a failover."""
        self._wire = wire
        self._clock = clock
        self._loads = loads
        self._transient = transient
        self._restart_limit = RESTART_LIMIT if transient is TRANSIENT else FAILOVER_LIMIT

    async def call(self, command: bytes, deadline: float) -> Any:
        """Returns the reply to a command that may be repeated; raises if the server refused it."""

        async def send() -> Any:
            return await self._wire.call(command, deadline)

        reply = await self.send_persistently(send, deadline)
        if isinstance(reply, Exception):
            raise self.error_for(reply)
        return reply

    async def call_many(self, commands: Sequence[bytes], deadline: float) -> Sequence[Any]:
        """Returns the replies to many commands that may be repeated; refusals are among them."""

        async def send() -> Any:
            replies = await self._wire.batch(commands, deadline)
            return self.transient_among(replies) or replies

        replies = await self.send_persistently(send, deadline)
        if isinstance(replies, Exception):
            raise self.error_for(replies)
        return cast(Sequence[Any], replies)

    def transient_among(self, replies: Sequence[Any]) -> Exception | None:
        """Returns a refusal that ends by itself, if there is one: all are sent again, without harm."""
        for reply in replies:
            if isinstance(reply, Exception) and code_of(reply) in {"NOSCRIPT", *self._transient}:
                return reply
        return None

    async def send_persistently(self, send: Send, deadline: float) -> Any:
        """Returns the reply to what `send` sends, and may repeat; also a refusal that does not end."""
        try:
            reply = await send()
            return (
                await self.retry_refused(reply, send, deadline)
                if isinstance(reply, Exception)
                else reply
            )
        except Lost as error:
            return await self.retry_lost(error, send, deadline)

    async def retry_refused(self, reply: Any, send: Send, deadline: float) -> Any:
        """Sends again while the reply is a transient refusal; returns the first that is not.

        A server that forgot the scripts is given them, one that is loading its data is waited for.
        """
        tries = TRIES
        while isinstance(reply, Exception):
            code = code_of(reply)
            if code == "NOSCRIPT" and tries:
                tries -= 1
                await self.load_scripts(deadline)
            elif code in self._transient and self._clock.now() + PAUSE < deadline:
                if code in NOT_PRIMARY:
                    self._wire.drop_connections()
                await Signal(self._clock).wait(self._clock.now() + PAUSE)
            else:
                break
            try:
                reply = await send()
            except Lost as error:
                if error.broken or self._clock.now() + PAUSE < deadline:
                    raise
                # As below; but the command may still be carried out, and the caller has to know.
                raise Late(str(self.error_for(reply))) from error
            except BackendUnavailable:
                if self._clock.now() + PAUSE < deadline:
                    raise
                break  # the time is over, and the refusal says more than that
        return reply

    async def retry_lost(self, error: Lost, send: Send, deadline: float) -> Any:
        """Sends again on a new connection after `error`, while there is time; not if it is only late.

        A server that is restarting cannot be reached for a moment, which is waited for.
        """
        reason: BackendUnavailable = error
        until = min(deadline, self._clock.now() + self._restart_limit)
        while error.broken and self._clock.now() < until:
            try:
                return await self.retry_refused(await send(), send, deadline)
            except Lost as another:
                reason = error = another
            except BackendUnavailable as unreachable:
                reason = unreachable
            await Signal(self._clock).wait(min(until, self._clock.now() + PAUSE))
        raise reason

    def error_for(self, error: Exception) -> BackendUnavailable | ConfigError:
        """Returns the exception to raise for a refusal."""
        if code_of(error) in NOT_PRIMARY:
            self._wire.drop_connections()
        return refusal(error, self._wire.address)

    async def load_scripts(self, deadline: float) -> None:
        """Loads the scripts into the server, or leaves that to a retry while it loads its data."""
        for reply in await self._wire.batch(self._loads, deadline):
            if isinstance(reply, Exception) and code_of(reply) not in self._transient:
                raise self.error_for(reply)
