"""Answers: what a request is answered with, and how that is sent."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any, NamedTuple

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]
Headers = Iterable[tuple[bytes, bytes]]

JSON = b"application/json"
_NO_STORE = (b"cache-control", b"no-store")
_HEADERS = b"cache-control: no-store\r\ncontent-type: %b\r\ncontent-length: %d\r\n"
"""The lines of the headers that nearly all answers have, and no other."""
SendWhole = Callable[[int, bytes, bytes], bool]
"""Sends a status, the lines of the headers, and a body in one step; False if that cannot be done."""


class Answer(NamedTuple):
    """A status, and what is told with it."""

    status: int
    body: object = None
    """Data, which is sent as JSON; bytes, which are sent as they are; or None."""
    headers: Iterable[tuple[bytes, bytes]] = ()
    media_type: bytes = JSON


dumps = json.JSONEncoder(separators=(",", ":"), allow_nan=False, check_circular=False).encode
"""Returns a value as JSON, in ASCII."""


async def send_answer(scope: Scope, send: Send, answer: Answer) -> None:
    """Sends the answer to the request of this scope; if it is one to HEAD, without its body."""
    status, value, more, media_type = answer
    head = scope["method"] == "HEAD"
    if value is None:
        body = b""
    else:
        body = value if isinstance(value, bytes) else dumps(value).encode()
        if body and not more and not head:
            whole: SendWhole | None = getattr(send, "whole", None)
            if whole is not None and whole(status, _HEADERS % (media_type, len(body)), body):
                return
    headers = [_NO_STORE, *more]
    if value is not None:
        headers.append((b"content-type", media_type))
    if status != 204:
        headers.append((b"content-length", b"%d" % len(body)))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if head else body})
