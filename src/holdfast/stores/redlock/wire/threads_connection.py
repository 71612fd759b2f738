"""The connections of blocking code: a socket to one node, and a set with a socket to each of them."""

from __future__ import annotations

import select
import socket
import time
from collections import deque
from collections.abc import Callable, Sequence
from math import ceil
from typing import Any

from ....clock import Clock
from ....errors import BackendUnavailable
from ....interrupts import let_through
from ....refusals import reason
from ...redis.address import Address
from ...redis.wire.protocol import NOTHING, Late, Lost
from ...redis.wire.refusals import reason_of
from ...redis.wire.sockets import open_socket
from ..membership import NodeTable, failure_reason

OnReply = Callable[[int, Any], bool]
"""Called with each node's reply, or the error in its place; returns True when that is enough."""

CHUNK = 65536
LONGEST_POLL = 0.1
"""Seconds after which a routine that waits for a node looks whether the wire was shut."""


class FanOut:
    """A request to several nodes, while their replies come."""

    __slots__ = ("enough", "missing", "on_reply")

    def __init__(self, on_reply: OnReply) -> None:
        self.on_reply = on_reply
        self.missing = 0
        """The number of nodes that have not replied."""
        self.enough = False
        """True once `on_reply` has enough."""

    def receive(self, index: int, reply: Any) -> None:
        """Takes a node's reply, or the error that stands for it."""
        self.missing -= 1
        if self.on_reply(index, reply):
            self.enough = True


class NodeSocket:
    """A connection to one node. Replies come in the order of the commands."""

    __slots__ = (
        "_address",
        "_feed",
        "_gets",
        "_is_shut",
        "_now",
        "_recv",
        "_send",
        "_socket",
        "fd",
        "index",
        "pending",
        "run_id",
    )

    def __init__(
        self,
        address: Address,
        index: int,
        clock: Clock,
        is_shut: Callable[[], bool],
        deadline: float,
    ) -> None:
        from hiredis import Reader

        self._address = address
        self.index = index
        self._now = clock.now
        self._is_shut = is_shut
        """Returns whether the wire was shut."""
        reader = Reader(notEnoughData=NOTHING)
        self._feed, self._gets = reader.feed, reader.gets
        self.pending: deque[tuple[FanOut, float]] = deque()
        """The fan-outs whose replies are still to come, each with its deadline."""
        self.run_id = b""
        """The run_id of the server at the other end."""
        self._socket = _connected(address, deadline - clock.now())
        self._send, self._recv = self._socket.send, self._socket.recv
        self.fd: int = self._socket.fileno()

    def send(self, command: bytes, fan_out: FanOut, deadline: float) -> None:
        """Sends a command, or raises OSError: also if the buffer is full, as with a stuck server."""
        if self._send(command) != len(command):
            raise ConnectionResetError("it does not read what it is sent")
        self.pending.append((fan_out, deadline))
        fan_out.missing += 1

    def is_overdue(self, now: float) -> bool:
        """Returns whether a reply should have come before."""
        return bool(self.pending) and self.pending[0][1] < now

    def read_replies(self, table: NodeTable | None = None) -> None:
        """Passes on the replies that have come, without waiting; tells the table of refusals.

        Raises OSError if the connection has ended.
        """
        try:
            data = self._recv(CHUNK)
        except (BlockingIOError, InterruptedError) as error:
            let_through(error)
            return
        except OSError as error:
            if type(error).__name__ in ("SSLWantReadError", "SSLWantWriteError"):
                return
            raise
        if not data:
            raise ConnectionResetError("it hung up")
        self._feed(data)
        while (reply := self._gets()) is not NOTHING:
            if self.pending:
                fan_out, _ = self.pending.popleft()
                if table is not None and isinstance(reply, Exception):
                    table.report_failure(self.index, failure_reason(reply))
                fan_out.receive(self.index, reply)

    def is_open(self) -> bool:
        """Returns False if the connection has ended, as far as this end knows."""
        try:
            self.read_replies()
        except OSError as error:
            let_through(error)
            return False
        return True

    def exchange(self, commands: Sequence[bytes], deadline: float) -> list[Any]:
        """Returns the replies to `commands`, in order. Raises `Lost`, also if the wire is shut."""
        replies: list[Any] = []

        def on_reply(_: int, reply: Any) -> bool:
            replies.append(reply)
            return False

        fan_out = FanOut(on_reply)
        began = self._now()
        try:
            for command in commands:
                self.send(command, fan_out, deadline)
            # If this thread stood still while it sent, the node has its time all the same.
            deadline += self._now() - began
            poll = select.poll()
            poll.register(self.fd, select.POLLIN)
            while fan_out.missing:
                if self._is_shut():
                    raise Lost("this connection to the nodes is closed")
                # If it stood still since, the reply is there: it always looks before it gives up.
                left = max(0.0, deadline - self._now())
                if poll.poll(ceil(min(left, LONGEST_POLL) * 1000)):
                    self.read_replies()
                elif left == 0.0:
                    raise Late(f"{self._address} did not answer in time")
        except OSError as error:
            let_through(error)
            if isinstance(error, Lost):
                raise
            refusal = self._last_refusal(replies)
            if refusal is not None:
                raise Lost(f"{self._address} {reason_of(refusal)}") from error
            raise Lost(f"the connection to {self._address} broke: {error}") from error
        return replies

    def _last_refusal(self, replies: Sequence[Any]) -> Exception | None:
        """Returns the refusal among the `replies` that came before the connection broke.

        A server that lets nobody in says why, and hangs up: mostly before the last command was sent.
        """
        try:
            self.read_replies()
        except OSError as error:
            let_through(error)
        return next((reply for reply in replies if isinstance(reply, Exception)), None)

    def close(self) -> None:
        """Closes the connection."""
        self._socket.close()


class SocketSet:
    """A socket to each node, for one thread at a time."""

    __slots__ = ("by_fd", "poll", "sockets", "used_at")

    def __init__(self, count: int) -> None:
        self.sockets: list[NodeSocket | None] = [None] * count
        self.by_fd: dict[int, int] = {}
        self.poll = select.poll()
        self.used_at = 0.0
        """The moment at which the set was last used."""

    def put(self, index: int, node_socket: NodeSocket) -> None:
        """Makes `node_socket` the one to the node `index`."""
        self.drop(index)
        self.sockets[index] = node_socket
        self.by_fd[node_socket.fd] = index
        self.poll.register(node_socket.fd, select.POLLIN)

    def drop(self, index: int) -> None:
        """Closes the socket to the node `index`, if there is one."""
        node_socket, self.sockets[index] = self.sockets[index], None
        if node_socket is not None:
            self.by_fd.pop(node_socket.fd, None)
            self.poll.unregister(node_socket.fd)
            node_socket.close()

    def extend(self, fan_out: FanOut, deadline: float) -> None:
        """Gives the nodes until `deadline` to reply to what was sent last, for `fan_out`."""
        for node_socket in self.sockets:
            pending = node_socket.pending if node_socket is not None else None
            if pending and pending[-1][0] is fan_out:
                pending[-1] = (fan_out, deadline)

    def close(self) -> None:
        """Closes all sockets."""
        for index in range(len(self.sockets)):
            self.drop(index)


def _connected(address: Address, timeout: float) -> socket.socket:
    now = time.monotonic
    if timeout <= 0:
        raise BackendUnavailable(f"no time was left to reach {address}")
    try:
        sock = open_socket(address, now() + timeout, now)
    except OSError as error:
        let_through(error)
        raise BackendUnavailable(f"{address} cannot be reached: {reason(error)}") from error
    sock.setblocking(False)
    return sock
