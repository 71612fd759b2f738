"""Opening the sockets of blocking code, several at once where a set misses several."""

from __future__ import annotations

from _thread import LockType, allocate_lock, start_new_thread
from collections.abc import Callable, Sequence
from threading import Lock
from typing import Any

from ....clock import Clock
from ....errors import BackendUnavailable, ConfigError
from ...redis.address import Address
from ...redis.wire.protocol import check_hello, check_welcome, greeting
from ..membership import Marker, NodeTable, read_marker, run_id_of
from .threads_connection import NodeSocket, SocketSet

SHARE = 0.75
"""The part of a request's time in which a missing socket has to be open: that takes two or more round
trips."""
NAME_PATIENCE = 0.05
"""Seconds more that a thread which opens a socket has, to find the address of its host."""


class SocketOpener:
    """Opens sockets to the nodes."""

    def __init__(
        self,
        addresses: Sequence[Address],
        table: NodeTable,
        clock: Clock,
        first_commands: list[bytes],
        is_shut: Callable[[], bool],
    ) -> None:
        self.addresses = addresses
        self._table = table
        self._clock = clock
        self.first_commands = first_commands
        """Commands that every new socket begins with."""
        self._is_shut = is_shut

    def open(self, index: int, deadline: float) -> tuple[NodeSocket, list[Any]]:
        """Returns a new socket to a node, and its replies to the first commands; or raises."""
        address = self.addresses[index]
        node_socket = NodeSocket(address, index, self._clock, self._is_shut, deadline)
        try:
            hello = greeting(address)
            replies = node_socket.exchange([*hello, *self.first_commands], deadline)
            check_hello(replies[0], address)
            for reply in replies[1 : len(hello)]:
                check_welcome(reply, address)
        except BaseException:
            node_socket.close()
            raise
        first_replies = replies[len(hello) :]
        node_socket.run_id = run_id_of(first_replies[0])
        return node_socket, first_replies

    def fill(
        self, socket_set: SocketSet, commands: Sequence[bytes | None], deadline: float
    ) -> None:
        """Opens the missing sockets to voting nodes, all at once: one that hangs delays no other."""
        nodes = self._table.nodes
        missing = [
            index
            for index, command in enumerate(commands)
            if command is not None
            and socket_set.sockets[index] is None
            and nodes[index].incarnation
        ]
        if not missing:
            return
        now = self._clock.now()
        deadline = now + (deadline - now) * SHARE
        opened: list[NodeSocket | None] = [None] * len(nodes)
        over = False
        mutex = Lock()

        def open_one(index: int) -> None:
            node_socket = self._open_voting(index, deadline)
            with mutex:
                if not over:
                    opened[index] = node_socket
                    return
            if node_socket is not None:
                node_socket.close()

        def open_beside(index: int, done: LockType) -> None:
            try:
                open_one(index)
            finally:
                done.release()

        begun = []
        try:
            for index in missing[1:]:
                done = allocate_lock()
                done.acquire()
                # No Thread, whose start can be interrupted with its own locks held.
                start_new_thread(open_beside, (index, done))
                begun.append(done)
            open_one(missing[0])
            for done in begun:
                done.acquire(True, max(0.0, deadline - self._clock.now()) + NAME_PATIENCE)
        finally:
            with mutex:
                over = True
            for index, node_socket in enumerate(opened):
                if node_socket is not None:
                    socket_set.put(index, node_socket)

    def _open_voting(self, index: int, deadline: float) -> NodeSocket | None:
        """Returns a new socket to a voting node, for the incarnation in which it votes and no other."""
        incarnation = self._table.nodes[index].incarnation
        try:
            node_socket, replies = self.open(index, deadline)
        except (BackendUnavailable, ConfigError) as error:
            self._table.report_failure(index, str(error))
            return None
        try:
            marker = read_marker(replies[1]) if isinstance(replies[1], bytes) else None
        except ValueError:
            marker = None  # another program wrote over the key
        if (
            marker is None
            or marker.incarnation not in incarnation
            or not self._is_same_run(node_socket, marker)
        ):
            node_socket.close()
            self._table.report_failure(index, "it has restarted")
            return None
        return node_socket

    def _is_same_run(self, node_socket: NodeSocket, marker: Marker) -> bool:
        return self._table.durable or marker.incarnation.startswith(node_socket.run_id)
