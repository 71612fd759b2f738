"""The wire to etcd for blocking code. Its twin is `aio`: the same names, the same meanings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from queue import SimpleQueue
from threading import Lock, Thread, get_ident
from typing import Any

from ....surroundings import refuse_greenlets
from ..address import Address
from .channels import LEADER, open_channel, require_grpc
from .failures import Failure
from .messages import AUTHENTICATE, WATCH


class Wire:
    """A channel to each member, opened when it is first needed; calls go to one of them at a time."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._grpc = require_grpc()
        refuse_greenlets("etcd", "gRPC")
        self._channels: dict[str, Any] = {}
        self._methods: dict[str, tuple[Any, str]] = {}
        """The function for each method, and the member that it calls."""
        self._mutex = Lock()
        self._turn = 0
        self._token: tuple[tuple[str, str], ...] = (LEADER,)
        self.closed = False

    @property
    def endpoint(self) -> str:
        return self._address.endpoints[self._turn]

    def turn_from(self, endpoint: str) -> None:
        """Turns from a member that is no good now to the next; once, however many callers say so."""
        with self._mutex:
            if endpoint == self.endpoint and len(self._address.endpoints) > 1:
                self._turn = (self._turn + 1) % len(self._address.endpoints)
                self._methods = {}

    def log_in(self, token: str) -> None:
        """Sends `token` with all calls from now on; none if it is empty."""
        self._token = (LEADER, ("token", token)) if token else (LEADER,)

    def call(self, method: str, request: bytes, timeout: float) -> bytes:
        """Returns the reply of one member. A call that raised `Failure` may have been carried out."""
        asked = self._methods.get(method)
        ask, endpoint = asked if asked is not None else self._method(method)
        # A login is sent without a token: with one that is not known it would be refused.
        metadata = self._token if method is not AUTHENTICATE else (LEADER,)
        try:
            answer: bytes = ask(request, timeout=timeout, metadata=metadata)
            return answer
        except self._grpc.RpcError as error:
            raise Failure(error.code().name, error.details() or "", endpoint) from None
        except ValueError as error:  # the channel was closed under us
            raise Failure("CANCELLED", f"closed: {error}", endpoint) from None

    def _method(self, method: str) -> tuple[Any, str]:
        methods = self._methods
        endpoint = self.endpoint
        asked = self._channel(endpoint).unary_unary(method).__call__, endpoint
        if methods is self._methods and endpoint == self.endpoint:
            methods[method] = asked
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
        with self._mutex:
            if self.closed:
                raise Failure("CANCELLED", "this connection to the store is closed", endpoint)
            channel = self._channels.get(endpoint)
            if channel is None:
                channel = open_channel(self._grpc, endpoint, self._address)
                self._channels[endpoint] = channel
            return channel

    def close(self) -> None:
        with self._mutex:
            self.closed = True
            channels, self._channels = self._channels, {}
            self._methods = {}
        for channel in channels.values():
            channel.close()


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
        self._unsent: SimpleQueue[bytes | None] = SimpleQueue()
        if only is None:
            self._call = channel.stream_stream(WATCH)(self._requests(), metadata=metadata)
        else:
            self._call = channel.unary_stream(WATCH)(only, metadata=metadata)
        self._closed = False
        self._thread = Thread(target=self._listen, name="holdfast-watch", daemon=True)
        self._thread.start()

    def send(self, message: bytes) -> None:
        self._unsent.put(message)

    def close(self) -> None:
        self._closed = True
        self._unsent.put(None)
        self._call.cancel()
        if self._thread.ident != get_ident():
            self._thread.join()

    def _requests(self) -> Iterator[bytes]:
        while (message := self._unsent.get()) is not None:
            yield message

    def _listen(self) -> None:
        grpc = require_grpc()
        failure = Failure("UNAVAILABLE", "the watch ended", self.endpoint)
        try:
            for message in self._call:
                if self._closed:
                    return
                self._heard(message)
        except grpc.RpcError as error:
            failure = Failure(error.code().name, error.details() or "", self.endpoint)
        finally:
            self._unsent.put(None)  # gRPC's thread that reads it ends with us
            self._read_to_its_end()
        if not self._closed:
            self._ended(failure)

    def _read_to_its_end(self) -> None:
        """Reads all that happened to a call: one that we read ourselves keeps the connection open until
        then, also after its channel was closed, and gRPC stops at the first word of its end.
        """
        read = getattr(self._call, "_consume_next_event", None)
        due = getattr(getattr(self._call, "_state", None), "due", ())
        if read is not None and due:
            self._call.cancel()
            while due:
                read()
