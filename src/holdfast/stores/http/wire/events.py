"""Server-sent events: what comes on a stream that stays open. No I/O."""

from __future__ import annotations

from .http1 import Broken, Reader

LONGEST_EVENT = 1 << 20


class EventReader:
    """The reader of a stream, which is fed what comes in."""

    __slots__ = ("_buffer", "_data", "_name", "_size")

    def __init__(self) -> None:
        self._buffer = b""
        self._name = b""
        self._data: list[bytes] = []
        self._size = 0
        """Lines and bytes of the event so far."""

    def feed(self, piece: bytes) -> list[tuple[str, bytes]]:
        """Returns the events that are complete by now: their names and data."""
        buffer = self._buffer + piece
        if len(buffer) > LONGEST_EVENT:
            raise Broken("it sent an event that is too long")
        events: list[tuple[str, bytes]] = []
        *lines, self._buffer = buffer.replace(b"\r\n", b"\n").split(b"\n")
        for line in lines:
            if not line:
                if self._data:
                    events.append((self._name.decode("utf-8", "replace"), b"\n".join(self._data)))
                self._name, self._data, self._size = b"", [], 0
                continue
            field, _, value = line.partition(b":")
            value = value.removeprefix(b" ")
            if field == b"event":
                self._name = value
            elif field == b"data":
                self._data.append(value)
                self._size += 1 + len(value)
                if self._size > LONGEST_EVENT:
                    raise Broken("it sent an event that is too long")
        return events


def check_stream(reader: Reader) -> None:
    """Raises `Broken` if an answer, whose head has come, is no stream of events."""
    kind = reader.headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
    if reader.status != 200 or kind != b"text/event-stream":
        raise Broken(f"it does not tell us of wake-ups: it answered {reader.status}")
