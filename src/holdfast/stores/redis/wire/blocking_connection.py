"""One blocking connection: commands out, replies in by their deadline, and wake-ups between them."""

from __future__ import annotations

import os
import select
import socket
from collections.abc import Callable, Sequence
from math import ceil
from typing import TYPE_CHECKING, Any

from ...._runtime.threads import Signal
from ....clock import Clock
from ....errors import BackendUnavailable
from ....interrupts import let_through
from ....model import Granted
from ....refusals import reason
from ..address import Address
from .protocol import NOTHING, Late, Lost, bulk, check_hello, check_welcome, greeting
from .sockets import open_socket
from .wakeups import NO_CHANNEL, read_wakeup, wakeup_prefix

if TYPE_CHECKING:
    from ..._sync.contract import Ticket

TICK = 0.1
"""Seconds for which a read waits before we look at the clock again. To set another time-out costs a
system call, so it is the same for all commands, but for those that have less time."""
LONGEST_SLEEP = 1.0
"""Seconds for which a read waits for a wake-up before we look at the clock again. The kernel's timer
stands still while the machine is suspended; the boot clock does not."""
LEAST = 0.001
"""Seconds that a command over TLS has at the least; 0 would be none at all."""
CHUNK = 16384
HEARD_FOR = 3600.0
"""Seconds for which a read waits for a message that may never come."""
SHORT_READ = 448
"""Bytes to read where no longer reply is expected: Python keeps memory for objects of this size."""


class WaiterSignal(Signal):
    """The signal of the waiter on a connection. It outlives a broken connection, which is replaced.

    Setting it ends the wait by giving the connection up. That is rare (a heartbeat has found the grant,
    or the manager is closed), so the usual wait, until the server wakes us, is a bare read.
    """

    __slots__ = ("connection", "forgotten", "listening", "pause", "ticket", "was_set")

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.ticket: Ticket | None = None
        self.listening = False
        """A thread waits on the connection now."""
        self.forgotten = False
        """The owner waits no more: a thread that still listens gives the connection back."""
        self.was_set = False
        self.pause: Signal | None = None

    def set(self) -> None:
        self.was_set = True
        self.connection.interrupt()
        if self.pause is not None:
            self.pause.set()


class Connection:
    """A connection that one thread uses at a time. After an error it must be closed: a reply may still
    come."""

    __slots__ = (
        "_fd",
        "_feed",
        "_gets",
        "_greeting",
        "_now",
        "_pid",
        "_poll",
        "_protocol_error",
        "_push",
        "_socket",
        "_tick",
        "_tick_ms",
        "_tls",
        "address",
        "channel",
        "channel_name",
        "dead",
        "lowat",
        "signal",
        "used",
        "wakeup_prefix",
    )

    def __init__(self, address: Address, clock: Clock, deadline: float) -> None:
        from hiredis import ProtocolError, PushNotification, Reader

        self.address = address
        self._tls = address.tls is not None
        self._now = clock.now
        self._pid = os.getpid()
        reader = Reader(notEnoughData=NOTHING)
        self._feed, self._gets = reader.feed, reader.gets
        self._push = PushNotification
        self._protocol_error: type[Exception] = ProtocolError
        self.channel = NO_CHANNEL
        self.channel_name = b""
        self.wakeup_prefix = b""
        """The beginning of a wake-up, see `handed_token`."""
        self.dead = False
        self.signal: WaiterSignal | None = None
        self.used = clock.now()
        self._tick = 0.0
        self._tick_ms = 0
        self.lowat = 1
        """The number of bytes at which the socket becomes readable (`SO_RCVLOWAT`)."""
        # Sent together with the first command, not before it: a server that hangs has then received
        # that command, too. It may be the clean-up for one that it received earlier.
        self._greeting = greeting(address)
        self._socket = self._connect(deadline)
        self._fd = self._socket.fileno()
        poller = select.poll()
        poller.register(self._fd, select.POLLIN)
        self._poll = poller.poll

    def _connect(self, deadline: float) -> socket.socket:
        address = self.address
        if deadline <= self._now():
            raise BackendUnavailable(f"no time was left to reach the server at {address}")
        try:
            return open_socket(address, deadline, self._now)
        except OSError as error:
            let_through(error)
            raise BackendUnavailable(
                f"cannot reach the server at {address}: {reason(error)}"
            ) from error

    def set_channel(self, name: bytes, signal: WaiterSignal | None) -> None:
        self.channel_name = name
        self.channel = bulk(name)
        self.wakeup_prefix = wakeup_prefix(self.channel)
        self.signal = signal or WaiterSignal(self)

    def interrupt(self) -> None:
        """Ends the wait of a thread that listens here, and the use of the connection."""
        self.dead = True
        if self._pid != os.getpid():
            return  # the socket is the parent's as well
        try:
            self._socket.shutdown(socket.SHUT_RD)
        except OSError as error:
            let_through(error)  # else it has ended by itself

    def close(self) -> None:
        self.dead = True
        self._socket.close()
        self._fd = -1  # its number may be another's from now on

    def is_alive(self) -> bool:
        """Returns False if the server has hung up. Takes in a late wake-up, if there is one."""
        try:
            if not self._tls:
                data = os.read(self._fd, CHUNK)
            else:
                self._tick = 0.0  # the next command sets another
                self._socket.settimeout(0.0)
                data = self._socket.recv(CHUNK)
        except BlockingIOError as error:
            let_through(error)
            return True
        except OSError as error:
            let_through(error)
            return type(error).__name__ == "SSLWantReadError"
        if not data:
            return False
        self._feed(data)
        return True

    # Commands and replies.

    def call(self, command: bytes, deadline: float, now: float, size: int = CHUNK) -> Any:
        if self._greeting:
            return self._greet(command, deadline, now)
        feed = self._feed  # by way of a name, which is quicker for what is no method
        feed(self.exchange(command, deadline, now, 1, size))
        return self.next_reply(deadline)

    def exchange(
        self, command: bytes, deadline: float, now: float, lowat: int = 0, size: int = SHORT_READ
    ) -> bytes:
        """Sends `command`; returns what has come by the next tick, for `first_reply` to parse.

        A reply shorter than `lowat` may come a tick later, see `HANDOVER_BYTES`; 0 changes nothing.
        """
        if lowat and self.lowat != lowat:
            self._set_lowat(lowat)
        if self._tick != TICK or deadline - now < TICK:
            self._set_tick(min(TICK, deadline - now))
        try:
            if self._tls:
                self._send_by_tls(command, deadline)
                self._set_tick(min(TICK, max(LEAST, deadline - self._now())))
                return self._receive_by_tls(size) or b""
            if (sent := self._send_at_once(command)) != len(command):
                self._send_rest(command, sent, deadline)
            poll = self._poll
            return os.read(self._fd, size) if poll(self._tick_ms) else b""
        except OSError as error:
            let_through(error)
            raise self._error_for(error) from error

    def first_reply(self, data: bytes, deadline: float) -> Any:
        """Returns the reply that `data` begins with; waits for the rest of it."""
        self._feed(data)
        return self.next_reply(deadline)

    def _greet(self, command: bytes, deadline: float, now: float) -> Any:
        commands, self._greeting = self._greeting, []
        self._feed(self.exchange(b"".join(commands) + command, deadline, now, 1, CHUNK))
        check_hello(self.next_reply(deadline), self.address)
        for _ in commands[1:]:
            check_welcome(self.next_reply(deadline), self.address)
        return self.next_reply(deadline)

    def _send_at_once(self, data: bytes) -> int:
        """Sends what the socket's buffer takes; returns how many bytes that is."""
        try:
            return os.write(self._fd, data)
        except BlockingIOError as error:
            let_through(error)
            return 0

    def _send_by_tls(self, data: bytes, deadline: float) -> None:
        self._tick = 0.0  # the next read sets another
        self._socket.settimeout(max(LEAST, deadline - self._now()))
        self._socket.sendall(data)

    def _receive(self, size: int) -> bytes | None:
        """Returns what has come; None if that is nothing within a tick.

        A poll goes on for the rest of its time after a signal. A time-out of the kernel (`SO_RCVTIMEO`)
        would begin anew with each signal, and a deadline would never come. It raises nothing, either:
        a `TimeoutError` is then never ours, but one of the handler of a signal.
        """
        if self._tls:
            return self._receive_by_tls(size)
        if not self._poll(self._tick_ms):
            return None
        return os.read(self._fd, size)

    def _receive_by_tls(self, size: int) -> bytes | None:
        try:
            return self._socket.recv(size)
        except TimeoutError as error:
            let_through(error)
            return None

    def _send_rest(self, data: bytes, sent: int, deadline: float) -> None:
        """Sends the rest of a command that is longer than the socket's buffer takes at once."""
        poller = select.poll()
        poller.register(self._fd, select.POLLOUT)
        while sent < len(data):
            if self._now() >= deadline:
                raise TimeoutError
            if poller.poll(self._tick_ms):
                sent += self._send_at_once(data[sent:])

    def batch(self, commands: Sequence[bytes], deadline: float, now: float) -> list[Any]:
        first_reply = self.call(b"".join(commands), deadline, now)
        return [first_reply, *[self.next_reply(deadline) for _ in range(len(commands) - 1)]]

    def next_reply(self, deadline: float) -> Any:
        """Returns the next reply, where several commands were sent together."""
        gets = self._gets
        try:
            reply = gets()
            if reply is not NOTHING and type(reply) is not self._push:
                return reply
            return self._await_reply(deadline, reply)
        except (OSError, self._protocol_error) as error:
            let_through(error)
            raise self._error_for(error) from error

    def _await_reply(self, deadline: float, reply: Any) -> Any:
        """Returns the next reply, behind `reply`, which is a wake-up or not complete."""
        while True:
            # The reply to SUBSCRIBE is a push; every other push is no reply.
            if reply is not NOTHING and (type(reply) is not self._push or reply[0] == b"subscribe"):
                return reply
            reply = self._gets()
            if reply is NOTHING:
                if self.lowat != 1:
                    self._set_lowat(1)
                data = self._receive(CHUNK)
                if data is None:
                    if self._now() >= deadline:
                        raise TimeoutError
                    continue
                if not data:
                    raise ConnectionResetError("the connection was closed")
                self._feed(data)

    def _error_for(self, error: Exception) -> BackendUnavailable:
        self.dead = True
        if isinstance(error, self._protocol_error):
            return Lost(f"the server at {self.address} replied, but not as a Redis server does")
        if isinstance(error, TimeoutError):
            return Late(f"the server at {self.address} did not answer in time")
        return Lost(f"the connection to the server at {self.address} broke: {error}")

    def _set_tick(self, tick: float) -> None:
        if tick <= 0:
            raise BackendUnavailable(f"no time was left to ask the server at {self.address}")
        self._tick = tick
        self._tick_ms = ceil(tick * 1000)
        self._socket.settimeout(tick)

    def _set_lowat(self, lowat: int) -> None:
        if not self._tls:  # TLS records have other lengths than what is in them
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, lowat)
            self.lowat = lowat

    # Wake-ups.

    def _parsed(self) -> Any:
        try:
            return self._gets()
        except self._protocol_error:
            self.interrupt()  # nothing that follows could be parsed
            return NOTHING

    def first_reply_or_grant(self, ticket: Ticket, data: bytes, deadline: float) -> Any:
        """Returns the reply to an acquire, or the grant if the ticket's wake-up has come with it."""
        reply = self.first_reply(data, deadline)
        if type(reply) is int:
            while (push := self._parsed()) is not NOTHING:
                # Wake-ups for other owners belong to earlier tickets, and came late.
                if type(push) is self._push and push[0] == b"message":
                    owner, token = read_wakeup(push[2])
                    if token and owner == ticket.owner:
                        return Granted(token, ticket.ttl, True)
        return reply

    def listen(self, ticket: Ticket, until: float | None) -> Granted | None:
        """Waits for the ticket's wake-up, for `interrupt`, or for the end of the connection."""
        while True:
            # A wake-up that came together with an earlier reply is in the parser already.
            while (reply := self._parsed()) is not NOTHING:
                if type(reply) is self._push and reply[0] == b"message":
                    owner, token = read_wakeup(reply[2])
                    if owner == ticket.owner:
                        return Granted(token, ticket.ttl, True) if token else None
            if until is not None:
                left = until - self._now()
                if left <= 0:
                    return None
                if left < self._tick:
                    self._set_tick(left)
            if self.lowat != 1:
                self._set_lowat(1)  # the rest of a wake-up may be short
            try:
                data = self._receive(CHUNK)
            except OSError as error:
                let_through(error)
                data = b""
            if data is None:
                if self.dead:
                    return None
                # A long wait: look at the clock less often.
                self._set_tick(LONGEST_SLEEP)
                continue
            if not data:
                self.dead = True
                return None
            self._feed(data)

    def hear(self, woken: Callable[[bytes], None]) -> None:
        """Calls `woken` with each message, until `interrupt` or the end of the connection."""
        if self.lowat != 1:
            self._set_lowat(1)
        self._set_tick(HEARD_FOR)
        while not self.dead:
            while (reply := self._parsed()) is not NOTHING:
                if type(reply) is self._push and reply[0] == b"message":
                    woken(reply[2])
            try:
                data = self._receive(CHUNK)
            except OSError:
                return
            if data is None:
                continue
            if not data:
                return
            self._feed(data)
