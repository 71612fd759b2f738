"""One blocking connection: bytes out, replies in, each by its deadline; and wake-ups between them."""

from __future__ import annotations

import os
import select
import socket
import struct
from collections.abc import Sequence
from contextlib import suppress
from threading import Lock
from typing import TYPE_CHECKING, Any

from .._runtime.threads import Signal
from ..clock import Clock
from ..errors import BackendUnavailable
from ..model import Granted
from .address import Address
from .protocol import NOTHING, Late, Lost, bulk, check_greeting, greeting

if TYPE_CHECKING:
    from .._sync.contract import Ticket

TICK = 0.25
"""Seconds for which the kernel waits for an answer before we look at the time again. It costs nothing,
where a timeout of Python's own costs a system call for each send and each receive."""
LONGEST_SLEEP = 1.0
"""A poll stands still while the machine is suspended; the boot clock does not. So look."""
CHUNK = 65536


class Bell(Signal):
    """Wakes a thread that waits on descriptors."""

    __slots__ = ("_guard", "_read", "_write")

    def __init__(self) -> None:
        self._guard = Lock()  # a late ring must not write to whatever has the number by then
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)

    def fileno(self) -> int:
        return self._read

    def set(self) -> None:
        with self._guard:
            if self._write >= 0:
                with suppress(BlockingIOError):  # it rings already
                    os.write(self._write, b"\0")

    def sleep(self, seconds: float) -> bool:
        """True if it was rung, which this takes back."""
        poll = select.poll()
        poll.register(self._read, select.POLLIN)
        return bool(poll.poll(seconds * 1000)) and self.stop()

    def stop(self) -> bool:
        try:
            return bool(os.read(self._read, 4096))
        except OSError:
            return False

    def close(self) -> None:
        with self._guard:
            os.close(self._read)
            os.close(self._write)
            self._read = self._write = -1


class Connection:
    """Used by one thread at a time. After an error it must be closed: an answer may still come."""

    __slots__ = (
        "_bell",
        "_clock",
        "_greeting",
        "_poll",
        "_push",
        "_reader",
        "_socket",
        "_tick",
        "address",
        "channel",
        "channel_name",
        "dead",
        "used",
    )

    def __init__(self, address: Address, clock: Clock, by: float) -> None:
        from hiredis import PushNotification, Reader

        self.address = address
        self._clock = clock
        self._reader = Reader(notEnoughData=NOTHING)
        self._push = PushNotification
        self._bell: Bell | None = None
        self._poll: select.poll | None = None
        self.channel = bulk(b"")
        self.channel_name = b""
        self.dead = False
        self.used = 0.0
        self._tick = 0.0
        # Sent together with the first command, not before it: a server that stands still has then
        # received that command, too. It may be the clean-up for one that it received earlier.
        self._greeting = greeting(address)
        self._socket = self._connect(by)

    def _connect(self, by: float) -> socket.socket:
        address = self.address
        left = by - self._clock.now()
        if left <= 0:
            raise BackendUnavailable(f"no time was left to reach the server at {address}")
        try:
            if address.path:
                sock = socket.socket(socket.AF_UNIX)
                try:
                    sock.settimeout(left)
                    sock.connect(address.path)
                except BaseException:
                    sock.close()
                    raise
                return sock
            sock = socket.create_connection((address.host, address.port), left)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if address.tls is not None:
                try:
                    return address.tls.wrap_socket(sock, server_hostname=address.host)
                except BaseException:
                    sock.close()
                    raise
            return sock
        except OSError as error:
            raise BackendUnavailable(f"cannot reach the server at {address}: {error}") from error

    @property
    def bell(self) -> Bell:
        if self._bell is None:
            self._bell = Bell()
        return self._bell

    def listens_on(self, name: bytes) -> None:
        self.channel_name = name
        self.channel = bulk(name)

    def take_bell(self, other: Connection) -> None:
        """Go on where a broken connection was waited on."""
        self._bell, other._bell, self._poll = other._bell, None, None
        other.close()

    def close(self) -> None:
        self.dead = True
        self._socket.close()
        if self._bell is not None:
            self._bell.close()
            self._bell = None

    def hang_up(self) -> None:
        """From any thread: whoever reads from it finds that it has ended."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

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
        self._reader.feed(data)
        return True

    # Asking.

    def call(self, command: bytes, by: float) -> Any:
        left = by - self._clock.now()
        if left < TICK or self._tick != TICK:
            self._set_tick(left)
        try:
            if self._greeting:
                self._greet(command, by)
            else:
                self._socket.sendall(command)
            return self._reply(by)
        except OSError as error:
            raise self._lost(error) from error

    def _greet(self, command: bytes, by: float) -> None:
        commands, self._greeting = self._greeting, []
        self._socket.sendall(b"".join(commands) + command)
        check_greeting([self._reply(by) for _ in commands], self.address)

    def batch(self, commands: Sequence[bytes], by: float) -> list[Any]:
        first = self.call(b"".join(commands), by)
        try:
            return [first, *[self._reply(by) for _ in range(len(commands) - 1)]]
        except OSError as error:
            raise self._lost(error) from error

    def _reply(self, by: float) -> Any:
        gets = self._reader.gets
        while True:
            reply = gets()
            if reply is not NOTHING:
                # A subscription is answered by a push; every other push is not an answer.
                if type(reply) is not self._push or reply[0] == b"subscribe":
                    return reply
                continue
            try:
                data = self._socket.recv(CHUNK)
            except (BlockingIOError, TimeoutError):
                if self._clock.now() >= by:
                    raise
                continue
            if not data:
                raise ConnectionResetError("the connection was closed")
            self._reader.feed(data)

    def _lost(self, error: OSError) -> BackendUnavailable:
        self.dead = True
        if isinstance(error, BackendUnavailable):
            return error  # the greeting was refused
        if isinstance(error, BlockingIOError | TimeoutError):
            return Late(f"the server at {self.address} did not answer in time")
        return Lost(f"the connection to the server at {self.address} broke: {error}")

    def _set_tick(self, left: float) -> None:
        if left <= 0:
            raise BackendUnavailable(f"no time was left to ask the server at {self.address}")
        self._tick = tick = min(TICK, left)
        if self.address.tls is not None:
            self._socket.settimeout(tick)
            return
        whole = int(tick)
        value = struct.pack("ll", whole, max(1, int((tick - whole) * 1_000_000)))
        self._socket.settimeout(None)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, value)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, value)

    # Listening.

    def listen(self, ticket: Ticket, until: float | None) -> Granted | None:
        """Wait for this ticket's wake-up, for the bell, or for the end of the connection."""
        poll = self._poll
        if poll is None:
            poll = self._poll = select.poll()
            poll.register(self._socket, select.POLLIN)
            poll.register(self.bell.fileno(), select.POLLIN)
        rung = False
        while True:
            # What came together with an earlier answer is in the parser already.
            while (reply := self._reader.gets()) is not NOTHING:
                if type(reply) is self._push and reply[0] == b"message":
                    owner, _, token = reply[2].decode("ascii", "replace").partition(" ")
                    if owner == ticket.owner and token.isdecimal():
                        return (
                            Granted(int(token), ticket.ttl, handed=True) if token != "0" else None
                        )
            if rung:
                return None
            left = LONGEST_SLEEP if until is None else until - self._clock.now()
            if left <= 0:
                return None
            for fd, _ in poll.poll(min(left, LONGEST_SLEEP) * 1000):
                if fd != self._socket.fileno():
                    rung = self.bell.stop() or rung
                elif not self._hear():
                    return None

    def _hear(self) -> bool:
        """Take in what has come; False if the connection has ended."""
        try:
            data = self._socket.recv(CHUNK)
            if self.address.tls is not None:
                tls: Any = self._socket
                while tls.pending():  # decrypted already, so that no poll would tell of it
                    data += tls.recv(CHUNK)
        except (BlockingIOError, TimeoutError):
            return True
        except OSError:
            data = b""
        if not data:
            self.dead = True
            return False
        self._reader.feed(data)
        return True
