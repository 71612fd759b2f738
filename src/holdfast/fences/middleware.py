"""A fence before an HTTP service: refuses requests whose `Fencing-Token` is older than one it has seen.

A request that passes has its resource to itself until it has been answered, so no other one can
overtake it between the check and the write. The memory is the process's own, or a folder that all
processes of a machine share. Where the service runs on several machines, fence its database: the
handler finds what was shown under `scope["holdfast.fencing"]`, or `environ["holdfast.fencing"]`, and
gives it to a `SqlFence` in its own transaction.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any
from urllib.parse import quote

from ..errors import ConfigError, LockError, StaleToken
from . import http, rules
from .file import FileFence
from .memory import MemoryFence

KEY = "holdfast.fencing"
SAFE = frozenset(("GET", "HEAD", "OPTIONS", "TRACE"))
BAD, FORBIDDEN, REQUIRED, NO_CONTENT = 400, 403, 428, 204
PHRASES = {
    BAD: "Bad Request",
    FORBIDDEN: "Forbidden",
    http.CONFLICT: "Conflict",
    REQUIRED: "Precondition Required",
}

Resource = Callable[[Any], str]
Answer = tuple[int, list[tuple[str, str]], bytes]


class FencingMiddleware:
    """Wraps an ASGI or a WSGI application; which of them it is, is found out.

    `fence` is where tokens are remembered: a `MemoryFence` of its own unless given; or `folder`, for
    all processes of a machine. What a request writes to is its path, or what `resource(scope or
    environ)` answers. A request that changes something and shows no token is answered 428, unless
    `required=False`; GET, HEAD, OPTIONS and TRACE pass.
    """

    def __new__(cls, app: Any, *args: Any, **options: Any) -> FencingMiddleware:
        kind: type[FencingMiddleware] = cls
        if kind is FencingMiddleware:
            kind = _Asgi if any(map(inspect.iscoroutinefunction, (app, app.__call__))) else _Wsgi
        return super().__new__(kind)

    def __init__(
        self,
        app: Any,
        fence: MemoryFence | None = None,
        *,
        folder: str | os.PathLike[str] | None = None,
        resource: Resource | None = None,
        required: bool = True,
        single_use: bool = False,
    ) -> None:
        if fence is not None and (folder is not None or single_use or not hasattr(fence, "hold")):
            raise ConfigError("give a MemoryFence, or a folder, to remember tokens in")
        if folder is not None and not os.path.isdir(folder):
            raise ConfigError(f"there is no such folder to remember tokens in: {str(folder)!r}")
        self.app = app
        self.fence = fence or MemoryFence(single_use=single_use)
        self._folder = None if folder is None else os.path.realpath(folder)
        self._resource = resource
        self._required = required

    def _hold(self, resource: str, credential: http.RequestToken) -> Any:
        if self._folder is None:
            return self.fence.hold(resource, credential)
        name = hashlib.sha256(resource.encode()).hexdigest()
        return FileFence(single_use=self.fence.single_use).hold(
            os.path.join(self._folder, name), credential
        )

    def _judge(self, method: str, headers: dict[str, str]) -> http.RequestToken | Answer | None:
        """Returns the request's token; or the response, if it ends here; None if it just passes."""
        probe = headers.get(http.PROBE.lower())
        if probe is not None and method == "OPTIONS":
            return NO_CONTENT, [(http.PROBE, quote(probe[:64]))], b""
        if method in SAFE:
            return None
        try:
            credential = http.read_headers(headers)
        except LockError as error:
            return _answer(BAD, {"error": str(error)})
        if credential is not None and credential.shared:
            return _answer(FORBIDDEN, {"error": "a reader's lease does not write"})
        if credential is None and self._required:
            return _answer(
                REQUIRED,
                {"error": f"this resource is fenced: send {http.TOKEN}, the token of your lease"},
            )
        return credential

    def _name(self, path: str, request: Any) -> str:
        name = path if self._resource is None else self._resource(request)
        if not isinstance(name, str):
            raise ConfigError(f"resource must answer a str, not {type(name).__name__}")
        try:
            return rules.resource_name(name)
        except ConfigError:
            return "sha256:" + hashlib.sha256(name.encode(errors="backslashreplace")).hexdigest()


def _answer(status: int, body: dict[str, Any], *headers: tuple[str, str]) -> Answer:
    text = json.dumps(body).encode()
    fixed = [("Content-Type", "application/json"), ("Content-Length", str(len(text)))]
    return status, [*fixed, *headers], text


def _refusal(resource: str, refused: StaleToken) -> Answer:
    return _answer(
        http.CONFLICT,
        {
            "error": "the fencing token was refused",
            "detail": refused.detail,
            "resource": resource,
            "token": refused.token,
            "highest": refused.highest,
            "reason": refused.reason,
        },
        (http.HIGHEST, str(refused.highest)),
        (http.REASON, refused.reason),
    )


class _Asgi(FencingMiddleware):
    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers: dict[str, str] = {}
        for name, value in scope["headers"]:
            key, text = name.decode("latin-1").lower(), value.decode("latin-1")
            # What comes twice is put together, as WSGI's servers do, and then found to be wrong.
            headers[key] = f"{headers[key]},{text}" if key in headers else text
        credential = self._judge(scope["method"], headers)
        if credential is None:
            await self.app(scope, receive, send)
            return
        if isinstance(credential, tuple):
            await _send(send, credential)
            return
        resource = self._name(scope["path"], scope)
        hold = self._hold(resource, credential)
        try:
            await hold.__aenter__()
        except StaleToken as refused:
            await _send(send, _refusal(resource, refused))
            return
        try:
            await self.app({**scope, KEY: credential}, receive, send)
        finally:
            await hold.__aexit__(None, None, None)


async def _send(send: Any, answer: Answer) -> None:
    status, headers, body = answer
    packed = [(name.lower().encode(), value.encode("latin-1")) for name, value in headers]
    await send({"type": "http.response.start", "status": status, "headers": packed})
    await send({"type": "http.response.body", "body": body})


class _Wsgi(FencingMiddleware):
    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        headers = {
            name[5:].replace("_", "-").lower(): value
            for name, value in environ.items()
            if name.startswith("HTTP_")
        }
        credential = self._judge(environ["REQUEST_METHOD"], headers)
        if credential is None:
            answer: Iterable[bytes] = self.app(environ, start_response)
            return answer
        if isinstance(credential, tuple):
            return _start(start_response, credential)
        path = environ.get("SCRIPT_NAME", "") + environ.get("PATH_INFO", "")
        resource = self._name(path.encode("latin-1").decode(errors="surrogateescape"), environ)
        hold = self._hold(resource, credential)
        try:
            hold.__enter__()
        except StaleToken as refused:
            return _start(start_response, _refusal(resource, refused))
        try:
            body = self.app({**environ, KEY: credential}, start_response)
        except BaseException:
            hold.__exit__(None, None, None)
            raise
        return _Body(body, hold)


def _start(start_response: Any, answer: Answer) -> list[bytes]:
    status, headers, body = answer
    start_response(f"{status} {PHRASES.get(status, 'No Content')}", headers)
    return [body]


class _Body:
    """A response whose resource is held until it has been sent, or given up."""

    def __init__(self, body: Iterable[bytes], hold: Any) -> None:
        self._body = body
        self._hold: Any = hold

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._body)

    def close(self) -> None:
        hold, self._hold = self._hold, None
        try:
            close = getattr(self._body, "close", None)
            if close is not None:
                close()
        finally:
            if hold is not None:
                hold.__exit__(None, None, None)
