"""The wire to a simulated etcd: it takes the place of `holdfast.stores.etcd.wire.aio`.

A channel is one connection, opened when it is needed. When it breaks, every call on it ends, with
what was asked for done or not. Calls end at their deadline, whatever the network does. As with the real
wire, all calls to a member share a connection, and each watch stream has one of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from ...stores.etcd.address import Address
from ...stores.etcd.wire.failures import Failure
from ...stores.etcd.wire.members import Members
from ...stores.etcd.wire.messages import WATCH
from ..connection import SimConnection
from ..loop import VirtualLoop
from ..process import PROCESS

SHORTEST_PAUSE, LONGEST_PAUSE = 0.05, 1.0
CLOSED = "CANCELLED", "this connection to the store is closed"

Heard = Callable[[bytes], None]
Ended = Callable[[str, str], None]


class Wire:
    """As the wire for asyncio, on the simulated network."""

    def __init__(self, address: Address) -> None:
        self._loop: VirtualLoop = PROCESS.get().loop
        self._members = Members(address, self._loop.random.randrange)
        self._channels: dict[str, Channel] = {}
        self.closed = False

    @property
    def endpoint(self) -> str:
        return self._members.endpoint

    def turn_from(self, endpoint: str) -> None:
        self._members.turn_from(endpoint)

    def log_in(self, token: str) -> None:
        """Does nothing: a simulated cluster has no users."""

    async def call(self, method: str, request: bytes, timeout: float) -> bytes:
        endpoint = self.endpoint
        if self.closed:
            raise Failure(*CLOSED, endpoint, True)
        channel = self._channels.get(endpoint)
        if channel is None:
            channel = self._channels[endpoint] = Channel(endpoint)
        reply: asyncio.Future[bytes] = self._loop.create_future()

        def heard(message: bytes) -> None:
            if not reply.done():
                reply.set_result(message)

        def ended(code: str, details: str) -> None:
            if not reply.done():
                reply.set_exception(Failure(code, details, endpoint))

        call = channel.add(heard, ended)
        timer = self._loop.call_later(timeout, ended, "DEADLINE_EXCEEDED", "too late")
        try:
            channel.send(f"call {call} {method}\n".encode() + request)
            return await reply
        finally:
            timer.cancel()
            channel.forget(call)

    def watch(
        self,
        requests: Sequence[bytes],
        heard: Heard,
        ended: Callable[[Failure], None],
    ) -> Stream:
        if self.closed:
            raise Failure(*CLOSED, self.endpoint, True)
        return Stream(self.endpoint, requests, heard, ended)

    async def close(self) -> None:
        self.closed = True
        for channel in self._channels.values():
            channel.close()


class Stream:
    """A watch stream, on a channel of its own."""

    def __init__(
        self,
        endpoint: str,
        requests: Sequence[bytes],
        heard: Heard,
        ended: Callable[[Failure], None],
    ) -> None:
        self.endpoint = endpoint
        self._channel = Channel(endpoint)
        self._tell = ended
        self._closed = False
        self._call = self._channel.add(heard, self._ended)
        self._channel.send(f"open {self._call} {WATCH}\n".encode())
        for request in requests:
            self.send(request)

    def send(self, message: bytes) -> None:
        self._channel.send(f"send {self._call}\n".encode() + message)

    async def close(self) -> None:
        self._closed = True
        self._channel.close()

    def _ended(self, code: str, details: str) -> None:
        if not self._closed:
            self._closed = True
            self._channel.close()
            self._tell(Failure(code, details, self.endpoint))


class Channel:
    """A connection to one member, and its protocol: bytes that come in are given to it."""

    def __init__(self, endpoint: str) -> None:
        self._endpoint = endpoint
        self._process = PROCESS.get()
        self._loop: VirtualLoop = self._process.loop
        self._connection: SimConnection | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._pause = SHORTEST_PAUSE
        self._not_before = 0.0
        self._calls: dict[str, tuple[Heard, Ended]] = {}
        self._last = 0
        self._unsent: list[bytes] = []
        self.closed = False

    def add(self, heard: Heard, ended: Ended) -> str:
        """Returns the number of a new call."""
        self._last += 1
        self._calls[str(self._last)] = heard, ended
        return str(self._last)

    def forget(self, call: str) -> None:
        """Forgets a call that has a reply, or whose caller has given up."""
        self._calls.pop(call, None)

    def close(self) -> None:
        """Closes the connection, and ends what is under way."""
        self.closed = True
        if self._connecting is not None:
            self._connecting.cancel()
        if self._connection is not None:
            self._connection.close()
        self._end_all(*CLOSED)

    def send(self, frame: bytes) -> None:
        """Sends a frame, or keeps it until the connection is open."""
        if self._connection is not None:
            self._connection.write(frame)
        elif self.closed:
            return
        elif self._loop.now < self._not_before:
            self._loop.call_soon(self._end_all, "UNAVAILABLE", "connection refused")
        else:
            self._unsent.append(frame)
            if self._connecting is None:
                self._connecting = self._loop.create_task(self._connect())

    async def _connect(self) -> None:
        assert self._loop.network is not None
        try:
            await self._loop.network.connect(self._process, lambda: self, self._endpoint)
        except ConnectionError as error:
            self._not_before = self._loop.now + self._pause
            self._pause = min(self._pause * 2, LONGEST_PAUSE)
            self._end_all("UNAVAILABLE", str(error))
        finally:
            self._connecting = None

    def _end_all(self, code: str, details: str) -> None:
        self._unsent.clear()
        calls, self._calls = self._calls, {}
        for _, ended in calls.values():
            ended(code, details)

    # Of the connection.

    def connection_made(self, connection: SimConnection) -> None:
        self._connection = connection
        self._pause = SHORTEST_PAUSE
        unsent, self._unsent = self._unsent, []
        for frame in unsent:
            connection.write(frame)

    def connection_lost(self, error: Exception | None) -> None:
        self._connection = None
        self._end_all("UNAVAILABLE", "the connection broke")

    def data_received(self, frame: bytes) -> None:
        line, _, message = frame.partition(b"\n")
        word, number, *rest = line.decode().split(" ", 3)
        call = self._calls.get(number)
        if call is None:
            return  # its deadline came first
        heard, ended = call
        if word == "ok":
            heard(message)
        else:
            del self._calls[number]
            ended(rest[0], rest[1])
