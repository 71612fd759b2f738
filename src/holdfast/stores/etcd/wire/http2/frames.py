"""The bytes of HTTP/2 frames (RFC 9113, section 6)."""

from __future__ import annotations

from struct import Struct

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS = 0, 1, 2, 3, 4
PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = 5, 6, 7, 8, 9

END_STREAM, ACK, END_HEADERS, PADDED, HAS_PRIORITY = 1, 1, 4, 8, 32

HEADER_TABLE_SIZE, ENABLE_PUSH, MAX_CONCURRENT_STREAMS = 1, 2, 3
INITIAL_WINDOW_SIZE, MAX_FRAME_SIZE = 4, 5

NO_ERROR, REFUSED_STREAM, CANCEL, ENHANCE_YOUR_CALM = 0, 7, 8, 11

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEAD = 9
"""The length of a frame's head."""
FRAME_SIZE = 16384
"""The longest frame, unless its receiver allows more; we do not."""
WINDOW = 65535
"""The window with which streams and connections begin, unless the receiver says otherwise."""
LARGEST_WINDOW = 2**31 - 1

_head = Struct(">HBBBI")
_pair = Struct(">HI")
_number = Struct(">I")
read_head = _head.unpack_from
"""Function that returns, from bytes and an offset: the length's upper 16 and lower 8 bits, the kind,
the flags, and the stream."""


class Broken(Exception):
    """Raised when a connection is of no use any more: it was closed, or the server breaks the rules."""


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """Returns a frame."""
    size = len(payload)
    return _head.pack(size >> 8, size & 255, kind, flags, stream) + payload


def settings(values: dict[int, int]) -> bytes:
    """Returns a frame with our settings."""
    return frame(SETTINGS, 0, 0, b"".join(_pair.pack(*one) for one in values.items()))


def window_update(stream: int, size: int) -> bytes:
    """Returns a frame that lets the server send `size` bytes more, on a stream or on all (0)."""
    return frame(WINDOW_UPDATE, 0, stream, _number.pack(size))


def reset(stream: int, reason: int) -> bytes:
    """Returns a frame that ends a stream at once."""
    return frame(RST_STREAM, 0, stream, _number.pack(reason))


def read_settings(payload: bytes) -> list[tuple[int, int]]:
    """Returns the settings in a frame of the server's."""
    if len(payload) % _pair.size:
        raise Broken("the server sent settings of a wrong length")
    return list(_pair.iter_unpack(payload))


def read_number(payload: bytes, at: int = 0) -> int:
    """Returns the 32-bit number in a frame's payload."""
    if len(payload) < at + 4:
        raise Broken("the server sent a frame that is too short")
    value: int = _number.unpack_from(payload, at)[0]
    return value


def unpadded(flags: int, payload: bytes) -> bytes:
    """Returns the payload of a DATA or HEADERS frame without its padding and its priority."""
    if not flags & (PADDED | HAS_PRIORITY):
        return payload
    first = 0
    last = len(payload)
    if flags & PADDED:
        first = 1
        last -= payload[0] if payload else 1
    if flags & HAS_PRIORITY:
        first += 5
    if first > last:
        raise Broken("the server sent a frame with more padding than it has bytes")
    return payload[first:last]
