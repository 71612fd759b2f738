"""Calls of blocking code to single nodes: recovery's, on connections of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import Any

from ....clock import Clock
from ...redis.wire.protocol import Lost
from .threads_connection import NodeSocket
from .threads_opening import SocketOpener


class NodeCalls:
    """A socket to each node that was reached, and a mutex for it."""

    def __init__(self, opener: SocketOpener, clock: Clock) -> None:
        self._opener = opener
        self._clock = clock
        self._sockets: list[NodeSocket | None] = [None] * len(opener.addresses)
        self._mutexes = [Lock() for _ in opener.addresses]
        self._closed = False

    def reach(self, index: int, deadline: float) -> list[Any]:
        """Returns one node's replies to the first commands, on the socket there is or a new one."""
        with self._alone_with(index):
            node_socket = self._sockets[index]
            if node_socket is not None:
                try:
                    return node_socket.exchange(self._opener.first_commands, deadline)
                except Lost:
                    self._sockets[index] = None
                    node_socket.close()
                    if self._clock.now() >= deadline:
                        raise  # this reason, not that no time is left for a new socket
            node_socket, replies = self._opener.open(index, deadline)
            self._sockets[index] = node_socket
            return replies

    def call(
        self, index: int, commands: Sequence[bytes], deadline: float, run_id: bytes
    ) -> list[Any]:
        """Returns one node's replies to `commands`, on the socket there is or a new one.

        With a `run_id`, only if that socket leads to this run of the server.
        """
        with self._alone_with(index):
            node_socket = self._sockets[index]
            if node_socket is not None and not node_socket.is_open():
                # Servers close idle sockets. That says nothing of the node.
                self._sockets[index] = None
                node_socket.close()
                node_socket = None
            if node_socket is None:
                node_socket, _ = self._opener.open(index, deadline)
                self._sockets[index] = node_socket
            if run_id and node_socket.run_id != run_id:
                raise Lost(f"{self._opener.addresses[index]} has restarted")
            try:
                return node_socket.exchange(commands, deadline)
            except BaseException:
                self._sockets[index] = None
                node_socket.close()
                raise

    @contextmanager
    def _alone_with(self, index: int) -> Iterator[None]:
        """Keeps other calls to the node waiting. One that ends after `close` closes its socket."""
        try:
            with self._mutexes[index]:
                yield
        finally:
            if self._closed:
                self._close(index)

    def run_id(self, index: int) -> bytes:
        """Returns the run_id of the server on which the node was last reached."""
        node_socket = self._sockets[index]
        return b"" if node_socket is None else node_socket.run_id

    def close(self) -> None:
        """Closes all sockets, each when its call has returned: nobody waits for that."""
        self._closed = True
        for index in range(len(self._sockets)):
            self._close(index)

    def _close(self, index: int) -> None:
        mutex = self._mutexes[index]
        if mutex.acquire(blocking=False):  # otherwise whoever has it does the same next
            try:
                node_socket, self._sockets[index] = self._sockets[index], None
                if node_socket is not None:
                    node_socket.close()
            finally:
                mutex.release()
