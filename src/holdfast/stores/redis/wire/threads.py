"""The wire for blocking code: a connection for each thread that is calling, kept for the next one.

A thread that waits for a lock keeps the connection on which it was put into the queue, and reads its
wake-up from that: no other thread stands between. Its twin for asyncio is `aio`, with the same names
and meanings.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from threading import RLock
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from .... import forks
from ...._runtime.threads import Signal
from ....clock import Clock
from ....errors import LockError
from ....interrupts import let_through
from ....model import Granted, quick_new
from ..address import Address
from .blocking_connection import SHORT_READ, Connection, WaiterSignal
from .listener import Listener
from .pool import ConnectionPool, PrimaryFinder
from .protocol import Lost, bulk, pack
from .refusals import deaf
from .wakeups import (
    HANDOVER_BYTES,
    NO_CHANNEL,
    PING_AHEAD,
    PING_AND_FREED,
    handed_token,
    read_wakeup,
)

if TYPE_CHECKING:
    from ..._sync.contract import Ticket

__all__ = ["ASYNCHRONOUS", "PrimaryFinder", "Wire"]

ASYNCHRONOUS = False
LONG_WAIT = 1.0
"""Seconds that an attempt must have left for its place in the queue to be read together with the
wake-up."""
RESUBSCRIBE_PAUSE = 0.5
"""Seconds between attempts to subscribe again, while the server is gone."""


class Wire:
    """All connections of one manager to one server."""

    def __init__(
        self, address: Address, clock: Clock, channels: bytes, finder: PrimaryFinder | None = None
    ) -> None:
        self._clock = clock
        self._now = clock.now
        self._channels = channels
        self._pool = ConnectionPool(address, clock, finder)
        self.waiting: dict[str, WaiterSignal] = {}
        """The signals of waiters, by owner."""
        self.observers: WeakValueDictionary[str, Ticket] = WeakValueDictionary()
        """The tickets of those who observe an election, by owner."""
        self._listener: Listener | None = None
        self._recalled: Callable[[str], object] = lambda owner: None
        self._mutex = RLock()  # the handler of a signal may call `close`
        self._made_in = forks.current()

    @property
    def attentive(self) -> bool:
        """Whether forced releases are heard of."""
        return self._listener is None or self._listener.attentive

    def attend(self, owner: str) -> None:
        """Begins to listen for forced releases; one of `owner`, who was just granted a lock, too."""
        if self._listener is not None:
            self._listener.start(owner)

    def heed(self, channel: bytes, recalled: Callable[[str], object]) -> None:
        """Has `recalled` called with each owner that `channel` names. Called before `open`."""
        self._recalled = recalled
        self._listener = Listener(
            self._pool, self._clock, self._channels, channel, self._woken, self._tell_observers
        )

    @property
    def address(self) -> Address:
        """The address of the server, or of the last one that was the primary."""
        return self._pool.address

    def open(self, deadline: float) -> None:
        now = self._now()
        self._pool.give_back(self._pool.borrow(deadline, now), now)

    def call(self, command: bytes, deadline: float) -> Any:
        """Returns the server's reply, which may be a refusal; raises `Lost` if there is none."""
        clock, pool = self._now, self._pool
        now = clock()
        connection = pool.borrow(deadline, now)
        try:
            reply = connection.call(command, deadline, now)
        except BaseException:
            self._discard(connection)
            raise
        pool.give_back(connection, now)
        return reply

    def release(self, command: bytes, deadline: float) -> Any:
        """Sends a command that may wake waiters; else as `call`."""
        clock, pool = self._now, self._pool
        now = clock()
        connection = pool.borrow(deadline, now)
        try:
            if connection.signal is None:
                reply = connection.call(command, deadline, now, SHORT_READ)
            else:  # this client has waited before, so others want the same lock
                data = connection.exchange(PING_AHEAD + command, deadline, now)
                if data == PING_AND_FREED:
                    reply = 1
                else:
                    connection.first_reply(data, deadline)
                    reply = connection.next_reply(deadline)
        except BaseException:
            self._discard(connection)
            raise
        pool.give_back(connection, now)
        return reply

    def batch(self, commands: Sequence[bytes], deadline: float) -> list[Any]:
        """Returns the replies to all `commands`, in one round trip."""
        clock, pool = self._now, self._pool
        now = clock()
        connection = pool.borrow(deadline, now)
        try:
            replies = connection.batch(commands, deadline, now)
        except BaseException:
            self._discard(connection)
            raise
        pool.give_back(connection, now)
        return replies

    def acquire(self, ticket: Ticket, command: bytes, owner: bytes, deadline: float) -> Any:
        """Acquires a lock by `command`, the channel on which the ticket is woken, and `owner`.

        A connection has no channel until it first needs one: a client that never waits never pays for
        it. So the reply may be "not in the queue" for a ticket that is to queue: then use `enqueue`.

        Where there is a channel, the place in the queue is read together with the wake-up, if that
        comes within a moment: see `HANDOVER_BYTES`. If both have come, a grant is returned.
        """
        clock, pool = self._now, self._pool
        now = clock()
        connection = pool.borrow(deadline, now)
        try:
            channel = connection.channel if ticket.queue else NO_CHANNEL
            until = ticket.until
            if channel is NO_CHANNEL or ticket.terms.barge or (until and until - now < LONG_WAIT):
                reply = connection.call(command + channel + owner, deadline, now, SHORT_READ)
            else:
                prefix = connection.wakeup_prefix + ticket.owner.encode()
                data = connection.exchange(command + channel + owner, deadline, now, HANDOVER_BYTES)
                token = handed_token(data, prefix)
                if token:
                    reply = quick_new(Granted, (token, ticket.ttl, True, 0.0, None))
                else:
                    reply = connection.first_reply_or_grant(ticket, data, deadline)
                if type(reply) is Granted and connection.address is not self._pool.address:
                    raise Lost(f"the server at {connection.address} may not be the primary now")
        except BaseException:
            self._discard(connection)
            raise
        if type(reply) is not int:
            pool.give_back(connection, now)
        else:
            self._start_waiting(ticket, connection, reply)
        return reply

    def enqueue(self, ticket: Ticket, command: bytes, owner: bytes, deadline: float) -> Any:
        """Acquires as `acquire` does, on a connection that has a channel."""
        clock, pool = self._now, self._pool
        now = clock()
        connection = pool.borrow(deadline, now)
        try:
            self._subscribe(connection, deadline)
            reply = connection.call(command + connection.channel + owner, deadline, now)
        except BaseException:
            self._discard(connection)
            raise
        self._start_waiting(ticket, connection, reply)
        return reply

    def _start_waiting(self, ticket: Ticket, connection: Connection, reply: Any) -> None:
        """Keeps the connection for the wake-up, if the reply is a place in the queue."""
        signal = connection.signal
        if type(reply) is int and reply >= 0 and signal is not None:
            if ticket.owner in self.waiting:
                self.forget(ticket.owner)  # the acquire was repeated
            signal.ticket, signal.forgotten, signal.was_set = ticket, False, False
            self.waiting[ticket.owner] = signal
            ticket.attach(signal)
        else:
            self._pool.give_back(connection, connection.used)

    def listen(self, ticket: Ticket, until: float | None) -> Granted | None:
        """Waits until `ticket` is woken, or until `until`; returns the grant of the wake-up, if any."""
        owner = ticket.owner
        with self._mutex:
            signal = self.waiting.get(owner)
            if signal is not None:
                signal.listening = True
        if signal is None:
            return ticket.wait(self._clock, until)
        grant = None
        try:
            connection = signal.connection
            if not connection.dead:
                grant = connection.listen(ticket, until)
            else:
                self._resubscribe(signal, until)
        finally:
            with self._mutex:
                signal.listening = signal.was_set = False
                ended = signal.forgotten
                if grant is not None and not ended:
                    ended = True
                    del self.waiting[owner]
            if ended:
                ticket.attach(None)
                self._pool.give_back(signal.connection, signal.connection.used)
        return grant

    def observe(self, ticket: Ticket, command: bytes, deadline: float) -> Any:
        """Sends `command`, and with it where `ticket` is told: by our channel and its owner."""
        assert self._listener is not None
        self.observers[ticket.owner] = (
            ticket  # first: it is told if the listening connection breaks
        )
        channel = self._listener.await_channel(deadline)
        return self.call(command + channel + bulk(ticket.owner.encode()), deadline)

    def unobserve(self, ticket: Ticket, command: bytes, deadline: float) -> Any:
        """Sends `command`, which ends what `observe` began."""
        assert self._listener is not None
        self.observers.pop(ticket.owner, None)
        told = self._listener.channel + bulk(ticket.owner.encode())
        return self.call(command + told, deadline)

    def _woken(self, message: bytes) -> None:
        owner, token = read_wakeup(message)
        if token < 0:
            self._recalled(owner)
        else:
            ticket = self.observers.get(owner)
            if ticket is not None:
                ticket.tell()

    def _tell_observers(self) -> None:
        for ticket in list(self.observers.values()):
            ticket.tell()

    def forget(self, owner: str) -> None:
        """Ends the wait of `owner`, if it waits."""
        if owner not in self.waiting:
            return
        with self._mutex:
            signal = self.waiting.pop(owner, None)
            if signal is None:
                return
            signal.forgotten = True
            listening = signal.listening
        if listening:
            signal.set()  # its thread gives the connection back
            return
        if signal.ticket is not None:
            signal.ticket.attach(None)
        self._pool.give_back(signal.connection, self._now())

    def drop_connections(self) -> None:
        """Drops all connections: the next ones may lead to another server."""
        self._pool.drop()
        with self._mutex:
            signals = list(self.waiting.values())
        for signal in signals:
            signal.connection.interrupt()  # its waiter subscribes again on another
        if self._listener is not None:
            self._listener.interrupt()

    def close(self) -> None:
        self._pool.close()
        if self._listener is not None:
            self._listener.close()
        self._tell_observers()
        with self._mutex:
            owners = list(self.waiting)
        for owner in owners:
            self.forget(owner)

    def _discard(self, connection: Connection) -> None:
        """Closes a connection that broke or is overdue; all of them, if the primary may have moved."""
        connection.close()
        if self._pool.finder is not None:
            self.drop_connections()

    def _subscribe(
        self,
        connection: Connection,
        deadline: float,
        name: bytes = b"",
        signal: WaiterSignal | None = None,
    ) -> None:
        if connection.channel != NO_CHANNEL:
            return
        name = name or self._channels + os.urandom(9).hex().encode()
        reply = connection.call(pack(b"SUBSCRIBE", name), deadline, self._now())
        if isinstance(reply, Exception):
            raise deaf(reply, self.address, self._channels)
        connection.set_channel(name, signal)

    def _resubscribe(self, signal: WaiterSignal, until: float | None) -> None:
        """Subscribes to the channel again on a new connection. The waiter then has to ask."""
        broken = signal.connection
        broken.close()
        signal.pause = Signal(self._clock)
        while not (signal.forgotten or signal.was_set):
            forks.refuse_inherited(self._made_in)
            now = self._now()
            limit = (
                now + RESUBSCRIBE_PAUSE if until is None else min(now + RESUBSCRIBE_PAUSE, until)
            )
            if now >= limit:
                return
            try:
                connection = self._pool.open(limit)
                try:
                    self._subscribe(connection, limit, broken.channel_name, signal)
                except BaseException:
                    connection.close()
                    raise
            except (LockError, OSError) as error:
                let_through(error)
                signal.pause.wait(limit)
                continue
            signal.connection = connection
            return
