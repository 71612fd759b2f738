"""A connection for blocking code, which one thread uses at a time.

It waits with poll and looks at the clock after each return, so no signal prolongs a wait.
"""

from __future__ import annotations

import select
import socket
import ssl
from collections.abc import Callable

from ....interrupts import let_through
from ...polled_sockets import Late, Socket, milliseconds, send_all, wait_for
from .http1 import Answer, Broken, Reader

CHUNK = 65536


class Connection:
    """A connection on which one request is under way at a time. After an error it is of no more use."""

    __slots__ = ("_now", "_poll", "_socket", "_tls", "reusable", "used")

    def __init__(self, sock: Socket, now: Callable[[], float]) -> None:
        self._socket = sock
        self._tls = isinstance(sock, ssl.SSLSocket)
        self._now = now
        self.used = now()
        """When it was last given back."""
        self.reusable = False
        """Whether another request may follow the last answer."""
        poller = select.poll()
        poller.register(sock.fileno(), select.POLLIN)
        self._poll = poller.poll

    def call(self, request: bytes, deadline: float, endpoint: str) -> Answer:
        """Sends a request and returns its answer; raises `OSError`, `Broken` or `Late`."""
        self.reusable = False
        reader = Reader()
        self.send(request, deadline)
        while True:
            reader.feed(self.receive(deadline))
            if reader.done:
                break
            if self._now() >= deadline:
                raise Late  # though it says something, now and then
        self.reusable = reader.keep
        return Answer(reader.status, reader.headers, reader.take_body(), endpoint)

    def send(self, request: bytes, deadline: float) -> None:
        send_all(self._socket, request, deadline, self._now)

    def receive(self, deadline: float) -> bytes:
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
                    raise Broken("it closed the connection")
                return data
            if self._now() >= deadline:
                raise Late

    def take_in(self) -> bytes:
        """Returns what has come, without waiting; raises `Broken` if the service has hung up."""
        try:
            data = self._socket.recv(CHUNK)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError) as error:
            let_through(error)
            return b""
        if not data:
            raise Broken("it closed the connection")
        return data

    def is_alive(self) -> bool:
        """Returns False if the service has closed the connection, or said what it was not asked."""
        try:
            return not self.take_in()
        except (OSError, Broken) as error:
            let_through(error)
            return False

    def fileno(self) -> int:
        return self._socket.fileno()

    def interrupt(self) -> None:
        """Has a thread that waits here find the connection closed."""
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError as error:
            let_through(error)  # else it is closed already

    def close(self) -> None:
        """Closes the socket, without a word to the service: it may be shared with a parent process."""
        self._socket.close()
