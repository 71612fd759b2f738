"""A stand-in for gRPC in the simulator: as much of it as `holdfast.stores.etcd.wire.aio` uses.

A channel is one connection, opened when it is needed. When it breaks, every call on it ends, with
what was asked for done or not. Calls end at their deadline, whatever the network does.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from types import SimpleNamespace
from typing import Any

from ..connection import SimConnection
from ..loop import VirtualLoop
from ..process import PROCESS

SHORTEST_PAUSE, LONGEST_PAUSE = 0.05, 1.0
Metadata = tuple[tuple[str, str], ...]


class RpcError(Exception):
    """Raised when a call ends without an answer."""

    def __init__(self, code: str, details: str) -> None:
        super().__init__(code, details)
        self._code = code
        self._details = details

    def code(self) -> Any:
        return SimpleNamespace(name=self._code)

    def details(self) -> str:
        return self._details


class UsageError(Exception):
    """Raised by a channel that is closed."""


class Channel:
    """A connection to one member, and its protocol: bytes that come in are given to it."""

    def __init__(self, endpoint: str, options: object = ()) -> None:
        self._endpoint = endpoint
        self._process = PROCESS.get()
        self._loop: VirtualLoop = self._process.loop
        self._connection: SimConnection | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._pause = SHORTEST_PAUSE
        self._not_before = 0.0
        self._calls: dict[str, Call] = {}
        self._last = 0
        self._unsent: list[bytes] = []
        self.closed = False

    def unary_unary(self, method: str) -> Callable[..., Awaitable[bytes]]:
        async def ask(request: bytes, *, timeout: float, metadata: Metadata) -> bytes:
            call = Call(self)
            timer = self._loop.call_later(timeout, call.fail, "DEADLINE_EXCEEDED", "too late")
            try:
                self.send(f"call {call.id} {method}\n".encode() + request)
                return await call.__anext__()
            finally:
                timer.cancel()
                self._calls.pop(call.id, None)

        return ask

    def stream_stream(self, method: str) -> Callable[..., Call]:
        def begin(requests: AsyncIterator[bytes], *, metadata: Metadata) -> Call:
            call = Call(self)
            self.send(f"open {call.id} {method}\n".encode())
            call.forward(requests)
            return call

        return begin

    def unary_stream(self, method: str) -> Callable[..., Call]:
        def begin(request: bytes, *, metadata: Metadata) -> Call:
            call = Call(self)
            self.send(f"open {call.id} {method}\n".encode())
            self.send(f"send {call.id}\n".encode() + request)
            return call

        return begin

    async def close(self) -> None:
        self.closed = True
        if self._connecting is not None:
            self._connecting.cancel()
        if self._connection is not None:
            self._connection.close()
        self._end_all("CANCELLED", "closed")

    # Of calls.

    def number(self, call: Call) -> str:
        if self.closed:
            raise UsageError("the channel is closed")
        self._last += 1
        self._calls[str(self._last)] = call
        return str(self._last)

    def forget(self, call: Call) -> None:
        if self._calls.pop(call.id, None) is not None:
            self.send(f"cancel {call.id}\n".encode())

    def send(self, frame: bytes) -> None:
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
        for call in calls.values():
            call.fail(code, details)

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
        if word == "ok":
            call.heard(message)
        else:
            del self._calls[number]
            call.fail(*rest)


class Call:
    """The answers to one call: one, or a stream of them."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._loop = channel._loop
        self._messages: list[bytes] = []
        self._error: BaseException | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._forwarding: asyncio.Task[None] | None = None
        self.id = channel.number(self)

    def forward(self, requests: AsyncIterator[bytes]) -> None:
        async def each() -> None:
            async for message in requests:
                if self._error is not None:
                    return
                self._channel.send(f"send {self.id}\n".encode() + message)

        self._forwarding = self._loop.create_task(each())

    def heard(self, message: bytes) -> None:
        self._messages.append(message)
        self._wake()

    def fail(self, code: str, details: str) -> None:
        self._end(RpcError(code, details))

    def cancel(self) -> None:
        self._channel.forget(self)
        self._end(asyncio.CancelledError())

    def cancelled(self) -> bool:
        return isinstance(self._error, asyncio.CancelledError)

    def _end(self, error: BaseException) -> None:
        if self._error is None:
            self._error = error
            if self._forwarding is not None:
                self._forwarding.cancel()
            self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def __aiter__(self) -> Call:
        return self

    async def __anext__(self) -> bytes:
        while not self._messages:
            if self._error is not None:
                raise self._error
            self._waiter = self._loop.create_future()
            await self._waiter
        return self._messages.pop(0)


aio = SimpleNamespace(insecure_channel=Channel, UsageError=UsageError)
"""The part of gRPC for asyncio."""
