"""The wire to etcd for blocking code. Its twin is `aio`: the same names, the same meanings.

Each call has a connection to itself, from a pool. No mutex is held while a socket is used, and a call
that is interrupted, by whatever, closes its connection.
"""

from __future__ import annotations

import os
import select
import socket
from _thread import allocate_lock, get_ident, start_new_thread
from collections import deque
from collections.abc import Callable, Sequence
from threading import RLock
from typing import TypeVar

from .... import forks
from ....clock import system_clock
from ....interrupts import let_through
from ..address import Address
from .failures import Failure, failure_of, unreachable
from .http2.blocking import BlockingConnection, Late, open_socket
from .http2.frames import Broken
from .http2.headers import request_block
from .http2.sending import Stream as Http2Stream
from .members import KeepAlive, Members
from .messages import AUTHENTICATE, LEASE_KEEP_ALIVE, WATCH

CONNECT_LIMIT = 5.0
"""Seconds in which the connection of a watch stream has to be open."""
TRIES = 3
"""The number of times that a request which the server has not touched is sent."""
OVER = 1e15
"""A time behind every deadline."""
MOST_IDLE = 64
"""The number of idle connections to a member that are kept."""

Result = TypeVar("Result")
Open = Callable[[Callable[[], float]], BlockingConnection]
"""A function that opens a connection; time is over once the clock that it is given says so."""


class Wire:
    """A pool of connections to each member, opened when needed; calls go to one member at a time."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._tls = address.tls
        self._now = system_clock().now
        self._members = Members(address)
        self._keep_alive = KeepAlive()
        self._token = ""
        self.closed = False
        self._made_in = forks.current()
        self._idle: dict[str, list[BlockingConnection]] = {
            endpoint: [] for endpoint in self._address.endpoints
        }
        self._used: set[BlockingConnection] = set()
        self._streams: set[Stream] = set()
        """The streams that have not ended, also one whose opening was interrupted: nobody has that."""

    @property
    def endpoint(self) -> str:
        return self._members.endpoint

    def turn_from(self, endpoint: str) -> None:
        """Turns from a member that is no good now to the next; once, however many callers say so."""
        self._members.turn_from(endpoint)

    def log_in(self, token: str) -> None:
        """Sends `token` with all calls from now on; none if it is empty."""
        self._token = token

    def call(self, method: str, request: bytes, timeout: float) -> bytes:
        """Returns the reply of one member. A call that raised `Failure` may have been carried out."""
        endpoint = self._members.endpoint
        deadline = self._now() + timeout
        # A login is sent without a token: with one that is not known it would be refused.
        token = self._token if method is not AUTHENTICATE else ""
        block = request_block(method, endpoint, self._tls is not None, token)
        linger = method is LEASE_KEEP_ALIVE
        tries = 0
        while True:
            tries += 1
            stream = self._use(
                endpoint,
                deadline,
                lambda link: link.call(block, request, deadline, linger=linger),
            )
            end = stream.end
            if stream.messages and end is not None and end.code == "OK":
                return stream.messages[0]
            if end is None or not end.untouched or tries == TRIES or self._now() >= deadline:
                raise failure_of(end, endpoint)

    def call_all(self, method: str, requests: Sequence[bytes], timeout: float) -> None:
        """Makes several calls at once; those without a reply may have been carried out or not."""
        endpoint = self._members.endpoint
        block = request_block(method, endpoint, self._tls is not None, self._token)
        deadline = self._now() + timeout
        self._use(endpoint, deadline, lambda link: link.call_all(block, requests, deadline))

    def _use(
        self, endpoint: str, deadline: float, work: Callable[[BlockingConnection], Result]
    ) -> Result:
        """Returns what `work` returns, on a connection that it has to itself."""
        forks.refuse_inherited(self._made_in)
        idle, used = self._idle[endpoint], self._used
        connection: BlockingConnection | None = None
        whole = False
        try:
            connection = self._alive(idle) or self._open(endpoint, deadline)
            used.add(connection)
            forks.refuse_inherited(self._made_in)  # again: a child opens one of its own
            if self.closed:
                raise Failure("CANCELLED", "this connection to the store is closed", endpoint, True)
            result = work(connection)
            whole = True
            return result
        except Late:
            # If it is the way that is broken, the idle ones are no better.
            self._close_idle(idle)
            raise Failure("DEADLINE_EXCEEDED", "", endpoint) from None
        except (Broken, OSError) as error:
            let_through(error)
            text = getattr(error, "strerror", None) or str(error)
            raise Failure("UNAVAILABLE", f"{endpoint}: {text}", endpoint) from None
        finally:
            if connection is not None:
                used.discard(connection)
                if whole and not connection.core.full and len(idle) < MOST_IDLE:
                    idle.append(connection)
                    if self.closed:  # perhaps meanwhile
                        self._close_idle(idle)
                else:
                    connection.close()

    def _alive(self, idle: list[BlockingConnection]) -> BlockingConnection | None:
        """Takes an idle connection that the server has not closed, if there is one."""
        while idle:
            try:
                connection = idle.pop()
            except IndexError:  # another thread was quicker
                return None
            if connection.is_alive():
                return connection
            connection.close()
        return None

    def _open(self, endpoint: str, deadline: float) -> BlockingConnection:
        """Returns a new connection."""
        if self.closed:
            raise Failure("CANCELLED", "this connection to the store is closed", endpoint, True)
        try:
            sock = open_socket(endpoint, self._tls, deadline, self._now)
        except (OSError, Late) as error:
            let_through(error)
            late = isinstance(error, Late)
            raise unreachable(TimeoutError() if late else error, endpoint) from None
        return BlockingConnection(sock, self._now)

    def watch(
        self,
        requests: Sequence[bytes],
        heard: Callable[[bytes], None],
        ended: Callable[[Failure], None],
    ) -> Stream:
        """Opens a stream of messages, until it ends or is closed; nothing is called after `close`.

        It has a connection of its own: a proxy may allow few streams on each.
        """
        endpoint = self.endpoint
        if self.closed:
            raise Failure("CANCELLED", "this connection to the store is closed", endpoint, True)
        block = request_block(WATCH, endpoint, self._tls is not None, self._token)
        tls, limit = self._tls, self._now() + CONNECT_LIMIT

        def open_connection(now: Callable[[], float]) -> BlockingConnection:
            return BlockingConnection(open_socket(endpoint, tls, limit, now), now)

        try:
            return Stream(
                endpoint,
                block,
                open_connection,
                requests,
                self._now,
                self._keep_alive,
                heard,
                ended,
                self._streams,
            )
        except (OSError, RuntimeError) as error:  # no more descriptors, or no more threads
            let_through(error)
            raise unreachable(error, endpoint) from None

    def close(self) -> None:
        self.closed = True
        if self._made_in != forks.current():
            return  # all of it is the parent's
        for idle in self._idle.values():
            self._close_idle(idle)
        for connection in list(self._used):
            connection.interrupt()
        for stream in list(self._streams):
            stream.close()

    def _close_idle(self, idle: list[BlockingConnection]) -> None:
        while idle:
            try:
                idle.pop().close()
            except IndexError:  # another thread was quicker
                return


class Stream:
    """A watch stream: requests go out in order, each message that comes in is given to `heard`.

    One thread has its connection, from opening to closing it; others put requests down for that thread.
    """

    def __init__(
        self,
        endpoint: str,
        block: bytes,
        open_connection: Open,
        requests: Sequence[bytes],
        now: Callable[[], float],
        keep_alive: KeepAlive,
        heard: Callable[[bytes], None],
        ended: Callable[[Failure], None],
        streams: set[Stream],
    ) -> None:
        self.endpoint = endpoint
        self._block = block
        self._open = open_connection
        self._unsent = deque(requests)
        self._clock_now = now
        self._keep_alive = keep_alive
        self._heard = heard
        self._ended = ended
        self._mutex = RLock()
        self._bell, self._ring = socket.socketpair()
        """The two ends of what wakes the thread; `_mutex` is held to ring, and to close them."""
        self._bell.setblocking(False)
        self._ring.setblocking(False)
        self._opened = False
        self._closed = False
        self._over = False
        self._process = os.getpid()
        self._runner = 0
        """The number of the thread."""
        self._running = allocate_lock()
        self._running.acquire()
        self._streams = streams
        streams.add(self)
        try:
            start_new_thread(self._run, ())  # no Thread, whose start can be interrupted
        except RuntimeError as error:  # no more threads
            let_through(error)
            streams.discard(self)
            self._bell.close()
            self._ring.close()
            raise

    def send(self, message: bytes) -> None:
        self._unsent.append(message)
        self._wake()

    def close(self) -> None:
        self._closed = True
        self._wake()
        # A thread that still connects ends soon, and calls nothing. In a forked child there is none.
        if self._opened and self._runner != get_ident() and self._process == os.getpid():
            with self._running:
                return

    def _wake(self) -> None:
        with self._mutex:
            if not self._over:
                try:
                    self._ring.send(b"\0")
                except BlockingIOError:
                    return  # it is full, so the thread will wake up

    def _now(self) -> float:
        """Returns the time; time is over once the stream is closed."""
        return OVER if self._closed else self._clock_now()

    # The thread.

    def _run(self) -> None:
        self._runner = get_ident()
        try:
            self._serve_until_end()
        finally:
            self._streams.discard(self)
            self._running.release()

    def _serve_until_end(self) -> None:
        # What is told if a callback raises: no watch may die with it.
        failure: Failure | None = Failure("UNAVAILABLE", "the watch ended", self.endpoint)
        connection = None
        try:
            try:
                connection = self._open(self._now)
            except (OSError, Late) as error:
                late = isinstance(error, Late)
                failure = unreachable(TimeoutError() if late else error, self.endpoint)
            else:
                self._opened = True
                failure = self._listen(connection)
        finally:
            with self._mutex:
                self._over = True
                self._bell.close()
                self._ring.close()
            if connection is not None:
                if connection.core.too_many_pings:
                    self._keep_alive.slow_down()
                connection.close()
            if failure is not None and not self._closed:
                self._ended(failure)

    def _listen(self, connection: BlockingConnection) -> Failure | None:
        """Serves the stream until its end; returns None if it was closed by us."""
        try:
            return self._serve(connection)
        except (OSError, Broken, Late) as error:
            text = getattr(error, "strerror", None) or str(error) or "it gives no sign of life"
            return Failure("UNAVAILABLE", f"{self.endpoint}: {text}", self.endpoint)

    def _serve(self, connection: BlockingConnection) -> Failure | None:
        core, now, keep_alive = connection.core, self._clock_now, self._keep_alive
        poller = select.poll()
        poller.register(connection.fileno(), select.POLLIN)
        bell = self._bell.fileno()
        poller.register(bell, select.POLLIN)
        stream: Http2Stream | None = None
        last_heard, pinged = now(), 0.0
        while not self._closed:
            while self._unsent:
                message = self._unsent.popleft()
                if stream is None:
                    stream = core.open(self._block, message, finished=False)
                else:
                    core.send(stream, message)
            connection.flush(now() + keep_alive.patience)
            due = pinged + keep_alive.patience if pinged else last_heard + keep_alive.pause
            ready = poller.poll(min(max(due - now(), 0.0), 1.0) * 1000 + 1)
            if not ready:
                if stream is None:
                    last_heard = now()
                if now() < due or stream is None:
                    continue
                if pinged:
                    raise Late
                pinged = now()
                core.ping()
                continue
            fds = [fd for fd, _ in ready]
            if bell in fds:
                self._bell.recv(4096)
            if fds == [bell]:
                continue
            connection.take_in()
            last_heard, pinged = now(), 0.0
            if stream is None:
                continue
            messages, stream.messages = stream.messages, []
            for message in messages:
                if self._closed:
                    return None
                self._heard(message)
            if stream.end is not None:
                return failure_of(stream.end, self.endpoint)
        return None
