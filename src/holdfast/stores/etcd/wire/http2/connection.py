"""The state of one HTTP/2 connection and of its streams, without any input or output.

Whoever has the socket gives what came in to `receive`, and sends what `take_output` returns. Not safe
for several threads at once.
"""

from __future__ import annotations

from collections import deque

from .frames import (
    ACK,
    CANCEL,
    CONTINUATION,
    DATA,
    ENABLE_PUSH,
    END_HEADERS,
    END_STREAM,
    ENHANCE_YOUR_CALM,
    FRAME_SIZE,
    GOAWAY,
    HEAD,
    HEADERS,
    INITIAL_WINDOW_SIZE,
    LARGEST_WINDOW,
    MAX_CONCURRENT_STREAMS,
    MAX_FRAME_SIZE,
    NO_ERROR,
    PADDED,
    PING,
    PREFACE,
    PUSH_PROMISE,
    RST_STREAM,
    SETTINGS,
    WINDOW,
    WINDOW_UPDATE,
    Broken,
    frame,
    read_head,
    read_number,
    read_settings,
    reset,
    settings,
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
    framed,
    take_messages,
)
from .headers import LONGEST_BLOCK, BlockReader

REFILL = 2**30
"""The number of bytes received after which the server's window is filled up again."""
LAST_STREAM = 2**31 - 1

OPENING = (
    PREFACE
    + settings({ENABLE_PUSH: 0, INITIAL_WINDOW_SIZE: LARGEST_WINDOW})
    + window_update(0, LARGEST_WINDOW - WINDOW)
)


class Stream:
    """One call: what is still to be sent for it, and what has come."""

    __slots__ = (
        "block",
        "end",
        "finished",
        "id",
        "messages",
        "partial",
        "received",
        "unsent",
        "window",
    )

    def __init__(self, block: bytes) -> None:
        self.id = 0
        """Its number; 0 while it waits for its turn."""
        self.block = block
        self.window = 0
        """The number of bytes that the server lets us send on it."""
        self.unsent = bytearray()
        self.finished = False
        """True if nothing follows what is unsent."""
        self.messages: list[bytes] = []
        """The messages that have come, for the caller to take away."""
        self.partial = bytearray()
        self.received = 0
        self.end: End | None = None


class Connection:
    """The client's end of one connection."""

    def __init__(self) -> None:
        self._output: list[bytes] = [OPENING]
        self._rest = b""
        """The beginning of a frame that has not come whole."""
        self._blocks = BlockReader()
        self._begun: tuple[int, int, bytearray] | None = None
        """A header block that has not come whole: its stream, the flags, and what there is of it."""
        self._streams: dict[int, Stream] = {}
        self._waiting: deque[Stream] = deque()
        """Streams above the number that the server allows at a time."""
        self._next = 1
        self._most = LARGEST_WINDOW
        self._window = WINDOW
        self._first_window = WINDOW
        self._frame_size = FRAME_SIZE
        self._received = 0
        self._greeted = False
        """True once the server's settings have come."""
        self._away: list[Stream] = []
        """Streams that a GOAWAY has ended."""
        self.going = False
        """True if the server takes no new streams on this connection."""
        self.too_many_pings = False
        self.pings_answered = 0

    @property
    def busy(self) -> bool:
        """True if a stream is open, or waits for its turn."""
        return bool(self._streams or self._waiting)

    @property
    def full(self) -> bool:
        """True if no stream has a number left: the connection is to be replaced."""
        return self.going or self._next > LAST_STREAM - 2

    # Sending.

    def open(self, block: bytes, message: bytes, *, finished: bool) -> Stream:
        """Opens a stream and sends its first message; the last one, if `finished`."""
        stream = Stream(block)
        stream.unsent += framed(message)
        stream.finished = finished
        if len(self._streams) >= self._most or self._waiting:
            self._waiting.append(stream)
        else:
            self._begin(stream)
        return stream

    def send(self, stream: Stream, message: bytes) -> None:
        """Sends another message on `stream`."""
        if stream.end is None:
            stream.unsent += framed(message)
            if stream.id:
                self._send_data(stream)

    def finish(self, stream: Stream) -> None:
        """Sends that nothing follows on `stream`."""
        if stream.end is None and not stream.finished:
            stream.finished = True
            if stream.unsent or not stream.id:
                return  # it is sent with that
            self._output.append(frame(DATA, END_STREAM, stream.id))

    def cancel(self, stream: Stream) -> bool:
        """Gives `stream` up; returns True if nothing of it was sent."""
        if stream.end is not None:
            return False
        stream.end = End("CANCELLED", "given up")
        if not stream.id:
            self._waiting.remove(stream)
            return True
        self._drop(stream)
        self._output.append(reset(stream.id, CANCEL))
        return False

    def ping(self) -> None:
        """Asks the server for a sign of life, which `pings_answered` counts."""
        self._output.append(frame(PING, 0, 0, b"holdfast"))

    def take_output(self) -> bytes:
        """Returns what is to be sent now."""
        output = self._output
        if not output:
            return b""
        data = b"".join(output) if len(output) > 1 else output[0]
        output.clear()
        return data

    def _begin(self, stream: Stream) -> None:
        stream.id = self._next
        stream.window = self._first_window
        self._next += 2
        self._streams[stream.id] = stream
        block = stream.block
        first, rest = block[: self._frame_size], block[self._frame_size :]
        self._output.append(frame(HEADERS, 0 if rest else END_HEADERS, stream.id, first))
        while rest:
            first, rest = rest[: self._frame_size], rest[self._frame_size :]
            self._output.append(frame(CONTINUATION, 0 if rest else END_HEADERS, stream.id, first))
        self._send_data(stream)

    def _send_data(self, stream: Stream) -> None:
        """Sends as much of what is unsent as the windows allow."""
        unsent = stream.unsent
        while unsent:
            size = min(len(unsent), self._window, stream.window, self._frame_size)
            if size <= 0:
                return
            payload = bytes(unsent[:size])
            del unsent[:size]
            self._window -= size
            stream.window -= size
            last = END_STREAM if stream.finished and not unsent else 0
            self._output.append(frame(DATA, last, stream.id, payload))

    def _drop(self, stream: Stream) -> None:
        """Forgets a stream that has ended, and begins the next that waits."""
        del self._streams[stream.id]
        self._begin_waiting()

    def _begin_waiting(self) -> None:
        while self._waiting and len(self._streams) < self._most and not self.full:
            self._begin(self._waiting.popleft())

    # Receiving.

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
                news.extend(self._turned_away())
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
        if not self._greeted and self._rest:
            return _no_http2(self._rest)
        return "the server closed the connection"

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
        elif kind == GOAWAY:
            self._on_goaway(payload)
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
        if number == 0:
            self._window += size
            if self._window > LARGEST_WINDOW:
                raise Broken("the server widened a window too far")
            for one in list(self._streams.values()):
                if one.unsent:
                    self._send_data(one)
        elif stream is not None:
            stream.window += size
            if stream.window > LARGEST_WINDOW:
                raise Broken("the server widened a window too far")
            self._send_data(stream)
        else:
            self._check_opened(number)

    def _on_settings(self, payload: bytes) -> None:
        self._greeted = True
        for name, value in read_settings(payload):
            if name == INITIAL_WINDOW_SIZE:
                if value > LARGEST_WINDOW:
                    raise Broken("the server sent a window that is too large")
                change = value - self._first_window
                self._first_window = value
                for stream in self._streams.values():
                    stream.window += change
            elif name == MAX_FRAME_SIZE:
                if not FRAME_SIZE <= value < 1 << 24:
                    raise Broken("the server sent a size of frames that is not allowed")
                self._frame_size = value
            elif name == MAX_CONCURRENT_STREAMS:
                self._most = value
        self._output.append(frame(SETTINGS, ACK, 0))
        for stream in list(self._streams.values()):
            self._send_data(stream)
        self._begin_waiting()

    def _on_goaway(self, payload: bytes) -> None:
        self.going = True
        last = read_number(payload) & LARGEST_WINDOW
        reason = read_number(payload, 4)
        if reason == ENHANCE_YOUR_CALM and b"too_many_pings" in payload:
            self.too_many_pings = True
        text = "the server goes away" if reason == NO_ERROR else f"the server goes away ({reason})"
        for stream in list(self._streams.values()):
            if stream.id > last:
                del self._streams[stream.id]
                stream.end = End("UNAVAILABLE", text, untouched=True)
                self._away.append(stream)
        for stream in self._waiting:
            stream.end = End("UNAVAILABLE", text, untouched=True)
            self._away.append(stream)
        self._waiting.clear()

    def _turned_away(self) -> list[Stream]:
        away, self._away = self._away, []
        return away


def _no_http2(data: bytes) -> str:
    """Returns why the first bytes of a server are no HTTP/2."""
    if data[:1] in (b"\x15", b"\x16") and data[1:2] == b"\x03":
        return "the server wants TLS; add ?tls=1 to the URL"
    return "the server does not speak HTTP/2, as etcd does"
