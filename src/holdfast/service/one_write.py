"""One write for an answer: its head goes out together with its body.

uvicorn writes the head of an answer and its body one after the other, which is two packets, and wakes
the client twice. Here the application may say that a body follows at once: the head is kept for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from .answers import KEEP_HEAD
from .pipelining import PipelinedProtocol


class HeadKeeper:
    """The transport of a connection, which can keep one write for the next."""

    __slots__ = ("_head", "_transport", "write")

    write: Callable[[bytes], None]

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._head = b""
        self.write = transport.write

    def keep_head(self) -> None:
        """Has the next write wait for the one after it."""
        self.write = self._keep

    def _keep(self, head: bytes) -> None:
        self._head = head
        self.write = self._write_both

    def _write_both(self, body: bytes) -> None:
        self.write = self._transport.write
        self._transport.write(self._head + body)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class OneWriteProtocol(PipelinedProtocol):
    """A connection whose answers go out in one write each, where the application asks for it."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        keeper = HeadKeeper(transport)
        self._keep_head = keeper.keep_head
        super().connection_made(keeper)  # type: ignore[arg-type]

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope[KEEP_HEAD] = self._keep_head  # type: ignore[literal-required]
