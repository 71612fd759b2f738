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


class Answer(NamedTuple):
    """A status, and what is told with it."""

    status: int
    body: object = None
    """Data, which is sent as JSON; bytes, which are sent as they are; or None."""
    headers: Iterable[tuple[bytes, bytes]] = ()
    media_type: bytes = JSON


dumps = json.JSONEncoder(separators=(",", ":"), allow_nan=False, check_circular=False).encode
"""Returns a value as JSON, in ASCII."""


KEEP_HEAD = "holdfast.keep_head"
"""Where the scope of our own server has a function to call if a body follows its head at once."""


async def send_answer(scope: Scope, send: Send, answer: Answer) -> None:
    """Sends the answer to the request of this scope; if it is one to HEAD, without its body."""
    status, value, more, media_type = answer
    head = scope["method"] == "HEAD"
    headers = [_NO_STORE, *more]
    if value is None:
        body = b""
    else:
        body = value if isinstance(value, bytes) else dumps(value).encode()
        headers.append((b"content-type", media_type))
    if status != 204:
        headers.append((b"content-length", b"%d" % len(body)))
    if body and not head and KEEP_HEAD in scope:
        scope[KEEP_HEAD]()
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if head else body})
