"""Header blocks: those of our requests, made once, and those of the server, remembered."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from .....errors import ConfigError
from .....refusals import lacks
from .frames import Broken

Headers = dict[bytes, bytes]

LONGEST_BLOCK = 65536


def require_hpack() -> Any:
    """Returns the module `hpack`, or says how to install it."""
    try:
        import hpack
    except ImportError:
        raise ConfigError(lacks("etcd://", "the package hpack", "etcd")) from None
    return hpack


@lru_cache(maxsize=256)
def request_block(method: str, authority: str, tls: bool, token: str) -> bytes:
    """Returns the header block of a call of `method`, the same for every connection.

    By `hasleader` a member without a leader says so at once, instead of leaving the caller to wait.
    """
    headers = [
        (":method", "POST"),
        (":scheme", "https" if tls else "http"),
        (":path", method),
        (":authority", authority),
        ("te", "trailers"),
        ("content-type", "application/grpc"),
        ("user-agent", "holdfast"),
        ("hasleader", "true"),
    ]
    if token:
        headers.append(("token", token))
    encoder = require_hpack().Encoder()
    block: bytes = encoder.encode([(*header, True) for header in headers], huffman=False)
    return block


class BlockReader:
    """The reader of the header blocks of one connection.

    A block of indexes only (each byte from 0x80 to 0xfe) changes nothing in the shared table, and means
    the same until another block does.
    """

    def __init__(self) -> None:
        hpack = require_hpack()
        self._decoder: Any = hpack.Decoder(max_header_list_size=LONGEST_BLOCK)
        self._error: type[Exception] = hpack.HPACKError
        self._known: dict[bytes, Headers] = {}

    def read(self, block: bytes) -> Headers:
        """Returns the headers in `block`; the last of those with the same name."""
        found = self._known.get(block)
        if found is not None:
            return found
        try:
            headers = dict(self._decoder.decode(block, raw=True))
        except self._error as error:
            raise Broken(f"the server sent headers that cannot be read: {error}") from None
        if block.isascii() or min(block) < 0x80 or max(block) == 0xFF:
            self._known.clear()
        else:
            self._known[block] = headers
        return headers
