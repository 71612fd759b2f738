"""The wire to etcd for asyncio. Its twin is `threads`: the same names, the same meanings."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from .... import forks
from ....clock import system_clock
from ...tls import unanswered
from ..address import Address
from .failures import Failure, failure_of, unreachable
from .http2.headers import request_block
from .http2.multiplexed import MultiplexedConnection, open_connection
from .http2.sending import Stream as Http2Stream
from .members import KeepAlive, Members
from .messages import AUTHENTICATE, LEASE_KEEP_ALIVE, WATCH

CONNECT_LIMIT = 5.0
"""Seconds in which a connection has to be open. A caller waits no longer than its own deadline."""
TRIES = 3
"""The number of times that a request which the server has not touched is sent."""

Opening = asyncio.Task[MultiplexedConnection]


class Wire:
    """A connection to each member, opened when it is needed; calls go to one member at a time."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._tls = address.tls
        self._now = system_clock().now
        self._members = Members(address)
        self._connections: dict[str, MultiplexedConnection] = {}
        self._connecting: dict[str, Opening] = {}
        self._keep_alive = KeepAlive()
        self._token = ""
        self._made_in = forks.current()
        self.closed = False

    @property
    def endpoint(self) -> str:
        return self._members.endpoint

    def turn_from(self, endpoint: str) -> None:
        """Turns from a member that is no good now to the next; once, however many callers say so."""
        self._members.turn_from(endpoint)

    def log_in(self, token: str) -> None:
        """Sends `token` with all calls from now on; none if it is empty."""
        self._token = token

    async def call(self, method: str, request: bytes, timeout: float) -> bytes:
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
            forks.refuse_inherited(self._made_in)
            connection = self._connections.get(endpoint)
            if connection is None or not connection.usable:
                connection = await self._open(endpoint, deadline)
            stream = await connection.call(block, request, deadline, linger=linger)
            end = stream.end
            if stream.messages and end is not None and end.code == "OK":
                return stream.messages[0]
            if end is None or not end.untouched or tries == TRIES or self._now() >= deadline:
                raise failure_of(end, endpoint)

    async def call_all(self, method: str, requests: Sequence[bytes], timeout: float) -> None:
        """Makes several calls at once; those without a reply may have been carried out or not."""
        calls = [self.call(method, request, timeout) for request in requests]
        for reply in await asyncio.gather(*calls, return_exceptions=True):
            if isinstance(reply, BaseException) and not isinstance(reply, Failure):
                raise reply

    async def _open(self, endpoint: str, deadline: float) -> MultiplexedConnection:
        """Returns a connection for calls; one task opens it for all who wait for it."""
        if self.closed:
            raise Failure("CANCELLED", "this connection to the store is closed", endpoint, True)
        opening = self._connecting.get(endpoint)
        if opening is None:
            opening = asyncio.get_running_loop().create_task(
                open_connection(endpoint, self._tls, self._now() + CONNECT_LIMIT, self._now),
                name="holdfast-connect",
            )
            self._connecting[endpoint] = opening
            opening.add_done_callback(lambda task: self._opened(endpoint, task))
        await asyncio.wait({opening}, timeout=max(0.0, deadline - self._now()))
        if not opening.done():
            raise unreachable(TimeoutError(unanswered(self._tls)), endpoint)
        if opening.cancelled():
            raise Failure("CANCELLED", "this connection to the store is closed", endpoint, True)
        error = opening.exception()
        if error is None:
            return opening.result()
        raise unreachable(error, endpoint)

    def _opened(self, endpoint: str, opening: Opening) -> None:
        if self._connecting.get(endpoint) is opening:
            del self._connecting[endpoint]
        if opening.cancelled() or opening.exception() is not None:
            return
        connection = opening.result()
        if self.closed:
            connection.lose("closed")
        else:
            self._connections[endpoint] = connection

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
        opening = open_connection(endpoint, self._tls, self._now() + CONNECT_LIMIT, self._now)
        return Stream(endpoint, block, opening, requests, self._keep_alive, heard, ended)

    async def close(self) -> None:
        self.closed = True
        opening = list(self._connecting.values())
        for task in opening:
            task.cancel()
        if opening:
            await asyncio.wait(opening)
        for connection in list(self._connections.values()):
            connection.lose("closed")
        self._connections = {}


class Stream:
    """A watch stream: requests go out in order, each message that comes in is given to `heard`."""

    def __init__(
        self,
        endpoint: str,
        block: bytes,
        opening: Coroutine[Any, Any, MultiplexedConnection],
        requests: Sequence[bytes],
        keep_alive: KeepAlive,
        heard: Callable[[bytes], None],
        ended: Callable[[Failure], None],
    ) -> None:
        self.endpoint = endpoint
        self._block = block
        self._heard = heard
        self._ended = ended
        self._keep_alive = keep_alive
        self._unsent = list(requests)
        self._loop = asyncio.get_running_loop()
        self._connection: MultiplexedConnection | None = None
        self._stream: Http2Stream | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._pinged = 0.0
        """When the ping was sent that is not answered yet; 0 without one."""
        self._closed = False
        self._opening = self._loop.create_task(opening, name="holdfast-watch")
        # No task listens from then on: one that is cancelled from outside could not end the watches.
        self._opening.add_done_callback(self._opened)

    def send(self, message: bytes) -> None:
        self._unsent.append(message)
        if self._connection is not None:
            self._send_all(self._connection)

    async def close(self) -> None:
        self._close()
        self._opening.cancel()
        await asyncio.wait({self._opening})

    def _opened(self, opening: Opening) -> None:
        error = None if opening.cancelled() else opening.exception()
        if opening.cancelled():
            self._end(Failure("CANCELLED", "interrupted", self.endpoint))
        elif error is not None:
            self._end(unreachable(error, self.endpoint))
        elif self._closed:
            opening.result().lose("closed")
        else:
            self._connection = connection = opening.result()
            if connection.closed:  # between its opening and now
                self._lost(connection.reason)
                return
            connection.on_news = self._news
            connection.on_end = self._lost
            self._send_all(connection)
            self._wait(connection, self._keep_alive.pause)

    def _send_all(self, connection: MultiplexedConnection) -> None:
        unsent, self._unsent = self._unsent, []
        for message in unsent:
            if self._stream is None:
                self._stream = connection.core.open(self._block, message, finished=False)
            else:
                connection.core.send(self._stream, message)
        connection.flush()

    def _news(self, stream: Http2Stream) -> None:
        messages, stream.messages = stream.messages, []
        for message in messages:
            if self._closed:
                return
            self._heard(message)
        if stream.end is not None:
            self._end(failure_of(stream.end, self.endpoint))

    def _lost(self, reason: str) -> None:
        self._end(Failure("UNAVAILABLE", f"{self.endpoint}: {reason}", self.endpoint))

    def _end(self, failure: Failure) -> None:
        if not self._closed:
            self._close()
            self._ended(failure)

    def _close(self) -> None:
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._connection is not None:
            if self._connection.core.too_many_pings:
                self._keep_alive.slow_down()
            self._connection.lose("closed")

    # Signs of life.

    def _wait(self, connection: MultiplexedConnection, seconds: float) -> None:
        self._timer = self._loop.call_later(seconds, self._look, connection)

    def _look(self, connection: MultiplexedConnection) -> None:
        """Asks for a sign of life where nothing has come for long; ends the stream without one."""
        now, pause = connection.now(), self._keep_alive.pause
        if self._pinged and connection.last_heard < self._pinged:
            self._lost("it gives no sign of life")
            return
        self._pinged = 0.0
        quiet = now - connection.last_heard
        if quiet < pause or self._stream is None:
            self._wait(connection, max(pause - quiet, 0.1))
            return
        self._pinged = now
        connection.core.ping()
        connection.flush()
        self._wait(connection, self._keep_alive.patience)
