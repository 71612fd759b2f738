"""A connection for blocking code, which one thread uses at a time.

It waits with poll and looks at the clock after each return, so no signal prolongs a wait. Whatever
interrupts a call, the connection is closed and not used again.
"""

from __future__ import annotations

import select
import socket
import ssl
from collections.abc import Sequence

from .....interrupts import let_through
from .... import polled_sockets
from ....polled_sockets import Late, Now, Socket, milliseconds, send_all, wait_for
from ...address import host_and_port
from .connection import Connection
from .frames import Broken
from .sending import Stream

__all__ = ["BlockingConnection", "Late", "open_socket"]

CHUNK = 65536


def open_socket(endpoint: str, tls: ssl.SSLContext | None, deadline: float, now: Now) -> Socket:
    """Returns a socket that is connected to a member, TLS included; raises `OSError` or `Late`."""
    sock = polled_sockets.open_socket(*host_and_port(endpoint), tls, deadline, now)
    if isinstance(sock, ssl.SSLSocket) and sock.selected_alpn_protocol() != "h2":
        sock.close()
        raise OSError("the server speaks TLS, but not HTTP/2 in it, as etcd does")
    return sock


class BlockingConnection:
    """A socket, and the state of the connection on it."""

    __slots__ = ("_now", "_poll", "_socket", "_tls", "core")

    def __init__(self, sock: Socket, now: Now) -> None:
        self.core = Connection()
        self._socket = sock
        self.core.tls = self._tls = isinstance(sock, ssl.SSLSocket)
        self._now = now
        poller = select.poll()
        poller.register(sock.fileno(), select.POLLIN)
        self._poll = poller.poll

    def call(self, block: bytes, request: bytes, deadline: float, *, linger: bool) -> Stream:
        """Makes one call and returns its stream, which has ended.

        With `linger` our side of the stream stays open until there is a reply: etcd's proxy keeps no
        lease alive for a client that has ended its side.
        """
        core = self.core
        stream = core.open(block, request, finished=not linger)
        self.flush(deadline)
        while stream.end is None:
            core.receive(self._receive(deadline))
            if linger and stream.messages:
                core.conclude(stream)
            self.flush(deadline)
            if self._now() >= deadline and not stream.end:
                raise Late  # though the server says something: pings, or the rest of an old reply
        return stream

    def call_all(self, block: bytes, requests: Sequence[bytes], deadline: float) -> list[Stream]:
        """Makes several calls at once and returns their streams, which have ended."""
        core = self.core
        streams = [core.open(block, request, finished=True) for request in requests]
        self.flush(deadline)
        while any(stream.end is None for stream in streams):
            if self._now() >= deadline:
                raise Late
            core.receive(self._receive(deadline))
            self.flush(deadline)
        return streams

    def fileno(self) -> int:
        return self._socket.fileno()

    def flush(self, deadline: float) -> None:
        """Sends all that is to be sent."""
        send_all(self._socket, self.core.take_output(), deadline, self._now)

    def take_in(self) -> list[Stream]:
        """Takes in what has come, without waiting; returns the streams of which there is news."""
        news: list[Stream] = []
        while True:
            try:
                data = self._socket.recv(CHUNK)
            except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError) as error:
                let_through(error)
                return news
            if not data:
                raise Broken(self.core.closed_by_server())
            news += self.core.receive(data)

    def is_alive(self) -> bool:
        """Returns False if the server has closed the connection, or takes no more calls on it."""
        try:
            self.take_in()
        except (OSError, Broken) as error:
            let_through(error)
            return False
        return not self.core.full

    def _receive(self, deadline: float) -> bytes:
        """Returns what has come; waits until there is something."""
        while True:
            # TLS may have taken in more than it has given out, which no poll can see.
            if self._tls or self._poll(milliseconds(deadline - self._now())):
                try:
                    data = self._socket.recv(CHUNK)
                except (BlockingIOError, ssl.SSLWantReadError) as error:
                    let_through(error)
                    wait_for(self._socket, select.POLLIN, deadline, self._now)
                    continue
                except ssl.SSLWantWriteError:
                    wait_for(self._socket, select.POLLOUT, deadline, self._now)
                    continue
                if not data:
                    raise Broken(self.core.closed_by_server())
                return data
            if self._now() >= deadline:
                raise Late

    def interrupt(self) -> None:
        """Has a thread that waits here find the connection closed."""
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError as error:
            let_through(error)  # else it is closed already

    def close(self) -> None:
        """Closes the socket, without a word to the server: it may be shared with a parent process."""
        self._socket.close()
