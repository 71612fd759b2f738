"""The wire for asyncio: one connection for all tasks, made again when it is lost; and who waits.

The twin is `threads`: the same names and meanings.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Sequence
from math import inf
from typing import TYPE_CHECKING, Any, Protocol

from ...._runtime.aio import Signal
from ....clock import Clock
from ....errors import BackendUnavailable
from ....model import Granted
from ..address import Address
from .aio_connection import Connection
from .protocol import NO_CHANNEL, Late, Lost, bulk, check_greeting, greeting, pack, woken
from .reply import Reply
from .sockets import open_protocol

if TYPE_CHECKING:
    from ..._async.contract import Ticket

ASYNCHRONOUS = True
ATTEMPT = 1.0
"""Seconds for one attempt to reach a server that may not be the primary any more."""
PAUSE = 0.05
"""Seconds before it is asked again where the primary is."""
TICK = 0.1
"""Seconds between looks at those who listen; most are told before the first one."""


class Ear(Signal):
    """One who waits to be told something."""

    __slots__ = ("grant", "reply", "ticket", "timer", "told", "until")

    def __init__(self, ticket: Ticket) -> None:
        self.ticket = ticket
        self.told = False
        self.grant: Granted | None = None
        """What it was told, until it listens."""
        self.reply: Reply | None = None
        """While it listens."""
        self.until = inf
        self.timer: asyncio.TimerHandle | None = None

    def set(self) -> None:
        """By the engine, in the thread of the loop: it should ask."""
        if self.reply is None:
            self.told = True
        else:
            self.reply.settle_soon(None)

    def expire(self) -> None:
        self.timer = None
        if self.reply is not None:
            self.reply.settle(None)


class Finder(Protocol):
    """Knows where the primary is."""

    async def find(self, deadline: float) -> Address: ...

    def doubt(self) -> None:
        """It may be elsewhere by now: ask again next time."""
        ...


class Wire:
    def __init__(
        self, address: Address, clock: Clock, channels: bytes, finder: Finder | None = None
    ) -> None:
        self._address = address
        self._finder = finder
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._channel_name = channels + os.urandom(9).hex().encode()
        self._channel = bulk(self._channel_name)
        self._listens = False
        self._connection: Connection | None = None
        self._connecting = asyncio.Lock()
        self._ticking: asyncio.TimerHandle | None = None
        self.waiting: dict[str, Ear] = {}
        """By owner: who may be told something. Whoever asked has to `forget` it, unless it waits."""
        self._closed = False

    @property
    def address(self) -> Address:
        """Of the server, or of the one that was the primary last."""
        return self._address

    async def open(self, deadline: float) -> None:
        await self._connect(deadline)

    def call(self, command: bytes, deadline: float) -> Awaitable[Any]:
        """The server's answer, which may be an error it answered with. Raises `Lost` without one."""
        connection = self._connection
        if connection is None:
            return self._connect_and_call(command, deadline)
        return connection.send(command, deadline)

    def release(self, command: bytes, deadline: float) -> Awaitable[Any]:
        """As `call`, for a command that may wake others."""
        connection = self._connection
        if connection is None:
            return self._connect_and_call(command, deadline)
        if connection.channel is NO_CHANNEL:
            return connection.send(command, deadline)
        # Somebody else wanted what we had, and will again.
        return connection.send_after_ping(command, deadline)

    async def _connect_and_call(self, command: bytes, deadline: float) -> Any:
        return await (await self._connect(deadline)).send(command, deadline)

    async def batch(self, commands: Sequence[bytes], deadline: float) -> list[Any]:
        """All at once, in one round trip."""
        connection = self._connection or await self._connect(deadline)
        return await _all([connection.send(command, deadline) for command in commands])

    def ask(self, ticket: Ticket, command: bytes, owner: bytes, deadline: float) -> Awaitable[Any]:
        """Ask for a lock: `command`, the channel where the ticket will be told, `owner`.

        There is no channel until one is first needed: who never waits never pays for it. So this may
        answer "not in the queue" for a ticket that is to queue: then it is to be asked by `enqueue`.
        """
        connection = self._connection
        if connection is None:
            return self._connect_and_ask(ticket, command, owner, deadline)
        if not ticket.queue:
            return connection.send(command + NO_CHANNEL + owner, deadline)
        channel = connection.channel
        if channel is NO_CHANNEL:
            return connection.send(command + channel + owner, deadline)
        return connection.ask(ticket, command + channel + owner, deadline)

    async def _connect_and_ask(
        self, ticket: Ticket, command: bytes, owner: bytes, deadline: float
    ) -> Any:
        await self._connect(deadline)
        return await self.ask(ticket, command, owner, deadline)

    async def enqueue(self, ticket: Ticket, command: bytes, owner: bytes, deadline: float) -> Any:
        """The same, on a connection that has a channel."""
        connection = self._connection or await self._connect(deadline)
        await self._subscribe(connection, deadline)
        self.hear(ticket)
        return await connection.send(command + connection.channel + owner, deadline)

    def hear(self, ticket: Ticket) -> None:
        """Before its answer is read: the wake-up may come together with it."""
        ear = self.waiting[ticket.owner] = Ear(ticket)
        ticket.attach(ear)

    async def listen(self, ticket: Ticket, until: float | None) -> Granted | None:
        """Until this ticket is told something, or until `until`. With a grant it is forgotten."""
        ear = self.waiting.get(ticket.owner)
        if ear is None:
            return await ticket.wait(self._clock, until)
        if ear.told:
            ear.told = False
            grant, ear.grant = ear.grant, None
        else:
            ear.reply = Reply(self._loop)
            ear.until = inf if until is None else until
            if ear.until - self._clock.now() < 2 * TICK:
                self._time(ear)
            elif self._ticking is None:
                self._ticking = self._loop.call_later(TICK, self._tick)
            try:
                grant = await ear.reply
            finally:
                ear.reply = None
                if ear.timer is not None:
                    ear.timer.cancel()
                    ear.timer = None
        if grant is not None:
            self.forget(ticket.owner)
        return grant

    def _tick(self) -> None:
        """Set a timer for those whose time is nearly over; the others do without."""
        self._ticking = None
        soon = self._clock.now() + 2 * TICK
        listening = False
        for ear in self.waiting.values():
            if ear.reply is not None:
                listening = True
                if ear.until < soon and ear.timer is None:
                    self._time(ear)
        if listening:
            self._ticking = self._loop.call_later(TICK, self._tick)

    def _time(self, ear: Ear) -> None:
        left = max(0.0, ear.until - self._clock.now())
        ear.timer = self._loop.call_later(left, ear.expire)

    def forget(self, owner: str) -> None:
        """This owner does not wait any more."""
        ear = self.waiting.pop(owner, None)
        if ear is not None:
            ear.ticket.attach(None)
            ear.set()

    def turn_away(self) -> None:
        """This is not the server to talk to: next time a new connection may lead to another."""
        if self._connection is not None:
            self._connection.abort()

    async def close(self) -> None:
        self._closed = True
        for owner in list(self.waiting):
            self.forget(owner)
        if self._ticking is not None:
            self._ticking.cancel()
            self._ticking = None
        if self._connection is not None:
            self._connection.abort()
            await asyncio.sleep(0)  # the transport closes its socket in the loop's next turn

    async def _connect(self, deadline: float) -> Connection:
        try:
            # Those who wait for another's attempt do so by their own deadline.
            async with asyncio.timeout(max(0.0, deadline - self._clock.now())), self._connecting:
                if self._closed:
                    raise BackendUnavailable(f"this connection to {self._address} is closed")
                if self._connection is None:
                    made = await (
                        self._found(deadline) if self._finder else self._greeted(deadline)
                    )
                    if self._closed:  # meanwhile
                        made.abort()
                        raise BackendUnavailable(f"this connection to {self._address} is closed")
                    self._connection = made
                return self._connection
        except TimeoutError:
            raise BackendUnavailable(
                f"cannot reach the server at {self._address}: it did not answer in time"
            ) from None

    async def _found(self, deadline: float) -> Connection:
        """To wherever the primary is: asked, tried, and asked again while there is time."""
        assert self._finder is not None
        while True:
            self._address = await self._finder.find(deadline)
            try:
                try:
                    async with asyncio.timeout(ATTEMPT):
                        return await self._greeted(deadline)
                except TimeoutError:
                    raise BackendUnavailable(
                        f"cannot reach the server at {self._address}: it did not answer in time"
                    ) from None
            except BackendUnavailable:
                self._finder.doubt()
                if self._clock.now() + PAUSE >= deadline:
                    raise
                await asyncio.sleep(PAUSE)

    async def _greeted(self, deadline: float) -> Connection:
        connection = await self._reach(deadline)
        try:
            hello = connection.send_all(greeting(self._address), deadline)
            if self._listens:
                await self._subscribe(connection, deadline)
            check_greeting(await _all(hello), self._address)
        except BaseException:
            connection.abort()
            raise
        if connection.dead:
            raise self.broken()
        return connection

    async def _reach(self, deadline: float) -> Connection:
        address, loop = self._address, self._loop

        def make() -> Connection:
            return Connection(self, loop, self._clock)

        try:
            return await open_protocol(loop, make, address, deadline, self._clock.now)
        except TimeoutError:
            raise
        except OSError as error:
            raise BackendUnavailable(f"cannot reach the server at {address}: {error}") from error

    async def _subscribe(self, connection: Connection, deadline: float) -> None:
        if connection.channel != NO_CHANNEL:
            return
        reply = await connection.send(pack(b"SUBSCRIBE", self._channel_name), deadline)
        if isinstance(reply, Exception):
            raise BackendUnavailable(
                f"the server at {self._address} does not let us listen on channels: {reply}; a user "
                f"with an access list needs &{self._channel_name.rpartition(b':')[0].decode()}:*"
            )
        self._listens = True
        connection.listens_on(self._channel)

    # Called by the connection.

    def woken(self, message: bytes) -> None:
        owner, token = woken(message)
        ear = self.waiting.get(owner)
        if ear is not None:
            grant = Granted(token, ear.ticket.ttl, True) if token else None
            if ear.reply is not None:
                ear.reply.settle(grant)
            else:
                ear.told = True
                ear.grant = grant or ear.grant

    def lost(self, connection: Connection) -> None:
        if self._connection is connection:
            self._connection = None
            if self._finder is not None:
                self._finder.doubt()
            if not self._closed:
                # Wake-ups may be lost meanwhile: let everybody ask, which also connects again.
                for ear in list(self.waiting.values()):
                    ear.set()

    def broken(self) -> Lost:
        return Lost(f"the connection to the server at {self._address} broke")

    def late(self) -> Late:
        return Late(f"the server at {self._address} did not answer in time")


async def _all(replies: list[Reply]) -> list[Any]:
    """They come in order: to wait for the last is to be woken once."""
    if replies:
        await replies[-1]
    return [await reply for reply in replies]
