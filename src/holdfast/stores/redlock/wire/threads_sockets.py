"""Connections of blocking code to the nodes: a *line* to one, a *lane* to each of them.

The twin is `links`.
"""

from __future__ import annotations

import select
import socket
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from ....clock import Clock
from ....errors import BackendUnavailable
from ...redis.address import Address
from ...redis.wire.protocol import NOTHING, Late, Lost
from ...redis.wire.sockets import open_socket
from ..membership import Board, why

Heard = Callable[[int, Any], bool]
"""Called with each node's answer, or the error that it is without; True: enough."""

CHUNK = 65536
LOOK = 0.1
"""Seconds after which those who look after a node see whether they still need to."""
FULL = "it does not read what it is sent"


class Asking:
    """A question to several nodes, while its answers come."""

    __slots__ = ("enough", "heard", "left")

    def __init__(self, heard: Heard) -> None:
        self.heard = heard
        self.left = 0
        """So many answers are missing."""
        self.enough = False

    def answered(self, index: int, reply: Any) -> None:
        self.left -= 1
        if self.heard(index, reply):
            self.enough = True


class Line:
    """One connection. Its answers come in the order of the commands."""

    __slots__ = (
        "_address",
        "_feed",
        "_gets",
        "_recv",
        "_socket",
        "asked",
        "fd",
        "index",
        "run_id",
        "write",
    )

    def __init__(self, address: Address, timeout: float, index: int) -> None:
        from hiredis import Reader

        self._address = address
        self.index = index
        reader = Reader(notEnoughData=NOTHING)
        self._feed, self._gets = reader.feed, reader.gets
        self.asked: deque[tuple[Asking, float]] = deque()
        """Who wants to hear the answers to come, and until when they should be here."""
        self.run_id = b""
        self._socket = _connected(address, timeout)
        self.write, self._recv = self._socket.send, self._socket.recv
        self.fd: int = self._socket.fileno()

    def send(self, command: bytes, who: Asking, deadline: float) -> None:
        """Raises OSError. Commands are short: a buffer that is full means that nobody reads."""
        if self.write(command) != len(command):
            raise ConnectionResetError(FULL)
        self.asked.append((who, deadline))
        who.left += 1

    def take_in(self, board: Board | None = None) -> None:
        """Tell those who asked what has come, without waiting, and the board of refusals."""
        try:
            data = self._recv(CHUNK)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            if type(error).__name__ in ("SSLWantReadError", "SSLWantWriteError"):
                return
            raise
        if not data:
            raise ConnectionResetError("it hung up")
        self._feed(data)
        gets, asked, index = self._gets, self.asked, self.index
        while (reply := gets()) is not NOTHING:
            if asked:
                who = asked.popleft()[0]
                if type(reply) is not int and board is not None and isinstance(reply, Exception):
                    board.failed(index, why(reply))
                who.left -= 1  # `answered`, in short
                if who.heard(index, reply):
                    who.enough = True

    def ask(
        self, commands: Sequence[bytes], clock: Clock, deadline: float, shut: Callable[[], bool]
    ) -> list[Any]:
        """Wait for the answers to these, in their order. Raises `Lost`; also once it is shut."""
        replies: list[Any] = []

        def heard(_: int, reply: Any) -> bool:
            replies.append(reply)
            return False

        who = Asking(heard)
        try:
            for command in commands:
                self.send(command, who, deadline)
            poll = select.poll()
            poll.register(self.fd, select.POLLIN)
            while who.left:
                left = deadline - clock.now()
                if left <= 0:
                    raise Late(f"{self._address} did not answer in time")
                if shut():
                    raise Lost("this connection to the nodes is closed")
                if poll.poll(min(left, LOOK) * 1000 + 1):
                    self.take_in()
        except OSError as error:
            if isinstance(error, Lost):
                raise
            raise Lost(f"the connection to {self._address} broke: {error}") from error
        return replies

    def close(self) -> None:
        self._socket.close()


class Lane:
    """A connection to each node, for one thread at a time."""

    __slots__ = ("by_fd", "lines", "poll", "used")

    def __init__(self, count: int) -> None:
        self.lines: list[Line | None] = [None] * count
        self.by_fd: dict[int, int] = {}
        self.poll = select.poll()
        self.used = 0.0
        """When it was last used."""

    def put(self, index: int, line: Line) -> None:
        self.drop(index)
        self.lines[index] = line
        self.by_fd[line.fd] = index
        self.poll.register(line.fd, select.POLLIN)

    def drop(self, index: int) -> None:
        line, self.lines[index] = self.lines[index], None
        if line is not None:
            self.by_fd.pop(line.fd, None)
            self.poll.unregister(line.fd)
            line.close()

    def close(self) -> None:
        for index in range(len(self.lines)):
            self.drop(index)


def _connected(address: Address, timeout: float) -> socket.socket:
    now = time.monotonic
    if timeout <= 0:
        raise BackendUnavailable(f"no time was left to reach {address}")
    try:
        sock = open_socket(address, now() + timeout, now)
    except OSError as error:
        raise BackendUnavailable(f"{address} cannot be reached: {error}") from error
    sock.setblocking(False)
    return sock
