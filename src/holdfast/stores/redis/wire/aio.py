"""The wire for asyncio: one connection for all tasks, opened again when it breaks; and the waiters.

Its twin for blocking code is `threads`, with the same names and meanings.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakValueDictionary

from .... import forks
from ...._runtime.aio import Signal
from ....clock import Clock
from ....errors import BackendUnavailable, ConfigError
from ....model import Granted
from ....refusals import reason
from ..address import Address
from .pipelined_connection import TOGETHER, Connection, check_greeting
from .protocol import Late, Lost, bulk, greeting, pack
from .refusals import deaf
from .reply import Reply
from .sockets import open_protocol, unreached
from .wakeups import NO_CHANNEL, read_wakeup

if TYPE_CHECKING:
    from ..._async.contract import Ticket

ASYNCHRONOUS = True
CONNECT_LIMIT = 1.0
"""Seconds for one attempt to reach a server that may not be the primary any more."""
FINDER_PAUSE = 0.05
"""Seconds before the finder is asked again for the primary."""
CHECK_INTERVAL = 0.1
"""Seconds between checks of the waiters' deadlines; most waiters are woken before the first one."""


class WaiterSignal(Signal):
    """The signal of one waiter: set by a wake-up, by the engine, or at its deadline."""

    __slots__ = ("grant", "reply", "ticket", "timer", "until", "was_set")

    def __init__(self, ticket: Ticket) -> None:
        self.ticket = ticket
        self.was_set = False
        """True if it was set before its task listened."""
        self.grant: Granted | None = None
        """The grant of a wake-up that came before the task listened."""
        self.reply: Reply | None = None
        """The reply that its task awaits, while it listens."""
        self.until = inf
        self.timer: asyncio.TimerHandle | None = None

    def set(self) -> None:
        """Wakes the waiter, which then asks. Called by the engine in the thread of the loop."""
        if self.reply is None:
            self.was_set = True
        else:
            self.reply.settle_soon(None)

    def expire(self) -> None:
        """Ends the wait at its deadline."""
        self.timer = None
        if self.reply is not None:
            self.reply.settle(None)


class PrimaryFinder(Protocol):
    """A way to learn where the primary is."""

    async def find(self, deadline: float) -> Address: ...

    def doubt(self) -> None:
        """Forgets where the primary was: it may be elsewhere by now."""
        ...


class Wire:
    """All connections of one manager to one server."""

    def __init__(
        self, address: Address, clock: Clock, channels: bytes, finder: PrimaryFinder | None = None
    ) -> None:
        self._address = address
        self._finder = finder
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._channel = channels + os.urandom(9).hex().encode()
        self._packed_channel = bulk(self._channel)
        self._has_channel = False
        self._connection: Connection | None = None
        self._connecting = asyncio.Lock()
        self._check_timer: asyncio.TimerHandle | None = None
        self.waiting: dict[str, WaiterSignal] = {}
        """The signals of waiters, by owner. After an acquire the caller has to `forget` an owner that
        does not wait."""
        self.observers: WeakValueDictionary[str, Ticket] = WeakValueDictionary()
        """The tickets of those who observe an election, by owner."""
        self._recalls = b""
        self._recalled: Callable[[str], object] = lambda owner: None
        self._closed = False
        self._made_in = forks.current()

    @property
    def address(self) -> Address:
        """The address of the server, or of the last one that was the primary."""
        return self._address

    attentive = True
    """Whether forced releases are heard of."""

    def attend(self, owner: str) -> None:
        """Does nothing: in asyncio the connection listens from the first."""

    def heed(self, channel: bytes, recalled: Callable[[str], object]) -> None:
        """Has `recalled` called with each owner that `channel` names. Called before `open`."""
        self._recalls, self._recalled = channel, recalled

    async def open(self, deadline: float) -> None:
        await self._connect(deadline)

    def call(self, command: bytes, deadline: float) -> Awaitable[Any]:
        """Returns the server's reply, which may be a refusal; raises `Lost` if there is none."""
        connection = self._connection
        if connection is None:
            return self._connect_and_call(command, deadline)
        return connection.send(command, deadline)

    def release(self, command: bytes, deadline: float) -> Awaitable[Any]:
        """Sends a command that may wake waiters; else as `call`."""
        connection = self._connection
        if connection is None:
            return self._connect_and_call(command, deadline)
        if connection.channel is NO_CHANNEL:
            return connection.send(command, deadline)
        # This client has waited before, so others want the same lock.
        return connection.send_after_ping(command, deadline)

    async def _connect_and_call(self, command: bytes, deadline: float) -> Any:
        return await (await self._connect(deadline)).send(command, deadline)

    async def batch(self, commands: Sequence[bytes], deadline: float) -> list[Any]:
        """Returns the replies to all `commands`, in one round trip."""
        connection = self._connection or await self._connect(deadline)
        if len(commands) <= TOGETHER:
            return await _all_replies(connection.send_all(commands, deadline))
        return await _all_replies([connection.send(command, deadline) for command in commands])

    def acquire(
        self, ticket: Ticket, command: bytes, owner: bytes, deadline: float
    ) -> Awaitable[Any]:
        """Acquires a lock by `command`, the channel on which the ticket is woken, and `owner`.

        A connection has no channel until it first needs one: a client that never waits never pays for
        it. So the reply may be "not in the queue" for a ticket that is to queue: then use `enqueue`.
        """
        connection = self._connection
        if connection is None:
            return self._connect_and_acquire(ticket, command, owner, deadline)
        if not ticket.queue:
            return connection.send(command + NO_CHANNEL + owner, deadline)
        channel = connection.channel
        if channel is NO_CHANNEL:
            return connection.send(command + channel + owner, deadline)
        return connection.acquire(ticket, command + channel + owner, deadline)

    async def _connect_and_acquire(
        self, ticket: Ticket, command: bytes, owner: bytes, deadline: float
    ) -> Any:
        await self._connect(deadline)
        return await self.acquire(ticket, command, owner, deadline)

    async def enqueue(self, ticket: Ticket, command: bytes, owner: bytes, deadline: float) -> Any:
        """Acquires as `acquire` does, on a connection that has a channel."""
        connection = self._connection or await self._connect(deadline)
        await self._subscribe(connection, deadline)
        self.hear(ticket)
        return await connection.send(command + connection.channel + owner, deadline)

    def hear(self, ticket: Ticket) -> None:
        """Prepares for the wake-up of `ticket`, which may come together with its reply."""
        signal = self.waiting[ticket.owner] = WaiterSignal(ticket)
        ticket.attach(signal)

    async def listen(self, ticket: Ticket, until: float | None) -> Granted | None:
        """Waits until `ticket` is woken, or until `until`; returns the grant of the wake-up, if any."""
        signal = self.waiting.get(ticket.owner)
        if signal is None:
            return await ticket.wait(self._clock, until)
        if signal.was_set:
            signal.was_set = False
            grant, signal.grant = signal.grant, None
        else:
            signal.reply = Reply(self._loop)
            signal.until = inf if until is None else until
            if signal.until - self._clock.now() < 2 * CHECK_INTERVAL:
                self._start_timer(signal)
            elif self._check_timer is None:
                self._check_timer = self._loop.call_later(CHECK_INTERVAL, self._check_waiters)
            try:
                grant = await signal.reply
            finally:
                signal.reply = None
                if signal.timer is not None:
                    signal.timer.cancel()
                    signal.timer = None
        if grant is not None:
            self.forget(ticket.owner)
        return grant

    async def observe(self, ticket: Ticket, command: bytes, deadline: float) -> Any:
        """Sends `command`, and with it where `ticket` is told: by our channel and its owner."""
        connection = self._connection or await self._connect(deadline)
        await self._subscribe(connection, deadline)
        self.observers[ticket.owner] = ticket
        told = connection.channel + bulk(ticket.owner.encode())
        return await connection.send(command + told, deadline)

    async def unobserve(self, ticket: Ticket, command: bytes, deadline: float) -> Any:
        """Sends `command`, which ends what `observe` began."""
        self.observers.pop(ticket.owner, None)
        return await self.call(
            command + self._packed_channel + bulk(ticket.owner.encode()), deadline
        )

    def _check_waiters(self) -> None:
        """Starts timers for the waiters whose deadline is near; the others do without."""
        self._check_timer = None
        soon = self._clock.now() + 2 * CHECK_INTERVAL
        listening = False
        for signal in self.waiting.values():
            if signal.reply is not None:
                listening = True
                if signal.until < soon and signal.timer is None:
                    self._start_timer(signal)
        if listening:
            self._check_timer = self._loop.call_later(CHECK_INTERVAL, self._check_waiters)

    def _start_timer(self, signal: WaiterSignal) -> None:
        left = max(0.0, signal.until - self._clock.now())
        signal.timer = self._loop.call_later(left, signal.expire)

    def forget(self, owner: str) -> None:
        """Ends the wait of `owner`, if it waits."""
        signal = self.waiting.pop(owner, None)
        if signal is not None:
            signal.ticket.attach(None)
            signal.set()

    def drop_connections(self) -> None:
        """Drops the connection: the next one may lead to another server."""
        if self._connection is not None:
            self._connection.abort()

    async def close(self) -> None:
        self._closed = True
        for owner in list(self.waiting):
            self.forget(owner)
        self._tell_observers()
        if self._check_timer is not None:
            self._check_timer.cancel()
            self._check_timer = None
        if self._connection is not None:
            self._connection.abort()
            await asyncio.sleep(0)  # the transport closes its socket in the loop's next turn

    async def _connect(self, deadline: float) -> Connection:
        try:
            # A task that waits for the attempt of another does so by its own deadline.
            async with asyncio.timeout(max(0.0, deadline - self._clock.now())), self._connecting:
                forks.refuse_inherited(self._made_in)
                if self._closed:
                    raise BackendUnavailable(f"this connection to {self._address} is closed")
                if self._connection is None:
                    made = await (
                        self._connect_to_primary(deadline)
                        if self._finder
                        else self._open_and_greet(deadline)
                    )
                    if self._closed:  # meanwhile
                        made.abort()
                        raise BackendUnavailable(f"this connection to {self._address} is closed")
                    self._connection = made
                return self._connection
        except TimeoutError:
            raise BackendUnavailable(
                f"cannot reach the server at {self._address}: {unreached(self._address)}"
            ) from None

    async def _connect_to_primary(self, deadline: float) -> Connection:
        """Connects to the primary: the finder is asked, and asked again, while there is time."""
        assert self._finder is not None
        while True:
            self._address = await self._finder.find(deadline)
            try:
                try:
                    async with asyncio.timeout(CONNECT_LIMIT):
                        return await self._open_and_greet(deadline)
                except TimeoutError:
                    raise BackendUnavailable(
                        f"cannot reach the server at {self._address}: {unreached(self._address)}"
                    ) from None
            except BackendUnavailable:
                self._finder.doubt()
                if self._clock.now() + FINDER_PAUSE >= deadline:
                    raise
                await asyncio.sleep(FINDER_PAUSE)

    async def _open_and_greet(self, deadline: float) -> Connection:
        login = self._address.login
        credentials = None if login is None else await login.get_soon()
        connection = await self._open_connection(deadline)
        try:
            hello = greeting(self._address, credentials)
            # A server may refuse this one, to a user who may not listen there.
            recalls = [pack(b"SUBSCRIBE", self._recalls)] if self._recalls else []
            greeted = connection.send_all([*hello, *recalls], deadline)
            await check_greeting(greeted[: len(hello)], self._address)
            await _all_replies(greeted[len(hello) :])
            if self._has_channel:
                with suppress(ConfigError):  # told to those who have to listen; others need not
                    await self._subscribe(connection, deadline)
        except BaseException:
            connection.abort()
            raise
        if connection.dead:
            raise self.broken()
        return connection

    async def _open_connection(self, deadline: float) -> Connection:
        address, loop = self._address, self._loop

        def make() -> Connection:
            return Connection(self, loop, self._clock)

        try:
            return await open_protocol(loop, make, address, deadline, self._clock.now)
        except TimeoutError:
            raise
        except OSError as error:
            raise BackendUnavailable(
                f"cannot reach the server at {address}: {reason(error)}"
            ) from error

    async def _subscribe(self, connection: Connection, deadline: float) -> None:
        if connection.channel != NO_CHANNEL:
            return
        reply = await connection.send(pack(b"SUBSCRIBE", self._channel), deadline)
        if isinstance(reply, Exception):
            raise deaf(reply, self._address, self._channel.rpartition(b":")[0] + b":")
        self._has_channel = True
        connection.set_channel(self._packed_channel)

    # Called by the connection.

    def woken(self, message: bytes) -> None:
        owner, token = read_wakeup(message)
        if token < 0:
            self._recalled(owner)
            return
        signal = self.waiting.get(owner)
        if signal is None:
            observer = self.observers.get(owner)
            if observer is not None:
                observer.tell()
        else:
            grant = Granted(token, signal.ticket.ttl, True) if token else None
            if signal.reply is not None:
                signal.reply.settle(grant)
            else:
                signal.was_set = True
                signal.grant = grant or signal.grant

    def lost(self, connection: Connection) -> None:
        if self._connection is connection:
            self._connection = None
            if self._finder is not None:
                self._finder.doubt()
            if not self._closed:
                # Wake-ups may be lost meanwhile: every waiter asks, which also connects again.
                for signal in list(self.waiting.values()):
                    signal.set()
                self._tell_observers()

    def _tell_observers(self) -> None:
        for ticket in list(self.observers.values()):
            ticket.tell()

    def broken(self) -> Lost:
        return Lost(f"the connection to the server at {self._address} broke")

    def late(self) -> Late:
        return Late(f"the server at {self._address} did not answer in time")


async def _all_replies(replies: list[Reply]) -> list[Any]:
    """Returns the results of `replies`, which come in order: the task is woken once, by the last."""
    if replies:
        await replies[-1]
    return [await reply for reply in replies]
