"""Streams: answers that go on, as server-sent events."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING

from .answers import Send

if TYPE_CHECKING:
    from .call import Call

STUCK_AFTER = 60.0
"""Seconds for which a piece may take to be sent; a listener that takes longer is dropped."""
KEEP_ALIVE = 15.0
"""Seconds after which a stream in which nothing happens is sent a comment."""
COMMENT = b":\n\n"
_HEADERS = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),  # nginx would keep events back
]


def event(name: str, data: str, id: str = "") -> bytes:
    """Returns one server-sent event; `data` is JSON in one line."""
    head = f"id: {id}\n" if id else ""
    return f"{head}event: {name}\ndata: {data}\n\n".encode()


class Stream:
    """One stream, from its first byte until the client is gone, or the service stops."""

    def __init__(self, call: Call, send: Send) -> None:
        self.signal = asyncio.Event()
        """Set when there is something to be sent, or the stream has ended."""
        self.ended = False
        self._call = call
        self._send = send
        self._attention: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Stream:
        call = self._call
        call.service.authority.begin(call.caller, "listen")
        call.service.streams.add(self)
        self._attention = asyncio.create_task(self._listen())
        await self._send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
        return self

    async def __aexit__(self, *error: object) -> None:
        call = self._call
        call.service.streams.discard(self)
        call.service.authority.end(call.caller, "listen")
        if self._attention is not None:
            self._attention.cancel()
        if error[0] is None:
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _listen(self) -> None:
        while (await self._call.receive())["type"] != "http.disconnect":
            pass
        self.end()

    def end(self) -> None:
        """Ends the stream."""
        self.ended = True
        self.signal.set()

    async def write(self, data: bytes) -> None:
        await self._send({"type": "http.response.body", "body": data, "more_body": True})

    async def write_in_time(self, pieces: Iterable[bytes]) -> None:
        """Writes one piece after the other, with a turn for others between them.

        Raises TimeoutError if the listener does not read.
        """
        for number, piece in enumerate(pieces):
            if number:
                await asyncio.sleep(0)
            async with asyncio.timeout(STUCK_AFTER):
                await self.write(piece)

    async def wait(self) -> bool:
        """Waits until there is something to be sent; keeps the stream alive. False: it has ended."""
        while not self.signal.is_set():
            try:
                async with asyncio.timeout(KEEP_ALIVE):
                    await self.signal.wait()
            except TimeoutError:
                await self.write(COMMENT)
        self.signal.clear()
        return not self.ended
