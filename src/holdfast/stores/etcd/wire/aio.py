"""The wire to etcd for asyncio. Its twin is `threads`: the same names, the same meanings."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

from .... import forks
from ....errors import LockError
from ..address import Address
from .channels import LEADER, open_channel, require_grpc
from .failures import Failure
from .messages import AUTHENTICATE, WATCH

_generation: int | None = None
"""The fork generation in which gRPC's asyncio side was first used: it has a thread that no fork takes
along."""


def _refuse_fork() -> None:
    global _generation
    if _generation is None:
        _generation = forks.generation
    elif _generation != forks.generation:
        raise LockError(
            "this process was forked from one that used etcd:// in asyncio, which gRPC does not "
            "survive; use holdfast.connect() here, or start processes by spawn instead of fork"
        )


class Wire:
    """A channel to each member, opened when it is first needed; calls go to one of them at a time."""

    def __init__(self, address: Address) -> None:
        _refuse_fork()
        self._address = address
        self._grpc = require_grpc()
        self._channels: dict[str, Any] = {}
        self._methods: dict[str, tuple[Any, str]] = {}
        """The function for each method, and the member that it calls."""
        self._turn = 0
        self._token: tuple[tuple[str, str], ...] = (LEADER,)
        self.closed = False

    @property
    def endpoint(self) -> str:
        return self._address.endpoints[self._turn]

    def turn_from(self, endpoint: str) -> None:
        """Turns from a member that is no good now to the next; once, however many callers say so."""
        if endpoint == self.endpoint and len(self._address.endpoints) > 1:
            self._turn = (self._turn + 1) % len(self._address.endpoints)
            self._methods = {}

    def log_in(self, token: str) -> None:
        """Sends `token` with all calls from now on; none if it is empty."""
        self._token = (LEADER, ("token", token)) if token else (LEADER,)

    async def call(self, method: str, request: bytes, timeout: float) -> bytes:
        """Returns the reply of one member. A call that raised `Failure` may have been carried out."""
        asked = self._methods.get(method)
        ask, endpoint = asked if asked is not None else self._method(method)
        # A login is sent without a token: with one that is not known it would be refused.
        metadata = self._token if method is not AUTHENTICATE else (LEADER,)
        try:
            answer: bytes = await ask(request, timeout=timeout, metadata=metadata)
            return answer
        except self._grpc.RpcError as error:
            raise Failure(error.code().name, error.details() or "", endpoint) from None
        except (self._grpc.aio.UsageError, ValueError) as error:
            raise Failure("CANCELLED", f"closed: {error}", endpoint) from None

    def _method(self, method: str) -> tuple[Any, str]:
        endpoint = self.endpoint
        asked = self._methods[method] = (
            self._channel(endpoint).unary_unary(method).__call__,
            endpoint,
        )
        return asked

    def watch(self, heard: Callable[[bytes], None], ended: Callable[[Failure], None]) -> Stream:
        """Opens a stream of messages, until it ends or is closed; nothing is called after `close`."""
        return Stream(self._channel(self.endpoint), self._token, self.endpoint, heard, ended)

    def listen(
        self, request: bytes, heard: Callable[[bytes], None], ended: Callable[[Failure], None]
    ) -> Stream:
        """Opens a stream with nothing more to send: messages are heard with fewer steps between."""
        endpoint = self.endpoint
        return Stream(self._channel(endpoint), self._token, endpoint, heard, ended, request)

    def _channel(self, endpoint: str) -> Any:
        if self.closed:
            raise Failure("CANCELLED", "this connection to the store is closed", endpoint)
        channel = self._channels.get(endpoint)
        if channel is None:
            channel = open_channel(self._grpc.aio, endpoint, self._address)
            self._channels[endpoint] = channel
        return channel

    async def close(self) -> None:
        self.closed = True
        channels, self._channels = self._channels, {}
        self._methods = {}
        for channel in channels.values():
            await channel.close()


class Stream:
    """A watch stream: requests go out in order, each message that comes in is given to `heard`."""

    def __init__(
        self,
        channel: Any,
        metadata: tuple[tuple[str, str], ...],
        endpoint: str,
        heard: Callable[[bytes], None],
        ended: Callable[[Failure], None],
        only: bytes | None = None,
    ) -> None:
        self.endpoint = endpoint
        self._heard = heard
        self._ended = ended
        self._unsent: asyncio.Queue[bytes | None] = asyncio.Queue()
        if only is None:
            self._call = channel.stream_stream(WATCH)(self._requests(), metadata=metadata)
        else:
            self._call = channel.unary_stream(WATCH)(only, metadata=metadata)
        self._closed = False
        self._task = asyncio.get_running_loop().create_task(self._listen(), name="holdfast-watch")

    def send(self, message: bytes) -> None:
        self._unsent.put_nowait(message)

    async def close(self) -> None:
        self._closed = True
        self._call.cancel()
        await asyncio.wait({self._task})

    async def _requests(self) -> AsyncIterator[bytes]:
        while (message := await self._unsent.get()) is not None:
            yield message

    async def _listen(self) -> None:
        grpc = require_grpc()
        failure = Failure("UNAVAILABLE", "the watch ended", self.endpoint)
        try:
            async for message in self._call:
                if self._closed:
                    return
                self._heard(message)
        except grpc.RpcError as error:
            failure = Failure(error.code().name, error.details() or "", self.endpoint)
        except asyncio.CancelledError:
            if not self._call.cancelled():
                raise
        finally:
            self._unsent.put_nowait(None)  # gRPC's task that reads it ends with us
        if not self._closed:
            self._ended(failure)
