"""The wire to a lock service for asyncio. Its twin is `threads`: the same names, the same meanings."""

from __future__ import annotations

import asyncio
import select
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from math import inf
from typing import Any, cast

from .... import forks
from ...._runtime.aio import descriptor
from ....clock import system_clock
from ....forked_sockets import end_in_children
from ....refusals import reason
from ...deadline_timer import DeadlineTimer
from ...etcd.wire.members import Members
from ...redis.wire.sockets import open_protocol, prepare
from ..address import Address, Endpoint
from .events import EventReader, check_stream
from .failures import CLOSED, LATE, Failure, closed, unreachable
from .http1 import Answer, Broken, Reader, request_of

ASYNCHRONOUS = True
CONNECT_LIMIT = 5.0
"""Seconds in which the connection of a stream has to be open."""
MOST = 32
"""Connections for requests to one service. Who finds all of them busy waits for one."""
SUSPECT_AFTER = 0.5
"""Seconds without use after which a connection is checked before it is used."""
PATIENCE = 45.0
"""Seconds without a word on a stream after which it is given up. A service says something, be it only
that it lives, every 15 seconds."""

Now = Callable[[], float]


class Connection(asyncio.Protocol):
    """A connection, on which one request is under way at a time; or a stream."""

    def __init__(self, endpoint: str, now: Now) -> None:
        self._loop = asyncio.get_running_loop()
        self.endpoint = endpoint
        self._now = now
        self._transport: asyncio.Transport | None = None
        self._reader: Reader | None = None
        self._future: asyncio.Future[None] | None = None
        self._deadline = inf
        self._timer = DeadlineTimer(self._loop, now, lambda: self._deadline, self._expire)
        self.on_news: Callable[[], None] | None = None
        """Function that is called when there is more of a stream, or its end."""
        self.dead = False
        self.reason = ""
        """Why it ended, once it has."""
        self.last_heard = now()

    async def call(self, request: bytes, deadline: float) -> Answer:
        """Sends a request and returns its answer; raises `Failure`. Interrupted, it is no more use."""
        if self.dead:
            raise Failure(self.reason, self.endpoint, untouched=True)
        reader = self._reader = Reader()
        self._future = self._loop.create_future()
        self._write(request)
        self._deadline = deadline
        if deadline < self._timer.due:
            self._timer.arm(deadline)
        try:
            await self._future
        finally:
            self._future, self._deadline = None, inf
            if not reader.done or not reader.keep:
                self.lose(CLOSED)
        if not reader.done:
            raise Failure(self.reason, self.endpoint)
        self._reader = None
        return Answer(reader.status, reader.headers, reader.take_body(), self.endpoint)

    def listen(self, request: bytes, reader: Reader, news: Callable[[], None]) -> None:
        """Sends a request for a stream; `news` is called whenever `reader` was fed, and at the end."""
        self._reader, self.on_news = reader, news
        if self.dead:
            news()
        else:
            self._write(request)

    def _write(self, data: bytes) -> None:
        assert self._transport is not None
        self._transport.write(data)

    def is_alive(self) -> bool:
        """Returns False if the service has closed it, also if the loop has yet to notice."""
        if self.dead or self._now() - self.last_heard < SUSPECT_AFTER:
            return not self.dead
        fd = self.fileno()
        if fd < 0:
            return True
        poller = select.poll()
        poller.register(fd, getattr(select, "POLLRDHUP", 0))
        return not poller.poll(0)

    def fileno(self) -> int:
        return descriptor(self._transport)

    def lose(self, why: str) -> None:
        """Ends the connection at once."""
        if self.dead:
            return
        self.dead, self.reason = True, why
        self._timer.cancel()
        if self._transport is not None:
            self._transport.abort()
        self._tell()

    def _tell(self) -> None:
        if self._future is not None and not self._future.done():
            self._future.set_result(None)
        if self.on_news is not None:
            self.on_news()

    # Called by the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # No isinstance: other event loops have transports of their own.
        self._transport = cast(asyncio.Transport, transport)
        end_in_children(self)
        sock = transport.get_extra_info("socket")
        if sock is not None:
            with suppress(OSError):  # it is closed, which we are told soon
                prepare(sock)

    def data_received(self, data: bytes) -> None:
        self.last_heard = self._now()
        if self._reader is None:
            self.lose("it answered what it was not asked")
            return
        try:
            self._reader.feed(data)
        except Broken as error:
            self.lose(str(error))
            return
        if self._reader.done or self.on_news is not None:
            self._tell()

    def eof_received(self) -> None:
        self.lose("it closed the connection")

    def connection_lost(self, error: Exception | None) -> None:
        self.lose(f"the connection broke: {reason(error)}" if error else "it closed the connection")

    def _expire(self, now: float) -> float:
        if now >= self._deadline:
            self.lose(LATE)
            return inf
        return self._deadline


async def open_connection(place: Endpoint, deadline: float, now: Now) -> Connection:
    """Returns a connection to one service, TLS included; raises `Failure`."""
    endpoint = str(place)
    try:
        return await open_protocol(
            asyncio.get_running_loop(), lambda: Connection(endpoint, now), place, deadline, now
        )
    except OSError as error:
        raise unreachable(error, endpoint) from None


class Wire:
    """Some connections to each service, opened when needed; requests go to one service at a time."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._now = system_clock().now
        self._members = Members(address)
        self.closed = False
        self._made_in = forks.current()
        self._idle: dict[str, list[Connection]] = {one: [] for one in self._address.endpoints}
        self._used: dict[str, int] = dict.fromkeys(self._address.endpoints, 0)
        self._line: dict[str, deque[asyncio.Future[None]]] = {
            one: deque() for one in self._address.endpoints
        }
        """The callers that wait for a connection."""
        self._open: set[Connection] = set()

    @property
    def endpoint(self) -> str:
        """The service that requests go to."""
        return self._members.endpoint

    def turn_from(self, endpoint: str) -> None:
        """Turns from a service that is no good now to the next; once, however many callers say so."""
        self._members.turn_from(endpoint)

    async def call(
        self,
        method: str,
        path: str,
        body: bytes | None,
        deadline: float,
        endpoint: str = "",
        ahead: bool = False,
    ) -> Answer:
        """Returns the answer of one service; raises `Failure`.

        `ahead`: it does not wait for one of the connections that others use.
        """
        endpoint = endpoint or self._members.endpoint
        request = request_of(
            method, self._address.prefix + path, self._address.headers(endpoint), body
        )
        forks.refuse_inherited(self._made_in)
        connection = None
        self._used[endpoint] += 1
        try:
            if self._used[endpoint] > MOST and not ahead:
                await self._wait_for_another(endpoint, deadline)
            connection = self._alive(endpoint)
            if connection is None:
                connection = await open_connection(
                    self._address.places[endpoint], deadline, self._now
                )
                self._open.add(connection)
            if self.closed:
                raise closed(endpoint)
            return await connection.call(request, deadline)
        finally:
            self._used[endpoint] -= 1
            if connection is not None:
                if connection.dead or self.closed or len(self._idle[endpoint]) >= MOST:
                    connection.lose(CLOSED)
                    self._open.discard(connection)
                else:
                    self._idle[endpoint].append(connection)
            self._call_next(endpoint)

    async def _wait_for_another(self, endpoint: str, deadline: float) -> None:
        """Waits until fewer than `MOST` requests are under way. The caller counts as one of them."""
        self._used[endpoint] -= 1
        try:
            while not self.closed and self._used[endpoint] >= MOST:
                left = deadline - self._now()
                if left <= 0:
                    raise Failure("too many requests are under way", endpoint, untouched=True)
                turn = asyncio.get_running_loop().create_future()
                self._line[endpoint].append(turn)
                try:
                    async with asyncio.timeout(left):
                        await turn
                except TimeoutError:
                    continue
                except BaseException:
                    if turn.done() and not turn.cancelled():
                        self._call_next(endpoint)  # it was our turn, and is another's now
                    raise
        finally:
            self._used[endpoint] += 1

    def _call_next(self, endpoint: str) -> None:
        line = self._line[endpoint]
        while line:
            turn = line.popleft()
            if not turn.done():
                turn.set_result(None)
                return

    def _alive(self, endpoint: str) -> Connection | None:
        """Takes an idle connection that the service has not closed, if there is one."""
        idle = self._idle[endpoint]
        while idle:
            connection = idle.pop()
            if connection.is_alive():
                return connection
            connection.lose(CLOSED)
            self._open.discard(connection)
        return None

    def stream(
        self, path: str, opened: Callable[[], None], heard: Callable[[str, bytes], None]
    ) -> Stream:
        """Returns a stream of events, not begun; `opened` and `heard` are called by its `run`."""
        endpoint = self._members.endpoint
        head = self._address.headers(endpoint) + b"Accept: text/event-stream\r\n"
        request = request_of("GET", self._address.prefix + path, head, None)
        return Stream(self._address.places[endpoint], request, self._now, opened, heard)

    async def close(self) -> None:
        self.closed = True
        if self._made_in != forks.current():
            return  # all of it is the parent's
        for connection in list(self._open):
            connection.lose(CLOSED)
        for line in self._line.values():
            while line:
                turn = line.popleft()
                if not turn.done():
                    turn.set_result(None)
        await asyncio.sleep(0)  # a transport closes its socket in the loop's next turn


class Stream:
    """A stream of events, which has a connection to itself."""

    def __init__(
        self,
        place: Endpoint,
        request: bytes,
        now: Now,
        opened: Callable[[], None],
        heard: Callable[[str, bytes], None],
    ) -> None:
        self.endpoint = str(place)
        self._place = place
        self._request = request
        self._now = now
        self._opened = opened
        self._heard = heard
        self._reader = Reader(None)
        self._events = EventReader()
        self._is_open = False
        self._connection: Connection | None = None
        self._loop = asyncio.get_running_loop()
        self._end: asyncio.Future[None] = self._loop.create_future()
        self._closed = False

    async def run(self) -> None:
        """Serves the stream until it ends; raises `Failure`, unless it was closed by us."""
        opening = self._loop.create_task(
            open_connection(self._place, self._now() + CONNECT_LIMIT, self._now)
        )
        timer = None
        try:
            both: list[asyncio.Future[Any]] = [opening, self._end]
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            if self._closed:
                return
            connection = self._connection = opening.result()
            timer = self._loop.call_later(PATIENCE, self._look, connection)
            connection.listen(self._request, self._reader, self._news)
            await self._end
            if not self._closed:
                raise Failure(connection.reason or "the stream ended", self.endpoint)
        finally:
            self._closed = True
            if timer is not None:
                timer.cancel()
            opening.cancel()
            opening.add_done_callback(_drop)

    def close(self) -> None:
        """Has `run` end, and nothing more be called."""
        self._closed = True
        self._finish()

    def _finish(self) -> None:
        if not self._end.done():
            self._end.set_result(None)

    def _news(self) -> None:
        reader, connection = self._reader, self._connection
        if self._closed or connection is None:
            return
        try:
            if reader.status and not self._is_open:
                check_stream(reader)
                self._is_open = True
                self._opened()
            for name, data in self._events.feed(reader.take_body()):
                if self._closed:
                    return
                self._heard(name, data)
        except Broken as error:
            connection.lose(str(error))
        if connection.dead or reader.done:
            self._finish()

    def _look(self, connection: Connection) -> None:
        quiet = self._now() - connection.last_heard
        if quiet >= PATIENCE:
            connection.lose("it gives no sign of life")
        elif not self._closed:
            self._loop.call_later(PATIENCE - quiet, self._look, connection)


def _drop(opening: asyncio.Task[Connection]) -> None:
    """Closes the connection of a stream that has ended."""
    if not opening.cancelled() and opening.exception() is None:
        opening.result().lose(CLOSED)
