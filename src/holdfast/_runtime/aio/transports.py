"""Questions to a transport of asyncio, whatever loop made it."""

from __future__ import annotations

import asyncio


def descriptor(transport: asyncio.BaseTransport | None) -> int:
    """Returns the descriptor of a transport's socket; -1 if it has none."""
    sock = None if transport is None else transport.get_extra_info("socket")
    return -1 if sock is None else int(sock.fileno())
