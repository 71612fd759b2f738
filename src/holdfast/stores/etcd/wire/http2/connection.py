"""The state of one HTTP/2 connection and of its streams, without any input or output.

Whoever has the socket gives what came in to `receive`, and sends what `take_output` returns. Not safe
for several threads at once.
"""

from __future__ import annotations

from .frames import (
    ACK,
    CANCEL,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    ENHANCE_YOUR_CALM,
    FRAME_SIZE,
    GOAWAY,
    HEAD,
    HEADERS,
    LARGEST_WINDOW,
    NO_ERROR,
    PADDED,
    PING,
    PUSH_PROMISE,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    Broken,
    frame,
    read_head,
    read_number,
    read_settings,
    reset,
    unpadded,
    window_update,
)
from .grpc import (
    PREFIX,
    End,
    Unreadable,
    end_by_reset,
    end_by_status,
    end_by_trailers,
    take_messages,
)
from .headers import LONGEST_BLOCK, BlockReader
from .sending import SendingHalf, Stream

REFILL = 2**30
"""The number of bytes received after which the server's window is filled up again."""


class Connection(SendingHalf):
    """The client's end of one connection: the half that sends, and here the one that receives."""

    def __init__(self) -> None:
        super().__init__()
        self._rest = b""
        """The beginning of a frame that has not come whole."""
        self._blocks = BlockReader()
        self._begun: tuple[int, int, bytearray] | None = None
        """A header block that has not come whole: its stream, the flags, and what there is of it."""
        self._received = 0
        self._greeted = False
        """True once the server's settings have come."""
        self.tls = False
        self.too_many_pings = False
        self.pings_answered = 0

    def receive(self, data: bytes) -> list[Stream]:
        """Takes in what the server sent; returns the streams of which there is news.

        Raises `Broken` if nothing that follows could be understood.
        """
        news: list[Stream] = []
        if self._rest:
            data = self._rest + data
        at, end = 0, len(data)
        while end - at >= HEAD:
            upper, lower, kind, flags, number = read_head(data, at)
            size = upper << 8 | lower
            if not self._greeted and (kind != SETTINGS or flags & ACK):
                raise Broken(_no_http2(data))
            if size > FRAME_SIZE:
                raise Broken("the server sent a frame that is too long")
            start = at + HEAD
            at = start + size
            if at > end:
                at = start - HEAD
                break
            number &= LARGEST_WINDOW
            stream = self._streams.get(number)
            self._handle(kind, flags, number, stream, data[start:at])
            if stream is not None and (stream.messages or stream.end is not None):
                news.append(stream)
            if kind == GOAWAY:
                news += self._on_goaway(data[start:at])
        self._rest = data[at:]
        return news

    def lose(self, reason: str) -> list[Stream]:
        """Ends all streams, since the connection is lost; returns them."""
        waiting = list(self._waiting)
        streams = [*self._streams.values(), *waiting]
        self._streams.clear()
        self._waiting.clear()
        for stream in streams:
            stream.end = End("UNAVAILABLE", reason, untouched=stream.id == 0)
        return streams

    def closed_by_server(self) -> str:
        """Returns what to say when the server has closed the connection."""
        if self._greeted:
            return "the server closed the connection"
        if self._rest:
            return _no_http2(self._rest)
        hint = "" if self.tls else "; if it wants TLS, add ?tls=1 to the URL"
        return f"the server closed the connection without a word{hint}"

    def _handle(
        self, kind: int, flags: int, number: int, stream: Stream | None, payload: bytes
    ) -> None:
        if self._begun is not None and (kind != CONTINUATION or number != self._begun[0]):
            raise Broken("the server sent a frame in the middle of a header block")
        if kind == DATA:
            self._on_data(flags, number, stream, payload)
        elif kind == HEADERS:
            self._check_opened(number)
            self._on_block(flags, number, bytearray(unpadded(flags, payload)), flags)
        elif kind == CONTINUATION:
            if self._begun is None:
                raise Broken("the server sent the rest of a header block that has no beginning")
            _, first_flags, block = self._begun
            block += payload
            self._on_block(flags, number, block, first_flags)
        elif kind == WINDOW_UPDATE:
            self._on_window_update(number, stream, read_number(payload) & LARGEST_WINDOW)
        elif kind == SETTINGS:
            if not flags & ACK:
                self._on_settings(payload)
        elif kind == PING:
            if len(payload) != 8:
                raise Broken("the server sent a ping of a wrong length")
            if flags & ACK:
                self.pings_answered += 1
            else:
                self._output.append(frame(PING, ACK, 0, payload))
        elif kind == RST_STREAM:
            self._check_opened(number)
            reason = read_number(payload)
            if stream is not None:
                self._end(stream, end_by_reset(reason))
        elif kind == PUSH_PROMISE:
            raise Broken("the server pushes, which we do not allow")

    def _check_opened(self, number: int) -> None:
        if number % 2 == 0 or number >= self._next:
            raise Broken("the server answers a request that was not made")

    def _on_data(self, flags: int, number: int, stream: Stream | None, payload: bytes) -> None:
        size = len(payload)
        self._received += size
        if self._received >= REFILL:
            self._output.append(window_update(0, self._received))
            self._received = 0
        if stream is None:
            self._check_opened(number)
            return  # given up meanwhile
        if flags & PADDED:
            payload = unpadded(PADDED, payload)
        partial = stream.partial
        if (
            not partial
            and len(payload) >= PREFIX
            and not payload[0]
            and int.from_bytes(payload[1:PREFIX], "big") == len(payload) - PREFIX
        ):
            stream.messages.append(payload[PREFIX:])  # one whole message, as nearly always
        else:
            partial += payload
            try:
                take_messages(partial, stream.messages)
            except Unreadable as error:
                self._output.append(reset(number, CANCEL))
                self._end(stream, End("INTERNAL", str(error)))
                return
        if flags & END_STREAM:
            self._end(stream, End("UNKNOWN", "the server ended a call without a status"))
            return
        stream.received += size
        if stream.received >= REFILL:
            self._output.append(window_update(number, stream.received))
            stream.received = 0

    def _on_block(self, flags: int, number: int, block: bytearray, first_flags: int) -> None:
        """Takes in a part of a header block; reads it once it is whole."""
        if len(block) > LONGEST_BLOCK:
            raise Broken("the server sent headers that are too long")
        if not flags & END_HEADERS:
            self._begun = number, first_flags, block
            return
        self._begun = None
        headers = self._blocks.read(bytes(block))  # also of streams that were given up
        stream = self._streams.get(number)
        if stream is None:
            return
        if first_flags & END_STREAM:
            self._end(stream, end_by_trailers(headers))
        elif not headers.get(b":status", b"").startswith(b"1"):
            refused = end_by_status(headers)
            if refused is not None:
                self._output.append(reset(number, CANCEL))
                self._end(stream, refused)

    def _end(self, stream: Stream, end: End) -> None:
        stream.end = end
        self._drop(stream)

    def _on_window_update(self, number: int, stream: Stream | None, size: int) -> None:
        if size == 0:
            raise Broken("the server widened a window by nothing")
        if number == 0 or stream is not None:
            self._widen(stream, size)
        else:
            self._check_opened(number)

    def _on_settings(self, payload: bytes) -> None:
        self._greeted = True
        for name, value in read_settings(payload):
            self._obey(name, value)
        self._output.append(frame(SETTINGS, ACK, 0))
        self._send_all()

    def _on_goaway(self, payload: bytes) -> list[Stream]:
        """Returns the streams that the server will not handle; they have ended."""
        last = read_number(payload) & LARGEST_WINDOW
        reason = read_number(payload, 4)
        if reason == ENHANCE_YOUR_CALM and b"too_many_pings" in payload:
            self.too_many_pings = True
        text = "the server goes away" if reason == NO_ERROR else f"the server goes away ({reason})"
        return self._turn_away(last, text)


def _no_http2(data: bytes) -> str:
    """Returns why the first bytes of a server are no HTTP/2."""
    if data[:1] in (b"\x15", b"\x16") and data[1:2] == b"\x03":
        return "the server wants TLS; add ?tls=1 to the URL"
    return "the server does not speak HTTP/2, as etcd does"
