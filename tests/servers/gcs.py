"""A stand-in for Google Cloud Storage: of its XML API what obstore uses, by Google's documentation.

Neither Debian nor PyPI nor npm has an emulator that keeps `x-goog-if-generation-match`. So this is not
Google's word on how it behaves; it proves what we and obstore send: generations, conditions, metadata.

Google's own testbench is only to be had from its repository, and has too little of the XML API. Where
`HOLDFAST_TEST_GCS` names one that runs, as `http://127.0.0.1:9000`, this only translates to the JSON
API: who may write, and what is kept, is then the emulator's word.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import threading
from contextlib import ExitStack
from email.utils import formatdate
from typing import Any, Protocol
from urllib.parse import unquote

from . import web
from .gcs_emulator import GcsEmulator, Object


class Objects(Protocol):
    """What is kept, by bucket and name."""

    def make_bucket(self, name: str) -> None: ...

    def get(self, bucket: str, name: str) -> Object | None: ...

    def put(
        self, bucket: str, name: str, wanted: str | None, body: bytes, headers: dict[str, str]
    ) -> Object | None:
        """None if the object is not of the generation that is wanted; 0 is none at all."""

    def delete(self, bucket: str, name: str) -> None: ...


class Ours:
    def __init__(self) -> None:
        self._objects: dict[tuple[str, str], Object] = {}
        self._mutex = threading.Lock()
        self._generations = itertools.count(1_700_000_000_000_000)

    def make_bucket(self, name: str) -> None:
        pass

    def get(self, bucket: str, name: str) -> Object | None:
        return self._objects.get((bucket, name))

    def put(
        self, bucket: str, name: str, wanted: str | None, body: bytes, headers: dict[str, str]
    ) -> Object | None:
        with self._mutex:
            present = self.get(bucket, name)
            if wanted is not None and int(wanted) != (present.generation if present else 0):
                return None
            made = Object(next(self._generations), body, headers)
            self._objects[bucket, name] = made
            return made

    def delete(self, bucket: str, name: str) -> None:
        self._objects.pop((bucket, name), None)


class GcsServer:
    def __init__(self) -> None:
        emulator = os.environ.get("HOLDFAST_TEST_GCS")
        self._objects: Objects = GcsEmulator(emulator) if emulator else Ours()
        self._stack = ExitStack()
        self.url = self._stack.enter_context(web.wsgi(self._app))

    def _app(self, environ: dict[str, Any], start_response: Any) -> list[bytes]:
        path, _, query = environ["REQUEST_URI"].partition("?")
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        if query:
            start_response("501 Not Implemented", [])
            return []
        bucket, _, name = unquote(path).lstrip("/").partition("/")
        status, headers, answer = self._answer(environ, bucket, name, body)
        start_response(status, [*headers.items(), ("Content-Length", str(len(answer)))])
        return [b"" if environ["REQUEST_METHOD"] == "HEAD" else answer]

    def _answer(
        self, environ: dict[str, Any], bucket: str, name: str, body: bytes
    ) -> tuple[str, dict[str, str], bytes]:
        method = environ["REQUEST_METHOD"]
        if method == "PUT":
            wanted = environ.get("HTTP_X_GOOG_IF_GENERATION_MATCH")
            made = self._objects.put(bucket, name, wanted, body, _kept(environ))
            if made is None:
                return "412 Precondition Failed", {}, b""
            return "200 OK", _named(made), b""
        if method == "DELETE":
            self._objects.delete(bucket, name)
            return "204 No Content", {}, b""
        present = self._objects.get(bucket, name)
        if present is None:
            return "404 Not Found", {}, b""
        return "200 OK", {**present.headers, **_named(present)}, present.body

    def bucket(self, name: str) -> Any:
        """A new bucket, as a store of obstore's."""
        from obstore.store import GCSStore

        self._objects.make_bucket(name)
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
