"""One blocking connection: bytes out, replies in, each by its deadline; and wake-ups between them."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from ...._runtime.threads import Signal
from ....clock import Clock
from ....errors import BackendUnavailable
from ....model import Granted
from ..address import Address
from .protocol import (
    A_TOKEN,
    NO_CHANNEL,
    NOTHING,
    ONE,
    TOKEN_IS,
    Late,
    Lost,
    bulk,
    check_greeting,
    greeting,
    wake_up,
    woken,
)
from .sockets import open_socket

if TYPE_CHECKING:
    from ..._sync.contract import Ticket

TICK = 0.1
"""Seconds for which the kernel waits for an answer before we look at the time again. It costs nothing,
where a timeout of Python's own costs a system call for each send and each receive."""
LONGEST_SLEEP = 1.0
"""The same for one who waits to be woken. The kernel's timer stands still while the machine is
suspended, the boot clock does not: so look."""
CHUNK = 16384
SHORT = 448
"""Bytes to read where no longer answer is expected: these Python has at hand, more it must ask for."""


class Ear(Signal):
    """Who listens on a connection. It stays the same when a broken connection is replaced.

    To set it ends the wait by giving the connection up. That is rare (a heartbeat has found out more,
    or everything is closed), so that the usual wait, until the server wakes us, is a bare read.
    """

    __slots__ = ("connection", "dropped", "listening", "pause", "rung", "ticket")

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.ticket: Ticket | None = None
        self.listening = False
        """A thread waits here."""
        self.dropped = False
        """It need not any more, and gives the connection back itself."""
        self.rung = False
        self.pause: Signal | None = None

    def set(self) -> None:
        self.rung = True
        self.connection.interrupt()
        if self.pause is not None:
            self.pause.set()


class Connection:
    """Used by one thread at a time. After an error it must be closed: an answer may still come."""

    __slots__ = (
        "_feed",
        "_gets",
        "_greeting",
        "_nonsense",
        "_now",
        "_push",
        "_receive",
        "_send",
        "_socket",
        "_tick",
        "address",
        "channel",
        "channel_name",
        "dead",
        "ear",
        "least",
        "told",
        "used",
    )

    def __init__(self, address: Address, clock: Clock, deadline: float) -> None:
        from hiredis import ProtocolError, PushNotification, Reader

        self.address = address
        self._now = clock.now
        reader = Reader(notEnoughData=NOTHING)
        self._feed, self._gets = reader.feed, reader.gets
        self._push = PushNotification
        self._nonsense: type[Exception] = ProtocolError
        self.channel = NO_CHANNEL
        self.channel_name = b""
        self.told = b""
        """How a wake-up begins, see `handed`."""
        self.dead = False
        self.ear: Ear | None = None
        self.used = clock.now()
        self._tick = 0.0
        self.least = 1
        """Bytes for which a read waits, or else for its tick."""
        # Sent together with the first command, not before it: a server that stands still has then
        # received that command, too. It may be the clean-up for one that it received earlier.
        self._greeting = greeting(address)
        self._socket = self._connect(deadline)
        self._send: Callable[[bytes], int] = self._socket.send
        self._receive: Callable[[int], bytes] = self._socket.recv
        if address.tls is None:
            self._socket.settimeout(None)  # that of connecting; `_set_tick` sets another kind
            # The same system calls, with less of Python around them.
            self._send = partial(os.write, self._socket.fileno())
            self._receive = partial(os.read, self._socket.fileno())

    def _connect(self, deadline: float) -> socket.socket:
        address = self.address
        if deadline <= self._now():
            raise BackendUnavailable(f"no time was left to reach the server at {address}")
        try:
            return open_socket(address, deadline, self._now)
        except OSError as error:
            raise BackendUnavailable(f"cannot reach the server at {address}: {error}") from error

    def listens_on(self, name: bytes, ear: Ear | None) -> None:
        self.channel_name = name
        self.channel = bulk(name)
        self.told = wake_up(self.channel)
        self.ear = ear or Ear(self)

    def interrupt(self) -> None:
        """End the wait of a thread that listens here, and the use of the connection."""
        self.dead = True
        with suppress(OSError):  # it has ended by itself
            self._socket.shutdown(socket.SHUT_RD)

    def close(self) -> None:
        self.dead = True
        self._socket.close()
        # Its number may be another's from now on.
        self._send, self._receive = self._socket.send, self._socket.recv

    def is_alive(self) -> bool:
        """Whether the other end has not hung up meanwhile. A late wake-up may have come, too."""
        if self.address.tls is not None:
            return True
        try:
            data = self._socket.recv(CHUNK, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return True
        except OSError:
            return False
        if not data:
            return False
        self._feed(data)
        return True

    # Asking.

    def call(self, command: bytes, deadline: float, now: float, size: int = CHUNK) -> Any:
        if self._greeting:
            return self._greet(command, deadline, now)
        # What is exactly as expected need not go through the parser: see `handed`.
        data = self.exchange(command, deadline, now, 1, size)
        if data == ONE:
            return 1
        if len(data) == A_TOKEN and data[:5] == TOKEN_IS:
            return data[5:-2]
        return self.first(data, deadline)

    def exchange(
        self, command: bytes, deadline: float, now: float, least: int = 0, size: int = SHORT
    ) -> bytes:
        """Send it; what has come by the next tick, or nothing. `first` makes an answer of that.

        One that is shorter than `least` may be had a tick later, see `LONG`; 0 leaves that as it is.
        """
        if least and self.least != least:
            self._set_least(least)
        if self._tick != TICK or deadline - now < TICK:
            self._set_tick(min(TICK, deadline - now))
        # By way of names: to call what is kept in a slot as if it were a method is slower.
        send, receive = self._send, self._receive
        try:
            try:
                sent = send(command)
            except (BlockingIOError, TimeoutError):
                sent = 0
            if sent != len(command):
                self._send_rest(command, sent, deadline)
            try:
                return receive(size)
            except (BlockingIOError, TimeoutError):
                return b""
        except OSError as error:
            raise self._lost(error) from error

    def first(self, data: bytes, deadline: float) -> Any:
        """The reply at the beginning of what has come."""
        self._feed(data)
        return self.next(deadline)

    def _greet(self, command: bytes, deadline: float, now: float) -> Any:
        commands, self._greeting = self._greeting, []
        self._feed(self.exchange(b"".join(commands) + command, deadline, now, 1, CHUNK))
        check_greeting([self.next(deadline) for _ in commands], self.address)
        return self.next(deadline)

    def _send_rest(self, data: bytes, sent: int, deadline: float) -> None:
        """A slow line, or a server that stands still, takes longer than a tick for much at once."""
        while sent < len(data):
            try:
                sent += self._send(data[sent:])
            except (BlockingIOError, TimeoutError):
                if self._now() >= deadline:
                    raise

    def batch(self, commands: Sequence[bytes], deadline: float, now: float) -> list[Any]:
        first = self.call(b"".join(commands), deadline, now)
        return [first, *[self.next(deadline) for _ in range(len(commands) - 1)]]

    def next(self, deadline: float) -> Any:
        """The answer behind the first one, where several commands were sent together."""
        try:
            reply = self._gets()
            if reply is not NOTHING and type(reply) is not self._push:
                return reply
            return self._reply(deadline, reply)
        except (OSError, self._nonsense) as error:
            raise self._lost(error) from error

    def _reply(self, deadline: float, reply: Any) -> Any:
        """The next answer, behind `reply`, which is none, or not whole."""
        while True:
            # A subscription is answered by a push; every other push is not an answer.
            if reply is not NOTHING and (type(reply) is not self._push or reply[0] == b"subscribe"):
                return reply
            reply = self._gets()
            if reply is NOTHING:
                if self.least != 1:
                    self._set_least(1)
                try:
                    data = self._receive(CHUNK)
                except (BlockingIOError, TimeoutError):
                    if self._now() >= deadline:
                        raise
                    continue
                if not data:
                    raise ConnectionResetError("the connection was closed")
                self._feed(data)

    def _lost(self, error: Exception) -> BackendUnavailable:
        self.dead = True
        if isinstance(error, self._nonsense):
            return Lost(f"the server at {self.address} answered, but not as a Redis server does")
        if isinstance(error, BlockingIOError | TimeoutError):
            return Late(f"the server at {self.address} did not answer in time")
        return Lost(f"the connection to the server at {self.address} broke: {error}")

    def _set_tick(self, tick: float) -> None:
        if tick <= 0:
            raise BackendUnavailable(f"no time was left to ask the server at {self.address}")
        self._tick = tick
        if self.address.tls is not None:
            self._socket.settimeout(tick)
            return
        whole = int(tick)
        value = struct.pack("ll", whole, max(1, int((tick - whole) * 1_000_000)))
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, value)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, value)

    def _set_least(self, least: int) -> None:
        if self.address.tls is None:  # there, what is read first is not what was sent
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, least)
            self.least = least

    # Listening.

    def _heard(self) -> Any:
        try:
            return self._gets()
        except self._nonsense:
            self.interrupt()  # nothing that follows could be understood
            return NOTHING

    def first_or_woken(self, ticket: Ticket, data: bytes, deadline: float) -> Any:
        """As `first`, for a request; with a place in the queue and the wake-up, that grant."""
        reply = self.first(data, deadline)
        if type(reply) is int:
            while (push := self._heard()) is not NOTHING:
                # Others' are those of earlier tickets, and came late.
                if type(push) is self._push and push[0] == b"message":
                    owner, token = woken(push[2])
                    if token and owner == ticket.owner:
                        return Granted(token, ticket.ttl, True)
        return reply

    def listen(self, ticket: Ticket, until: float | None) -> Granted | None:
        """Wait for this ticket's wake-up, for `interrupt`, or for the end of the connection."""
        while True:
            # What came together with an earlier answer is in the parser already.
            while (reply := self._heard()) is not NOTHING:
                if type(reply) is self._push and reply[0] == b"message":
                    owner, token = woken(reply[2])
                    if owner == ticket.owner:
                        return Granted(token, ticket.ttl, True) if token else None
            if until is not None:
                left = until - self._now()
                if left <= 0:
                    return None
                if left < self._tick:
                    self._set_tick(left)
            try:
                data = self._receive(CHUNK)
            except (BlockingIOError, TimeoutError):
                if self.dead:
                    return None
                # It takes longer: look at the clock, but not so often any more.
                self._set_tick(LONGEST_SLEEP)
                continue
            except OSError:
                data = b""
            if not data:
                self.dead = True
                return None
            self._feed(data)
