"""Connections that may not dawdle: uvicorn's protocol, with an end to what trickles in or out.

uvicorn closes a connection on which nothing is asked for a while, but waits for ever for the rest of
what was begun, and for ever for a client that does not read. Here the whole of a request has to come
within some seconds, and an answer that waits to be sent has to be read from. While it is carried out,
however long that takes, no time runs; but it can be cut, when its caller's token is revoked.
"""

from __future__ import annotations

import asyncio
from typing import Any

from ..one_write import OneWriteProtocol
from .limits import Limits
from .tokens import CUT

HEAD, BODY, DONE = "head", "body", "done"
_TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\n"
    b"connection: close\r\ncontent-length: 0\r\n\r\n"
)


def guarded_protocol(limits: Limits) -> type[asyncio.Protocol]:
    """Returns the protocol of connections with these limits, for `http=` of uvicorn."""

    class LimitedProtocol(GuardedProtocol):
        LIMITS = limits

    return LimitedProtocol


class GuardedProtocol(OneWriteProtocol):
    """A connection with limits."""

    LIMITS = Limits()

    def __init__(self, *words: Any, **options: Any) -> None:
        super().__init__(*words, **options)
        self._timer: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None
        self._phase = HEAD
        """The part of a request that is awaited next."""
        self._head = 0
        """Bytes since the last request, or its head, was complete, or a piece of its body came."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.LIMITS.most_connections:
            transport.abort()
        else:
            self._expect()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        self._stop_unread()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._head += len(data)
        super().data_received(data)
        if self.transport.is_closing() or self._full:
            self._stop_timer()  # the answers to what came before are the last
            return
        if self._head > self.LIMITS.head_limit:
            self.transport.write(_TOO_LARGE)
            self.transport.close()
        if self._phase == DONE and not self.cycle.response_complete:
            self._stop_timer()  # the request is carried out
        else:
            self._expect()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread = self.loop.call_later(self.LIMITS.send_within, self._cut)

    def resume_writing(self) -> None:
        self._stop_unread()
        super().resume_writing()

    def on_message_begin(self) -> None:
        self._phase = HEAD
        super().on_message_begin()
        self.scope[CUT] = self._cut  # type: ignore[literal-required]

    def on_headers_complete(self) -> None:
        self._phase = BODY
        self._head = 0
        super().on_headers_complete()

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._phase == HEAD:  # what comes behind a body is not heeded
            super().on_header(name, value)

    def on_body(self, body: bytes) -> None:
        self._head = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._phase = DONE
        self._head = 0
        super().on_message_complete()

    def _expect(self) -> None:
        if self._timer is None:
            self._timer = self.loop.call_later(self.LIMITS.receive_within, self._cut)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _stop_unread(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def _cut(self) -> None:
        if not self.transport.is_closing():
            self.transport.abort()
