"""HTTP/1.1 as a client of our own service needs it, and no more. No I/O.

It is strict: what could be read in two ways is refused, and so is what is too long. A body has a
length, or comes in chunks; one that ends with its connection could have been cut off anywhere.
"""

from __future__ import annotations

import re
from typing import NamedTuple

LARGEST_HEAD = 32 << 10
LARGEST_BODY = 16 << 20
LARGEST_LINE = 1024
"""The longest line between two chunks."""

_STATUS = re.compile(rb"HTTP/1\.([01]) ([1-5][0-9][0-9])(?: [^\x00-\x08\x0a-\x1f\x7f]*)?")
_HEADER = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\x00-\x08\x0a-\x1f\x7f]*?)[ \t]*")
_LENGTH = re.compile(rb"[0-9]{1,12}")
_CHUNK = re.compile(rb"([0-9A-Fa-f]{1,8})[ \t]*(?:;[^\x00-\x08\x0a-\x1f\x7f]*)?")

HEAD, LENGTH, SIZE, CHUNK, CHUNK_END, TRAILERS, DONE = range(7)
"""What is read next: the head; a body of known length; the size of a chunk; a chunk; the end of its
line; lines behind the last chunk; nothing."""


class Broken(Exception):
    """Raised when the connection ended too early, or what came on it is not HTTP as we speak it."""


class Answer(NamedTuple):
    """The answer to a request."""

    status: int
    headers: dict[bytes, bytes]
    """By their names in lower case."""
    body: bytes
    endpoint: str
    """The service that answered."""

    @property
    def media_type(self) -> str:
        """The type of the body, without its parameters."""
        value = self.headers.get(b"content-type", b"")
        return value.partition(b";")[0].strip().lower().decode("latin-1")


def request_of(method: str, path: str, headers: bytes, body: bytes | None) -> bytes:
    """Returns a request. `headers` are lines with their ends, the same for all requests."""
    if body is None:
        return b"%b %b HTTP/1.1\r\n%b\r\n" % (method.encode(), path.encode(), headers)
    return b"%b %b HTTP/1.1\r\n%bContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (
        method.encode(),
        path.encode(),
        headers,
        len(body),
        body,
    )


class Reader:
    """The reader of one answer, which is fed what comes in."""

    __slots__ = (
        "_buffer",
        "_left",
        "_length",
        "_limit",
        "_parts",
        "_state",
        "headers",
        "keep",
        "status",
    )

    def __init__(self, limit: int | None = LARGEST_BODY) -> None:
        """`limit` is the longest body; None for a stream, whose body is taken piece by piece."""
        self._limit = limit
        self._buffer = b""
        self._parts: list[bytes] = []
        self._length = 0
        """Bytes of the body that have come."""
        self._left = 0
        """Bytes that are missing of the body, or of the chunk."""
        self._state = HEAD
        self.status = 0
        """0 until the head has come."""
        self.headers: dict[bytes, bytes] = {}
        self.keep = True
        """Whether the connection may be used for another request."""

    @property
    def done(self) -> bool:
        """Whether the whole answer has come."""
        return self._state == DONE

    def take_body(self) -> bytes:
        """Returns what has come of the body since the last call."""
        body = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        self._parts = []
        return body

    def feed(self, data: bytes) -> None:
        """Takes what has come. Raises `Broken` if it is not what an answer may be."""
        self._buffer = self._buffer + data if self._buffer else data
        while self._step():
            pass
        if self._state == DONE and self._buffer:
            self.keep = False  # the beginning of an answer to nothing that was asked

    def _step(self) -> bool:
        """Reads the next part; returns False if more has to come first, or nothing is missing."""
        state = self._state
        if state == HEAD:
            return self._read_head()
        if state in (LENGTH, CHUNK):
            return self._read_body()
        if state == DONE:
            return False
        line = self._next_line()
        if line is None:
            return False
        if state == SIZE:
            found = _CHUNK.fullmatch(line)
            if found is None:
                raise Broken("it sent a chunk without a size")
            self._left = int(found[1], 16)
            self._state = CHUNK if self._left else TRAILERS
            self._check_length()
        elif state == CHUNK_END:
            if line:
                raise Broken("it sent a chunk that is longer than it said")
            self._state = SIZE
        elif not line:
            self._state = DONE
        return True

    def _next_line(self) -> bytes | None:
        line, end, rest = self._buffer.partition(b"\r\n")
        if len(line) > LARGEST_LINE:
            raise Broken("it sent a line that is too long")
        if not end:
            return None
        self._buffer = rest
        return line

    def _read_body(self) -> bool:
        data = self._buffer
        if not data:
            return False
        part = data if len(data) <= self._left else data[: self._left]
        self._buffer = data[len(part) :]
        self._parts.append(part)
        self._left -= len(part)
        if not self._left:
            self._state = DONE if self._state == LENGTH else CHUNK_END
        return True

    def _check_length(self) -> None:
        self._length += self._left
        if self._limit is not None and self._length > self._limit:
            raise Broken(f"its answer is longer than {self._limit} bytes")

    def _read_head(self) -> bool:
        head, end, rest = self._buffer.partition(b"\r\n\r\n")
        if len(head) > LARGEST_HEAD:
            raise Broken("the head of its answer is too long")
        if not end:
            if not b"HTTP/1.".startswith(head[:7]):
                raise Broken("it does not speak HTTP/1.1")
            return False
        first, *lines = head.split(b"\r\n")
        found = _STATUS.fullmatch(first)
        if found is None:
            raise Broken("it does not speak HTTP/1.1")
        status = int(found[2])
        headers = _headers_of(lines)
        self._buffer = rest
        if status < 200:
            if status == 101:
                raise Broken("it wants to speak another protocol")
            return True  # the answer itself follows
        self.status, self.headers = status, headers
        options = headers.get(b"connection", b"").lower()
        self.keep = found[1] == b"1" and b"close" not in options
        self._begin_body(status, headers)
        return True

    def _begin_body(self, status: int, headers: dict[bytes, bytes]) -> None:
        length, coding = headers.get(b"content-length"), headers.get(b"transfer-encoding")
        if headers.get(b"content-encoding", b"identity").lower() != b"identity":
            raise Broken("its answer is compressed, which was not asked for")
        if coding is not None:
            if coding.lower() != b"chunked" or length is not None:
                raise Broken("it does not say how long its answer is")
            self._state = SIZE
        elif length is not None:
            if not _LENGTH.fullmatch(length):
                raise Broken("it does not say how long its answer is")
            self._left = int(length)
            self._state = LENGTH if self._left and status not in (204, 304) else DONE
            self._check_length()
        elif status in (204, 304):
            self._state = DONE
        else:
            raise Broken("it does not say how long its answer is")


def _headers_of(lines: list[bytes]) -> dict[bytes, bytes]:
    headers: dict[bytes, bytes] = {}
    for line in lines:
        found = _HEADER.fullmatch(line)
        if found is None:
            raise Broken("it sent a header that is none")
        name, value = found[1].lower(), found[2]
        if name not in headers:
            headers[name] = value
        elif name in (b"content-length", b"transfer-encoding", b"content-type"):
            raise Broken("it sent a header twice")
        else:
            headers[name] += b", " + value
    return headers
