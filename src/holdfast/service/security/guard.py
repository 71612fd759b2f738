"""The guard at the door: an ASGI application around the service, which judges what needs no token."""

from __future__ import annotations

from collections.abc import Awaitable

from ..answers import Application, Message, Receive, Scope, Send, SendWhole, send_answer
from ..problems import Problem
from .origin import Origins

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; font-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
"""The rights of our page: it loads what comes from here, and never makes HTML or scripts of texts."""
HEADERS = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
)
"""The headers of every answer, unless it has others of that name."""

_LINES = b"".join([b"%b: %b\r\n" % pair for pair in HEADERS])


class GuardedSend:
    """`send` of a request, with the headers of every answer."""

    __slots__ = ("_send", "_whole")

    def __init__(self, send: Send) -> None:
        self._send = send
        self._whole: SendWhole | None = getattr(send, "whole", None)

    def __call__(self, message: Message) -> Awaitable[None]:
        if message["type"] == "http.response.start":
            headers = list(message.get("headers", ()))
            present = {name.lower() for name, _ in headers}
            headers += [pair for pair in HEADERS if pair[0] not in present]
            message = {**message, "headers": headers}
        return self._send(message)

    def whole(self, status: int, headers: bytes, body: bytes) -> bool:
        """Sends a whole answer, whose own headers are none of these; False if that cannot be done."""
        return self._whole is not None and self._whole(status, _LINES + headers, body)


class Guard:
    """The service behind its door, where other origins and hosts are refused."""

    def __init__(self, app: Application, origins: Origins, head_limit: int = 32 << 10) -> None:
        self._app = app
        self._origins = origins
        self._head_limit = head_limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1008})
            else:
                await self._app(scope, receive, send)
            return

        send_guarded = GuardedSend(send)
        try:
            self._check_head(scope)
            self._origins.check(scope)
        except Problem as problem:
            await send_answer(scope, send_guarded, problem.answer())
            return
        await self._app(scope, receive, send_guarded)

    def _check_head(self, scope: Scope) -> None:
        size = sum(len(name) + len(value) for name, value in scope["headers"])
        size += len(scope.get("raw_path", b"")) + len(scope["query_string"])
        if size > self._head_limit:
            raise Problem(
                "head-too-large",
                f"the first line and the headers have more than {self._head_limit} bytes",
                headers=((b"connection", b"close"),),
            )
