"""The bytes of etcd's messages (protocol buffers), as far as they are needed here.

Written by hand, because it is a page of code: generated messages would bind every user of this package
to one range of versions of the protobuf runtime.
"""

from __future__ import annotations

from collections.abc import Iterator

from ....errors import BackendUnavailable
from ....interrupts import let_through

Value = int | bytes
"""The content of a field: a number, or the bytes of a text or a message."""


_SHORT = [bytes((number,)) for number in range(128)]


def varint(number: int) -> bytes:
    """Returns a number as protocol buffers write it."""
    if 0 <= number < 128:
        return _SHORT[number]
    if 0 < number < 16384:
        return bytes((number & 127 | 128, number >> 7))
    if number < 0:
        number += 1 << 64
    parts = bytearray()
    while number > 127:
        parts.append(number & 127 | 128)
        number >>= 7
    parts.append(number)
    return bytes(parts)


def number(field: int, value: int) -> bytes:
    """Returns a field with a number; nothing for 0, which means the same."""
    return varint(field << 3) + varint(value) if value else b""


def data(field: int, value: bytes) -> bytes:
    """Returns a field with bytes, or a message; it is there even if that is empty."""
    size = len(value)
    if field < 16 and size < 128:
        return _SHORT[field << 3 | 2] + _SHORT[size] + value
    return varint(field << 3 | 2) + varint(size) + value


def unreadable() -> BackendUnavailable:
    """Returns the error for a message that is none of etcd's."""
    return BackendUnavailable("the etcd cluster sent a reply that cannot be read")


def as_bytes(value: Value) -> bytes:
    """Returns the content of a field that has to be bytes."""
    if type(value) is not bytes:
        raise unreadable()
    return value


def as_number(value: Value) -> int:
    """Returns the content of a field that has to be a number."""
    if type(value) is not int:
        raise unreadable()
    return value


def fields(message: bytes) -> Iterator[tuple[int, Value]]:
    """Yields the fields of a message in their order, unknown ones too."""
    try:
        at, end = 0, len(message)
        while at < end:
            key = message[at]
            at += 1
            if key > 127:
                key, at = _rest(message, at, key)
            kind = key & 7
            if kind == 2:
                size = message[at]
                at += 1
                if size > 127:
                    size, at = _rest(message, at, size)
                if at + size > end:
                    raise ValueError("a message ends in the middle of a field")
                yield key >> 3, message[at : at + size]
                at += size
            elif kind == 0:
                value = message[at]
                at += 1
                if value > 127:
                    value, at = _rest(message, at, value)
                yield key >> 3, value - (1 << 64) if value >> 63 else value
            elif kind == 1:
                at += 8
            elif kind == 5:
                at += 4
            else:
                raise ValueError(f"a message has a field of the unknown kind {kind}")
    except (IndexError, ValueError) as error:
        let_through(error)
        raise unreadable() from None


def _rest(message: bytes, at: int, first: int) -> tuple[int, int]:
    value, shift = first & 127, 7
    while True:
        byte = message[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError("a number is too long")
