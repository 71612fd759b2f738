"""The wire for asyncio: one connection, on which the commands of all tasks are pipelined.

Answers come in the order of the commands, wake-ups between them. A task that is cancelled leaves its
command where it is, so whatever is sent behind it takes effect after it. The twin is `threads`: the
same names and meanings.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING, Any, Protocol

from .._runtime.aio import Signal
from ..clock import Clock
from ..errors import BackendUnavailable
from ..model import Granted
from .address import Address
from .protocol import (
    LONG,
    NO_CHANNEL,
    NOTHING,
    PING,
    Late,
    Lost,
    bulk,
    check_greeting,
    greeting,
    handed,
    pack,
    wake_up,
    woken,
)
from .reply import Reply

if TYPE_CHECKING:
    from .._async.contract import Ticket

ASYNCHRONOUS = True
PATIENCE = 1.0
"""Seconds for which an answer may be overdue before its connection is given up."""

ATTEMPT = 1.0
"""Seconds for one attempt to reach a server that may not be the primary any more."""
PAUSE = 0.05
"""Seconds before it is asked again where the primary is."""
TOGETHER = 128
"""Commands that go out in one write. More would leave the server idle while they are collected."""
CHUNK = 65536
_tuple: Callable[..., Any] = tuple.__new__
"""Makes a named tuple without its own constructor, which is written in Python."""
TICK = 0.1
"""Seconds between looks at those who listen; most are told before the first one."""
PATIENT = 1.0
"""Seconds that one must be ready to wait for, to be told of its place in the queue a moment later."""


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

    async def find(self, by: float) -> Address: ...

    def doubt(self) -> None:
        """It may be elsewhere by now: ask again next time."""
        ...


class Nobody(Reply):
    """Takes the answer to a command that was only sent along."""

    __slots__ = ()

    def __init__(self) -> None:
        pass

    def settle(self, value: Any) -> None:
        pass

    def settle_soon(self, value: Any, error: BaseException | None = None) -> None:
        pass


NOBODY = Nobody()


class Connection(asyncio.BufferedProtocol):
    def __init__(self, wire: Wire, loop: asyncio.AbstractEventLoop, clock: Clock) -> None:
        from hiredis import ProtocolError, PushNotification, Reader

        self._wire = wire
        self._loop = loop
        self._now = clock.now
        reader = Reader(notEnoughData=NOTHING)
        self._feed: Callable[..., None] = reader.feed
        self._gets = reader.gets
        # Read into, again and again: for each read the loop would otherwise get a quarter of a
        # megabyte from the system, and give it back.
        self._buffer = bytearray(CHUNK)
        self._view = memoryview(self._buffer)
        self._push = PushNotification
        self._nonsense: type[Exception] = ProtocolError
        self._pending: deque[tuple[Reply, float]] = deque()
        self._unsent: list[bytes] = []
        self._transport: asyncio.Transport | None = None
        self._write: Callable[[bytes], None]
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due = inf
        self._asked: Ticket | None = None
        """Whose question is the only one under way, if it may be answered by a wake-up as well."""
        self._socket: socket.socket | None = None
        """Where the system can be told for how many bytes to wait."""
        self._least = 1
        self._hurry: asyncio.TimerHandle | None = None
        self.channel = NO_CHANNEL
        self.dead = False

    def send(self, command: bytes, by: float, reply: Reply | None = None) -> Reply:
        """Answered in its turn. What is sent while others wait for answers goes out together."""
        if reply is None:
            reply = Reply(self._loop)
        if self._least != 1:
            self._set_least(1)
        pending, unsent = self._pending, self._unsent
        if unsent:
            unsent.append(command)
            if len(unsent) >= TOGETHER:
                self._flush()
        elif self.dead:
            reply.settle_soon(None, self._wire.broken())
            return reply
        elif pending:
            unsent.append(command)
            self._loop.call_soon(self._flush)
        else:
            self._write(command)
        pending.append((reply, by))
        if by < self._timer_due:
            self._arm(by)
        return reply

    def send_after_ping(self, command: bytes, by: float) -> Reply:
        """See `PING`. With others' answers under way it would change nothing."""
        if self._pending or self.dead:
            return self.send(command, by)
        self._pending.append((NOBODY, by))
        return self._send_alone(PING + command, by)

    def ask(self, ticket: Ticket, command: bytes, by: float) -> Reply:
        """For a lock. Nobody else's answer is kept waiting if this one is waited for together with the
        wake-up, for a moment: one turn of the loop less. If both have come, it is a grant.
        """
        until = ticket.until
        if self._pending or self.dead or ticket.barge or (until and until - self._now() < PATIENT):
            self._wire.hear(ticket)
            return self.send(command, by)
        self._asked = ticket
        if self._least != LONG and self._socket is not None:
            self._set_least(LONG)
        return self._send_alone(command, by)

    def _send_alone(self, command: bytes, by: float) -> Reply:
        self._write(command)
        reply = Reply(self._loop)
        self._pending.append((reply, by))
        if by < self._timer_due:
            self._arm(by)
        return reply

    def _set_least(self, least: int) -> None:
        """Bytes for which the system waits before it tells us of them; for a tick at the most."""
        assert self._socket is not None
        assert self._transport is not None
        self._least = least
        with suppress(OSError):  # it is closed, which we are told soon
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, least)
        if least != 1:
            if self._hurry is None:
                self._hurry = self._loop.call_later(TICK, self._hurry_up)
        elif self._pending:
            # Not every system looks again at what has come by itself.
            self._transport.pause_reading()
            self._transport.resume_reading()

    def _hurry_up(self) -> None:
        self._hurry = None
        if self._least != 1:
            self._set_least(1)

    def _flush(self) -> None:
        if self._unsent:
            unsent = b"".join(self._unsent)
            self._unsent.clear()
            self._write(unsent)

    def abort(self) -> None:
        """Now, whatever was still to be written."""
        if self._transport is not None:
            self._transport.abort()
        self._end()

    # Called by the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._write = transport.write
        if (
            transport.get_extra_info("sslcontext") is None
        ):  # there, what is read is not what was sent
            self._socket = transport.get_extra_info("socket")

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._view  # TLS reads into slices of it: those of the buffer itself would be copies

    def buffer_updated(self, nbytes: int) -> None:
        if self._asked is not None and self._handed_over(nbytes, self._asked):
            return
        self._feed(self._buffer, 0, nbytes)
        self._answer()

    def _handed_over(self, nbytes: int, ticket: Ticket) -> bool:
        self._asked = None
        reply = self._pending[0][0]
        token = handed(bytes(self._view[:nbytes]), wake_up(self.channel, ticket.owner))
        if token:
            self._pending.popleft()
            reply.settle(_tuple(Granted, (token, ticket.ttl, True, 0.0)))
            return True
        if not reply.settled:  # it is still wanted
            self._wire.hear(ticket)
        return False

    def _answer(self) -> None:
        gets, push, pending = self._gets, self._push, self._pending
        try:
            while (answer := gets()) is not NOTHING:
                if type(answer) is push and answer[0] != b"subscribe":
                    if answer[0] == b"message":
                        self._wire.woken(answer[2])
                elif pending:  # otherwise an answer to nothing, which cannot be ours
                    pending.popleft()[0].settle(answer)
        except self._nonsense:
            self.abort()  # nothing that follows could be understood
        except BaseException:
            # A task raised what ends the event loop. If that goes on, so does the rest.
            self._loop.call_soon(self._answer)
            raise
        if pending and self._least != 1 and self._asked is None:
            self._set_least(1)  # what is still to come may be short

    def connection_lost(self, error: Exception | None) -> None:
        self._end()

    def _end(self) -> None:
        if self.dead:
            return
        self.dead = True
        self._unsent.clear()
        self._asked = None
        for timer in (self._timer, self._hurry):
            if timer is not None:
                timer.cancel()
        self._timer = self._hurry = None
        pending = list(self._pending)
        self._pending.clear()
        for reply, _ in pending:
            reply.settle_soon(None, self._wire.broken())
        self._wire.lost(self)

    # One timer for all that waits; it is left alone while answers come.

    def _arm(self, due: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_due = due
        self._timer = self._loop.call_later(max(0.0, due - self._now()), self._look)

    def _look(self) -> None:
        self._timer = None
        self._timer_due = inf
        now = self._now()
        due = None
        for reply, by in self._pending:
            if by <= now:
                reply.settle_soon(None, self._wire.late())
            elif due is None or by < due:
                due = by
        if self._pending and self._pending[0][1] <= now:
            # Its turn has not come, and all that is behind it waits too. Not for long.
            last_chance = self._pending[0][1] + PATIENCE
            if now >= last_chance:
                self.abort()
                return
            due = last_chance if due is None else min(due, last_chance)
        if due is not None:
            self._arm(due)


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

    async def open(self, by: float) -> None:
        await self._connect(by)

    def call(self, command: bytes, by: float) -> Awaitable[Any]:
        """The server's answer, which may be an error it answered with. Raises `Lost` without one."""
        connection = self._connection
        if connection is None:
            return self._connect_and_call(command, by)
        return connection.send(command, by)

    def release(self, command: bytes, by: float) -> Awaitable[Any]:
        """As `call`, for a command that may wake others."""
        connection = self._connection
        if connection is None:
            return self._connect_and_call(command, by)
        if connection.channel is NO_CHANNEL:
            return connection.send(command, by)
        # Somebody else wanted what we had, and will again.
        return connection.send_after_ping(command, by)

    async def _connect_and_call(self, command: bytes, by: float) -> Any:
        return await (await self._connect(by)).send(command, by)

    async def batch(self, commands: Sequence[bytes], by: float) -> list[Any]:
        """All at once, in one round trip."""
        connection = self._connection or await self._connect(by)
        return await _all([connection.send(command, by) for command in commands])

    def ask(self, ticket: Ticket, command: bytes, owner: bytes, by: float) -> Awaitable[Any]:
        """Ask for a lock: `command`, the channel where the ticket will be told, `owner`.

        There is no channel until one is first needed: who never waits never pays for it. So this may
        answer "not in the queue" for a ticket that is to queue: then it is to be asked by `enqueue`.
        """
        connection = self._connection
        if connection is None:
            return self._connect_and_ask(ticket, command, owner, by)
        if not ticket.queue:
            return connection.send(command + NO_CHANNEL + owner, by)
        channel = connection.channel
        if channel is NO_CHANNEL:
            return connection.send(command + channel + owner, by)
        return connection.ask(ticket, command + channel + owner, by)

    async def _connect_and_ask(
        self, ticket: Ticket, command: bytes, owner: bytes, by: float
    ) -> Any:
        await self._connect(by)
        return await self.ask(ticket, command, owner, by)

    async def enqueue(self, ticket: Ticket, command: bytes, owner: bytes, by: float) -> Any:
        """The same, on a connection that has a channel."""
        connection = self._connection or await self._connect(by)
        await self._subscribe(connection, by)
        self.hear(ticket)
        return await connection.send(command + connection.channel + owner, by)

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

    async def _connect(self, by: float) -> Connection:
        try:
            # Those who wait for another's attempt do so by their own deadline.
            async with asyncio.timeout(max(0.0, by - self._clock.now())), self._connecting:
                if self._closed:
                    raise BackendUnavailable(f"this connection to {self._address} is closed")
                if self._connection is None:
                    made = await (self._found(by) if self._finder else self._greeted(by))
                    if self._closed:  # meanwhile
                        made.abort()
                        raise BackendUnavailable(f"this connection to {self._address} is closed")
                    self._connection = made
                return self._connection
        except TimeoutError:
            raise BackendUnavailable(
                f"cannot reach the server at {self._address}: it did not answer in time"
            ) from None

    async def _found(self, by: float) -> Connection:
        """To wherever the primary is: asked, tried, and asked again while there is time."""
        assert self._finder is not None
        while True:
            self._address = await self._finder.find(by)
            try:
                try:
                    async with asyncio.timeout(ATTEMPT):
                        return await self._greeted(by)
                except TimeoutError:
                    raise BackendUnavailable(
                        f"cannot reach the server at {self._address}: it did not answer in time"
                    ) from None
            except BackendUnavailable:
                self._finder.doubt()
                if self._clock.now() + PAUSE >= by:
                    raise
                await asyncio.sleep(PAUSE)

    async def _greeted(self, by: float) -> Connection:
        connection = await self._reach(by)
        try:
            hello = [connection.send(command, by) for command in greeting(self._address)]
            if self._listens:
                await self._subscribe(connection, by)
            check_greeting(await _all(hello), self._address)
        except BaseException:
            connection.abort()
            raise
        if connection.dead:
            raise self.broken()
        return connection

    async def _reach(self, by: float) -> Connection:
        address, loop = self._address, self._loop

        def make() -> Connection:
            return Connection(self, loop, self._clock)

        try:
            if address.path:
                return (await loop.create_unix_connection(make, address.path))[1]
            host = address.host
            if ":" in host or host.replace(".", "").isdecimal():
                return (await loop.create_connection(make, host, address.port, ssl=address.tls))[1]
            return await self._first_to_answer(make, by)
        except OSError as error:
            if isinstance(error, TimeoutError):
                raise
            raise BackendUnavailable(f"cannot reach the server at {address}: {error}") from error

    async def _first_to_answer(self, make: Callable[[], Connection], by: float) -> Connection:
        """A name may stand for several places: each has its share of the time, not all of it."""
        host, port, tls = self._address.host, self._address.port, self._address.tls
        places = await self._loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        reason: OSError = OSError("its name stands for nothing")
        for left, (family, _, _, _, place) in zip(range(len(places), 0, -1), places, strict=True):
            try:
                async with asyncio.timeout((by - self._clock.now()) / left):
                    made = await self._loop.create_connection(
                        make,
                        str(place[0]),
                        int(place[1]),
                        family=family,
                        ssl=tls,
                        server_hostname=host if tls is not None else None,
                    )
                return made[1]
            except OSError as error:
                reason = error
        raise reason

    async def _subscribe(self, connection: Connection, by: float) -> None:
        if connection.channel != NO_CHANNEL:
            return
        self._listens = True
        reply = await connection.send(pack(b"SUBSCRIBE", self._channel_name), by)
        if isinstance(reply, Exception):
            raise BackendUnavailable(
                f"the server at {self._address} does not let us listen on channels: {reply}; a user "
                f"with an access list needs &{self._channel_name.rpartition(b':')[0].decode()}:*"
            )
        connection.channel = self._channel

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
    return [await reply for reply in replies]
