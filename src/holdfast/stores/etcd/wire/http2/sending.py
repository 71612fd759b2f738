"""The half of a connection that sends: streams begin in their turn, and their data goes out as far as
the windows of the server allow."""

from __future__ import annotations

from collections import deque

from .frames import (
    CANCEL,
    CONTINUATION,
    DATA,
    ENABLE_PUSH,
    END_HEADERS,
    END_STREAM,
    FRAME_SIZE,
    HEADERS,
    INITIAL_WINDOW_SIZE,
    LARGEST_WINDOW,
    MAX_CONCURRENT_STREAMS,
    MAX_FRAME_SIZE,
    PING,
    PREFACE,
    WINDOW,
    Broken,
    frame,
    reset,
    settings,
    window_update,
)
from .grpc import OK, End, framed

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


class SendingHalf:
    """The streams of a connection, and what is to be sent for them."""

    def __init__(self) -> None:
        self._output: list[bytes] = [OPENING]
        self._streams: dict[int, Stream] = {}
        self._waiting: deque[Stream] = deque()
        """Streams above the number that the server allows at a time."""
        self._next = 1
        self._most = LARGEST_WINDOW
        self._window = WINDOW
        self._first_window = WINDOW
        self._frame_size = FRAME_SIZE
        self.going = False
        """True if the server takes no new streams on this connection."""

    @property
    def busy(self) -> bool:
        """True if a stream is open, or waits for its turn."""
        return bool(self._streams or self._waiting)

    @property
    def full(self) -> bool:
        """True if no stream has a number left: the connection is to be replaced."""
        return self.going or self._next > LAST_STREAM - 2

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

    def conclude(self, stream: Stream) -> None:
        """Ends a stream whose first message is all that is wanted of it."""
        if stream.end is None:
            stream.end = OK
            self._drop(stream)
            self._output.append(reset(stream.id, CANCEL))

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

    # The server's wishes.

    def _obey(self, name: int, value: int) -> None:
        """Takes over one of the server's settings."""
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

    def _send_all(self) -> None:
        """Sends and begins what new settings allow."""
        for stream in list(self._streams.values()):
            self._send_data(stream)
        self._begin_waiting()

    def _widen(self, stream: Stream | None, size: int) -> None:
        """Widens the window of `stream`, or of the whole connection."""
        if stream is not None:
            stream.window += size
            if stream.window > LARGEST_WINDOW:
                raise Broken("the server widened a window too far")
            self._send_data(stream)
            return
        self._window += size
        if self._window > LARGEST_WINDOW:
            raise Broken("the server widened a window too far")
        for one in list(self._streams.values()):
            if one.unsent:
                self._send_data(one)

    def _turn_away(self, last: int, text: str) -> list[Stream]:
        """Ends the streams behind the `last` one that the server handles; returns them."""
        self.going = True
        away = [stream for stream in self._streams.values() if stream.id > last]
        for stream in away:
            del self._streams[stream.id]
        away += self._waiting
        self._waiting.clear()
        for stream in away:
            stream.end = End("UNAVAILABLE", text, untouched=True)
        return away
