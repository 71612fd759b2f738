"""A stand-in for Google Cloud Storage: of its XML API what obstore uses, by Google's documentation.

Neither Debian nor PyPI nor npm has an emulator that keeps `x-goog-if-generation-match`. So this is not
Google's word on how it behaves; it proves what we and obstore send: generations, conditions, metadata.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import threading
from contextlib import ExitStack
from email.utils import formatdate
from typing import Any, NamedTuple
from urllib.parse import unquote

from . import web


class Object(NamedTuple):
    generation: int
    body: bytes
    headers: dict[str, str]


class GcsServer:
    def __init__(self) -> None:
        self._objects: dict[str, Object] = {}
        self._mutex = threading.Lock()
        self._generations = itertools.count(1_700_000_000_000_000)
        self._stack = ExitStack()
        self.url = self._stack.enter_context(web.wsgi(self._app))

    def _app(self, environ: dict[str, Any], start_response: Any) -> list[bytes]:
        path, _, query = environ["REQUEST_URI"].partition("?")
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        if query:
            start_response("501 Not Implemented", [])
            return []
        with self._mutex:
            status, headers, answer = self._answer(environ, unquote(path), body)
        start_response(status, [*headers.items(), ("Content-Length", str(len(answer)))])
        return [b"" if environ["REQUEST_METHOD"] == "HEAD" else answer]

    def _answer(
        self, environ: dict[str, Any], path: str, body: bytes
    ) -> tuple[str, dict[str, str], bytes]:
        method = environ["REQUEST_METHOD"]
        present = self._objects.get(path)
        if method == "PUT":
            wanted = environ.get("HTTP_X_GOOG_IF_GENERATION_MATCH")
            if wanted is not None and int(wanted) != (present.generation if present else 0):
                return "412 Precondition Failed", {}, b""
            made = Object(next(self._generations), body, _kept(environ))
            self._objects[path] = made
            return "200 OK", _named(made), b""
        if present is None:
            return "404 Not Found", {}, b""
        if method == "DELETE":
            del self._objects[path]
            return "204 No Content", {}, b""
        return "200 OK", {**present.headers, **_named(present)}, present.body

    def bucket(self, name: str) -> Any:
        """A new bucket, as a store of obstore's."""
        from obstore.store import GCSStore

        account = {
            "gcs_base_url": self.url,
            "disable_oauth": True,
            "client_email": "",
            "private_key": "",
            "private_key_id": "",
        }
        return GCSStore(
            name,
            service_account_key=json.dumps(account),
            client_options={"allow_http": True},
        )

    def stop(self) -> None:
        self._stack.close()


def _kept(environ: dict[str, Any]) -> dict[str, str]:
    """What is kept with an object, of the headers that it came with."""
    kept = {"Content-Type": environ.get("CONTENT_TYPE") or "application/octet-stream"}
    for name, value in environ.items():
        if name.startswith("HTTP_X_GOOG_META_"):
            kept[name[5:].replace("_", "-").lower()] = value
    return kept


def _named(made: Object) -> dict[str, str]:
    return {
        "ETag": f'"{hashlib.md5(made.body, usedforsecurity=False).hexdigest()}"',
        "Last-Modified": formatdate(usegmt=True),
        "x-goog-generation": str(made.generation),
    }
