"""A stream of events for blocking code."""

from __future__ import annotations

import select
import socket
from collections.abc import Callable
from threading import RLock

from ....refusals import reason
from ...polled_sockets import Late, open_socket
from ..address import Endpoint
from .blocking_connection import Connection
from .events import EventReader, check_stream
from .failures import Failure, unreachable
from .http1 import Broken, Reader

CONNECT_LIMIT = 5.0
"""Seconds in which the connection of a stream has to be open, and the request sent."""
PATIENCE = 45.0
"""Seconds without a word on a stream after which it is given up. A service says something, be it only
that it lives, every 15 seconds."""
OVER = 1e15
"""A time behind every deadline."""
LONGEST_POLL = 1000
"""Milliseconds after which the clock is looked at again."""


class Stream:
    """A stream of events, which has a connection to itself, and the thread that calls `run`."""

    def __init__(
        self,
        place: Endpoint,
        request: bytes,
        now: Callable[[], float],
        opened: Callable[[], None],
        heard: Callable[[str, bytes], None],
    ) -> None:
        self.endpoint = str(place)
        self._place = place
        self._request = request
        self._clock_now = now
        self._opened = opened
        self._heard = heard
        self._mutex = RLock()  # the handler of a signal may call `close`
        self._ring: socket.socket | None = None
        """The end at which `close` wakes the thread; `_mutex` is held to use it, and to close it."""
        self._closed = False

    def run(self) -> None:
        """Serves the stream until it ends; raises `Failure`, unless it was closed by us."""
        connection = None
        bell, ring = socket.socketpair()
        try:
            ring.setblocking(False)
            with self._mutex:
                self._ring = ring
            limit = self._clock_now() + CONNECT_LIMIT
            place = self._place
            sock = open_socket(place.host, place.port, place.tls, limit, self._now)
            connection = Connection(sock, self._now)
            connection.send(self._request, limit)
            self._serve(connection, bell)
        except (OSError, Late, Broken) as error:
            why = TimeoutError() if isinstance(error, Late) else error
            if self._closed:
                return
            if connection is None:
                raise unreachable(why, self.endpoint) from None
            raise Failure(reason(why) or "it gives no sign of life", self.endpoint) from None
        finally:
            with self._mutex:
                self._ring = None
                bell.close()
                ring.close()
            if connection is not None:
                connection.close()
        if not self._closed:
            raise Failure("the stream ended", self.endpoint)

    def close(self) -> None:
        """Has `run` end, and nothing more be called."""
        self._closed = True
        with self._mutex:
            if self._ring is not None:
                try:
                    self._ring.send(b"\0")
                except BlockingIOError:
                    return  # it is full, so the thread will wake up

    def _now(self) -> float:
        """Returns the time; time is over once the stream is closed."""
        return OVER if self._closed else self._clock_now()

    def _serve(self, connection: Connection, bell: socket.socket) -> None:
        """Reads the stream until its end."""
        reader, events = Reader(None), EventReader()
        is_open = False
        poller = select.poll()
        poller.register(connection.fileno(), select.POLLIN)
        poller.register(bell.fileno(), select.POLLIN)
        last_heard = self._clock_now()
        while not self._closed:
            data = connection.take_in()
            if not data:
                if self._clock_now() - last_heard > PATIENCE:
                    raise Late
                poller.poll(LONGEST_POLL)
                continue
            last_heard = self._clock_now()
            reader.feed(data)
            if reader.status and not is_open:
                check_stream(reader)
                is_open = True
                self._opened()
            for name, text in events.feed(reader.take_body()):
                if self._closed:
                    return
                self._heard(name, text)
            if reader.done:
                return
