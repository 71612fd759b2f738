"""The live page: files that are served as they are."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from hashlib import sha256
from importlib.resources import files

from starlette.routing import Route

from ..answers import Receive, Scope, Send, send_answer
from ..problems import Problem

TYPES = {
    "html": b"text/html; charset=utf-8",
    "css": b"text/css; charset=utf-8",
    "js": b"text/javascript; charset=utf-8",
    "svg": b"image/svg+xml",
}


class File:
    """One file of the page."""

    def __init__(self, name: str) -> None:
        self._data = files(__name__).joinpath("static", name).read_bytes()
        self._type = TYPES[name.rpartition(".")[2]]
        self._tag = b'"' + sha256(self._data).hexdigest()[:16].encode() + b'"'

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends the file, or that the browser has it already."""
        if scope["method"] not in ("GET", "HEAD"):
            answer = Problem("method-not-allowed", "the page can only be read").answer()
            await send_answer(scope, send, answer)
            return
        headers = [(b"cache-control", b"no-cache"), (b"etag", self._tag)]
        known = dict(scope["headers"]).get(b"if-none-match")
        unchanged = known is not None and known.removeprefix(b"W/") == self._tag
        status, body = (304, b"") if unchanged else (200, self._data)
        headers += [(b"content-type", self._type), (b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        body = b"" if scope["method"] == "HEAD" else body
        await send({"type": "http.response.body", "body": body})


@cache
def names() -> tuple[str, ...]:
    """Returns the names of the page's files."""
    return tuple(sorted(one.name for one in files(__name__).joinpath("static").iterdir()))


def routes() -> Iterator[Route]:
    """Yields a route for each file of the page."""
    for name in names():
        path = "/" if name == "index.html" else f"/page/{name}"
        yield Route(path, File(name))
