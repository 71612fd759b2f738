"""A connection for asyncio, which the calls of all tasks share.

A call that is cancelled, or whose time is over, gives its stream up and leaves the others alone. If the
server has said nothing at all for a while by then, the connection is taken to be dead.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from contextlib import suppress
from math import inf
from typing import Any, cast

from ....._runtime.aio import descriptor
from .....forked_sockets import end_in_children
from ....deadline_timer import DeadlineTimer
from ....redis.wire.sockets import prepare
from ....resolving import Place, resolve_in_loop
from ....tls import in_words
from ...address import host_and_port
from .connection import Connection
from .frames import Broken
from .grpc import End
from .sending import Stream

SILENCE = 0.5
"""Seconds without a byte from the server after which a call that is late ends its connection."""
LARGEST_BACKLOG = 16 << 20
"""The number of bytes that the server may leave unread."""

Now = Callable[[], float]
Heard = Callable[[Stream], None]

LATE = End("DEADLINE_EXCEEDED", "")


class MultiplexedConnection(asyncio.Protocol):
    """A connection, and the calls under way on it."""

    def __init__(self, now: Now) -> None:
        self._loop = asyncio.get_running_loop()
        self.now = self._now = now
        self.core = Connection()
        self._transport: asyncio.Transport | None = None
        self._waiters: dict[Stream, Call] = {}
        self._flushing = False
        self._timer = DeadlineTimer(self._loop, now, self._first_deadline, self._expire)
        self.last_heard = now()
        self.closed = False
        self.reason = ""
        """Why it is closed."""
        self.on_news: Heard | None = None
        """Function that is told of news on streams that are no calls."""
        self.on_end: Callable[[str], None] | None = None

    @property
    def usable(self) -> bool:
        """True if calls may still be begun here."""
        return not (self.closed or self.core.full)

    async def call(self, block: bytes, request: bytes, deadline: float, *, linger: bool) -> Stream:
        """Makes one call and returns its stream, which has ended.

        With `linger` our side of the stream stays open until there is a reply.
        """
        call = Call(self._loop.create_future(), deadline, self._now(), linger)
        stream = self.core.open(block, request, finished=not linger)
        if self.closed:  # between its opening and now
            stream.end = End("UNAVAILABLE", self.reason, untouched=True)
            return stream
        self._waiters[stream] = call
        self.flush_soon()
        if deadline < self._timer.due:
            self._timer.arm(deadline)
        try:
            await call.future
        finally:
            self._waiters.pop(stream, None)
            if stream.end is None:
                self.core.cancel(stream)
                self.flush_soon()
                self._retire()
        return stream

    def flush_soon(self) -> None:
        """Sends what is to be sent: at once if one call is under way, else with what follows."""
        if len(self._waiters) < 2:
            self.flush()
        elif not self._flushing:
            self._flushing = True
            self._loop.call_soon(self.flush)

    def flush(self) -> None:
        """Sends all that is to be sent."""
        self._flushing = False
        data = self.core.take_output()
        if data and self._transport is not None and not self.closed:
            self._transport.write(data)
            if self._transport.get_write_buffer_size() > LARGEST_BACKLOG:
                self.lose("the server does not read what it is sent")

    def lose(self, reason: str) -> None:
        """Ends the connection at once, and with it all that is under way."""
        if self.closed:
            return
        self.closed = True
        self.reason = reason
        self._timer.cancel()
        if self._transport is not None:
            self._transport.abort()
        self._tell(self.core.lose(reason))
        if self.on_end is not None:
            self.on_end(reason)

    def fileno(self) -> int:
        return descriptor(self._transport)

    # Called by the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # No isinstance: other event loops have transports of their own.
        self._transport = cast(asyncio.Transport, transport)
        end_in_children(self)
        self.core.tls = transport.get_extra_info("sslcontext") is not None
        sock = transport.get_extra_info("socket")
        if sock is not None:
            with suppress(OSError):  # it is closed, which we are told soon
                prepare(sock)

    def data_received(self, data: bytes) -> None:
        self.last_heard = self._now()
        try:
            news = self.core.receive(data)
        except Broken as error:
            self.lose(str(error))
            return
        self._tell(news)
        self.flush()
        self._retire()

    def eof_received(self) -> None:
        self.lose(self.core.closed_by_server())

    def connection_lost(self, error: Exception | None) -> None:
        if isinstance(error, OSError):
            self.lose(error.strerror or str(error))
        self.lose(self.core.closed_by_server())

    def _tell(self, news: list[Stream]) -> None:
        for stream in news:
            call = self._waiters.get(stream)
            if call is None:
                if self.on_news is not None:
                    self.on_news(stream)
            elif stream.end is not None:
                if not call.future.done():
                    call.future.set_result(None)
            elif call.linger and stream.messages:
                self.core.conclude(stream)
                if not call.future.done():
                    call.future.set_result(None)

    def _retire(self) -> None:
        """Closes a connection on which the server takes no more, once nothing is under way."""
        if self.core.full and not self.core.busy:
            self.lose("the server went away")

    # The calls whose time is over.

    def _first_deadline(self) -> float:
        calls = self._waiters.values()
        return min((call.deadline for call in calls if not call.future.done()), default=inf)

    def _expire(self, now: float) -> float:
        silent = False
        for stream, call in list(self._waiters.items()):
            if call.deadline > now or call.future.done():
                continue
            silent = silent or now - max(self.last_heard, call.sent) >= SILENCE
            untouched = self.core.cancel(stream)
            stream.end = LATE._replace(untouched=untouched)
            call.future.set_result(None)
        if silent:
            self.lose("the server said nothing")
            return inf
        self.flush()
        return self._first_deadline()


class Call:
    """A task that waits for the end of a stream."""

    __slots__ = ("deadline", "future", "linger", "sent")

    def __init__(
        self, future: asyncio.Future[None], deadline: float, sent: float, linger: bool
    ) -> None:
        self.future = future
        self.deadline = deadline
        self.sent = sent
        self.linger = linger


async def open_connection(
    endpoint: str, tls: ssl.SSLContext | None, deadline: float, now: Now
) -> MultiplexedConnection:
    """Returns a connection to a member, TLS included; raises `OSError`, which a `TimeoutError` is."""
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(max(0.0, deadline - now())):
        found = await resolve_in_loop(loop, *host_and_port(endpoint))
        reason = OSError("its name stands for no address")
        for left, place in zip(range(len(found), 0, -1), found, strict=True):
            try:
                async with asyncio.timeout((deadline - now()) / left):
                    return await _connected(loop, place, endpoint, tls, now)
            except OSError as error:
                reason = in_words(error, tls)
        raise reason


async def _connected(
    loop: asyncio.AbstractEventLoop,
    place: Place,
    endpoint: str,
    tls: ssl.SSLContext | None,
    now: Now,
) -> MultiplexedConnection:
    family, where = place
    made: tuple[Any, MultiplexedConnection] = await loop.create_connection(
        lambda: MultiplexedConnection(now),
        str(where[0]),
        int(where[1]),
        family=family,
        ssl=tls,
        server_hostname=host_and_port(endpoint)[0] if tls is not None else None,
    )
    transport, connection = made
    security = transport.get_extra_info("ssl_object")
    if security is not None and security.selected_alpn_protocol() != "h2":
        transport.abort()
        raise OSError("the server speaks TLS, but not HTTP/2 in it, as etcd does")
    return connection
