"""A fence before an HTTP service: refuses requests whose `Fencing-Token` is older than one it has seen.

A request that passes has its resource to itself until it has been answered, so no other one can
overtake it between the check and the write. Its token is remembered before the application runs: if the
process dies there, the write may have happened, and must not be forgotten. If the application refuses
the request (401, 403, 404: any status from 400 to 499), it is taken back, so that somebody
who may not write cannot shut out the holder, nor fill the memory, by a token that he made up.

With `readers=True` a GET or HEAD that shows a reader's lease is compared and remembered, too, so that
no older writer writes under a reader who still holds: for services that know who reads.

Where the service runs on several machines, fence its database: the handler finds what was shown under
`scope["holdfast.fencing"]`, or `environ["holdfast.fencing"]`, and gives it to a `SqlFence` in its own
transaction.
"""

from __future__ import annotations

import inspect
import json
import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any
from urllib.parse import quote

from ..errors import ConfigError, LockError, StaleToken
from . import http
from .memory import MemoryFence
from .request_memory import Full, Hold, ProcessMemory, memory_of, resource_of
from .request_turn import RequestTurn

KEY = "holdfast.fencing"
SAFE = frozenset(("GET", "HEAD", "OPTIONS", "TRACE"))
READS = frozenset(("GET", "HEAD"))
NO_CONTENT, BAD, FORBIDDEN, REQUIRED, UNAVAILABLE = 204, 400, 403, 428, 503
PHRASES = {
    NO_CONTENT: "No Content",
    BAD: "Bad Request",
    FORBIDDEN: "Forbidden",
    http.CONFLICT: "Conflict",
    REQUIRED: "Precondition Required",
    UNAVAILABLE: "Service Unavailable",
}
MOST = 100_000
NO_READERS = (
    "this service does not remember readers, so an older writer could change what you read: show no "
    "reader's lease; or, if it knows who may read, make its FencingMiddleware with readers=True"
)

Resource = Callable[[Any], str]
Answer = tuple[int, list[tuple[str, str]], bytes]


def accepted_status(status: int) -> bool:
    """Returns True unless this status says that the application changed nothing."""
    return not 400 <= status < 500


def request_path(request: Any) -> str:
    """Returns the path of a request, from its ASGI scope or its WSGI environ.

    For `FencingMiddleware(resource=…)`, where nothing that is written to has two paths: `/item/1` and
    `/item/01`, or `/item/1/`, are two resources to the fence.
    """
    if "wsgi.version" not in request:
        path: str = request["path"]
        return path
    path = request.get("SCRIPT_NAME", "") + request.get("PATH_INFO", "")
    return path.encode("latin-1").decode(errors="surrogateescape")


class FencingMiddleware:
    """Wraps an ASGI or a WSGI application; which of them it is, is found out.

    Put it behind what authenticates: that wraps the middleware, which wraps your handlers.

    `folder` is where tokens are remembered, for all processes of a machine; or `fence`, a
    `MemoryFence`, if a single process serves. `resource(scope or environ)` returns the name of what a
    request writes to, one name for one thing: `request_path`, if each has one path only. A request
    that changes something and shows no token is answered 428, unless `required=False`; GET, HEAD,
    OPTIONS and TRACE pass. `accepted(status)` returns False for a response of the application that
    says that nothing was changed; then the token is not remembered. `most` bounds how many
    resources are remembered. With `readers`, a GET or HEAD that shows a reader's lease is checked
    and remembered: not where strangers may read. Without it, one that shows such a lease is refused.
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
        readers: bool = False,
        accepted: Callable[[int], bool] = accepted_status,
        most: int = MOST,
    ) -> None:
        self.app = app
        self._memory = memory_of(fence, folder, single_use, most)
        if not callable(resource):
            raise ConfigError(
                "say what a request writes to: resource=…, a function of the scope or environ that "
                "returns a name, the same for each way to write it; or resource=request_path "
                "(from holdfast.fences), if nothing that is written to has two paths"
            )
        self._resource = resource
        self._required = required
        self._readers = readers
        self._accepted = accepted

    def _judge(self, method: str, headers: dict[str, str]) -> http.RequestToken | Answer | None:
        """Returns the request's token; or the response, if it ends here; None if it just passes."""
        probe = headers.get(http.PROBE.lower())
        if probe is not None and method == "OPTIONS":
            memory = self._memory.identity
            return NO_CONTENT, [(http.PROBE, quote(probe[:64])), (http.MEMORY, memory)], b""
        safe = method in SAFE
        if safe and not (method in READS and headers.get(http.COMPARE.lower())):
            return None
        try:
            credential = http.read_headers(headers)
        except LockError as error:
            return _answer(BAD, {"error": str(error)})
        shared = credential is not None and credential.shared
        if safe:
            if shared and not self._readers:
                return _answer(FORBIDDEN, {"error": NO_READERS})
            return credential if shared else None
        if shared:
            return _answer(FORBIDDEN, {"error": "a reader's lease does not write"})
        if credential is None and self._required:
            return _answer(
                REQUIRED,
                {"error": f"this resource is fenced: send {http.TOKEN}, the token of your lease"},
            )
        return credential

    def _turn(self, hold: Hold, credential: http.RequestToken) -> RequestTurn:
        return RequestTurn(hold, credential.shared, self._accepted)


def _answer(status: int, body: dict[str, Any], *headers: tuple[str, str]) -> Answer:
    text = json.dumps(body).encode()
    fixed = [("Content-Type", "application/json"), ("Content-Length", str(len(text)))]
    return status, [*fixed, *headers], text


def _refusal(resource: str, refused: StaleToken | Full) -> Answer:
    if isinstance(refused, Full):
        return _answer(UNAVAILABLE, {"error": str(refused), "resource": resource})
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
        resource = resource_of(self._resource(scope))
        try:
            await self._memory.make_room_in_loop(resource)
            hold = self._memory.hold(resource, credential)
            await hold.__aenter__()
        except (StaleToken, Full) as refused:
            await _send(send, _refusal(resource, refused))
            return
        turn = self._turn(hold, credential)

        async def watch(message: Any) -> None:
            if message["type"] == "http.response.start":
                turn.answered(message["status"])
            await send(message)

        try:
            await self.app({**scope, KEY: credential}, receive, watch)
        except BaseException:
            turn.abandon()
            raise
        turn.end()


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
        resource = resource_of(self._resource(environ))
        if environ.get("wsgi.multiprocess") and isinstance(self._memory, ProcessMemory):
            raise ConfigError(
                "this service is served by several processes, as its server says, and its "
                "FencingMiddleware remembers tokens in each of them alone: give it folder=…"
            )
        try:
            self._memory.make_room(resource)
            hold = self._memory.hold(resource, credential)
            hold.__enter__()
        except (StaleToken, Full) as refused:
            return _start(start_response, _refusal(resource, refused))
        turn = self._turn(hold, credential)
        response = _Response(turn, start_response)
        try:
            response.body = self.app({**environ, KEY: credential}, response.start)
        except BaseException:
            turn.abandon()
            raise
        return response


def _start(start_response: Any, answer: Answer) -> list[bytes]:
    status, headers, body = answer
    start_response(f"{status} {PHRASES.get(status, 'No Content')}", headers)
    return [body]


class _Response:
    """A response whose turn goes on until all was handed over and closed, or it was given up."""

    def __init__(self, turn: RequestTurn, start_response: Any) -> None:
        self.body: Iterable[bytes] = ()
        self._turn = turn
        self._start_response = start_response
        self._rest: int | None = None
        """How many bytes are still to come; None if the application did not say."""
        self._closed = False
        self._failed: BaseException | None = None
        """The error that the body raised behind its last bytes, which are handed over all the same."""

    def start(self, status: str, headers: list[tuple[str, str]], *error: Any) -> Any:
        """Notes what the application answers, and passes it on to the server."""
        self._turn.answered(int(status.split(None, 1)[0]))
        length = [value for name, value in headers if name.lower() == "content-length"]
        self._rest = int(length[0]) if length else None
        write = self._start_response(status, headers, *error)

        def count(data: bytes) -> None:
            self._count(data)
            write(data)

        return count

    def __iter__(self) -> Iterator[bytes]:
        body = iter(self.body)
        try:
            for data in body:
                self._count(data)
                if self._rest is not None and self._rest <= 0:
                    # Perhaps nobody asks for more, nor closes it. So what the application does behind
                    # its last bytes is done before these are handed over.
                    yield from self._finish(data, body)
                    break
                yield data
        except GeneratorExit:
            raise  # it was given up by the server, who closes it
        except BaseException:
            self._turn.fail()
            raise
        self._close()
        self._raise()

    def _finish(self, data: bytes, body: Iterator[bytes]) -> list[bytes]:
        """Ends the body, whose last bytes are `data`; returns these, and what came all the same."""
        rest = [data]
        try:
            rest.extend(body)
        except Exception as error:
            self._failed = error
            self._turn.fail()
        self._close()
        return rest

    def _count(self, data: bytes) -> None:
        if self._rest is not None:
            self._rest -= len(data)

    def close(self) -> None:
        self._close()
        self._raise()

    def _close(self) -> None:
        """Closes the body, once, and ends the turn."""
        closed, self._closed = self._closed, True
        if closed:
            self._turn.end()  # if that was interrupted; else it does nothing
            return
        try:
            close = getattr(self.body, "close", None)
            if close is not None:
                close()
        except BaseException as error:
            self._turn.fail()
            if not isinstance(error, Exception):
                raise
            self._failed = self._failed or error
        finally:
            self._turn.end()

    def _raise(self) -> None:
        failed, self._failed = self._failed, None
        if failed is not None:
            raise failed
