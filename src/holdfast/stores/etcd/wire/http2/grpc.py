"""gRPC within one stream of HTTP/2: messages, and the status at the end."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import unquote_to_bytes

from .frames import CANCEL, ENHANCE_YOUR_CALM, REFUSED_STREAM
from .headers import Headers

PREFIX = 5
"""The length of what stands before each message: whether it is compressed, and its length."""
LARGEST_MESSAGE = 512 << 20

_CODES = (
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
)
_OF_HTTP = {
    400: "INTERNAL",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "UNIMPLEMENTED",
    429: "UNAVAILABLE",
    502: "UNAVAILABLE",
    503: "UNAVAILABLE",
    504: "UNAVAILABLE",
}


class End(NamedTuple):
    """The end of a stream."""

    code: str
    """The name of a gRPC status."""
    details: str = ""
    untouched: bool = False
    """True if the server says that it has not begun with the request: it may be sent again."""


OK = End("OK")


class Unreadable(Exception):
    """Raised when a message of the server is compressed or too long."""


def framed(message: bytes) -> bytes:
    """Returns a message as it stands in a stream."""
    return b"\0" + len(message).to_bytes(4, "big") + message


def take_messages(data: bytearray, messages: list[bytes]) -> None:
    """Moves the whole messages at the beginning of `data` to `messages`."""
    while len(data) >= PREFIX:
        size = int.from_bytes(data[1:PREFIX], "big")
        if data[0] or size > LARGEST_MESSAGE:
            raise Unreadable("the server sent a message that is compressed, or too long")
        if len(data) < PREFIX + size:
            return
        messages.append(bytes(data[PREFIX : PREFIX + size]))
        del data[: PREFIX + size]


def end_by_trailers(headers: Headers) -> End:
    """Returns the end that the last headers of a stream tell of."""
    status = headers.get(b"grpc-status", b"")
    if status == b"0":
        return OK
    if not status.isdigit() or len(status) > 3:
        return end_by_status(headers) or End("UNKNOWN", "the server ended a call without a status")
    code = int(status)
    details = unquote_to_bytes(headers.get(b"grpc-message", b"")).decode(errors="replace")
    return End(_CODES[code] if code < len(_CODES) else "UNKNOWN", details)


def end_by_status(headers: Headers) -> End | None:
    """Returns the end that an HTTP status tells of; None if that is 200, or none at all."""
    status = headers.get(b":status", b"200")
    if status == b"200":
        return None
    number = int(status) if status.isdigit() and len(status) == 3 else 0
    code = _OF_HTTP.get(number, "UNKNOWN")
    shown = status[:16].decode(errors="replace")
    return End(code, f"the server answered with the HTTP status {shown}, not as etcd does")


def end_by_reset(reason: int) -> End:
    """Returns the end of a stream that the server has reset."""
    if reason == REFUSED_STREAM:
        return End("UNAVAILABLE", "the server refused the request for now", untouched=True)
    if reason == CANCEL:
        return End("CANCELLED", "the server cancelled the request")
    if reason == ENHANCE_YOUR_CALM:
        return End("UNAVAILABLE", "the server says that there are too many requests")
    return End("UNAVAILABLE", f"the server gave the request up (HTTP/2 error {reason})")
