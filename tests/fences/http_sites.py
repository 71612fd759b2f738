"""Real web servers with a fence before them, and the clients of requests and httpx."""

from __future__ import annotations

import hashlib
import os
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import quote

from fences.sites import Site
from holdfast.fences import FencingMiddleware, FileFence, MemoryFence, Token, fenced, request_path
from servers import web

VALUES: dict[str, dict[str, str]] = {}
"""The values that were put, by the folder of the site."""


class WsgiSite(Site):
    """In memory; by requests."""

    restarts = False
    transactions = False

    def __init__(self, folder: Path, single_use: bool = False) -> None:
        super().__init__(folder, single_use)
        self.values = VALUES.setdefault(str(folder), {})
        self.fence = MemoryFence(single_use=single_use)
        self._mine = threading.local()
        self._stack = ExitStack()
        self.url = self._stack.enter_context(self.serve())

    def serve(self) -> Any:
        made = FencingMiddleware(self.app, self.fence, resource=request_path, readers=True)
        return web.wsgi(made)

    def app(self, environ: Any, start_response: Any) -> list[bytes]:
        path = environ["PATH_INFO"].encode("latin-1").decode()
        if environ["REQUEST_METHOD"] == "GET":
            found = path in self.values
            start_response("200 OK" if found else "404 Not Found", [])
            return [self.values.get(path, "").encode()]
        size = int(environ.get("CONTENT_LENGTH") or 0)
        body = environ["wsgi.input"].read(size)
        if body == b"crash":
            raise ZeroDivisionError
        self.values[path] = body.decode()
        start_response("204 No Content", [])
        return [b""]

    def client(self) -> Any:
        import requests

        if not hasattr(self._mine, "client"):
            self._mine.client = self._stack.enter_context(requests.Session())
        return self._mine.client

    def write(self, resource: str, value: str, token: Token) -> None:
        with fenced(self.client(), token) as client:
            self.put(client, resource, value).raise_for_status()

    def put(self, client: Any, resource: str, value: str) -> Any:
        return client.put(f"{self.url}/{quote(resource)}", data=value)

    def read(self, resource: str) -> str | None:
        return self.values.get(f"/{resource}")

    def overwrite(self, resource: str, value: str) -> None:
        self.values[f"/{resource}"] = value

    def highest(self, resource: str) -> int:
        return self.fence.highest(f"/{resource}")

    def reset(self, resource: str, to: int = 0) -> int:
        return self.fence.reset(f"/{resource}", by="a test", to=to)

    def show(self, resource: str, token: Token) -> None:
        with fenced(self.client(), token) as client:
            response = client.get(f"{self.url}/{quote(resource)}")
        found = self.read(resource)
        assert response.status_code == (404 if found is None else 200), response.text
        assert response.text == (found or "")

    def prune(self, older_than: float = 0.0) -> int:
        return self.fence.prune(older_than or 1e-9)

    def reset_floors(self, lock: Any = None, to: int = 0) -> None:
        self.fence.reset_floors(by="a test", lock=lock, to=to)

    def verify(self) -> None:
        from holdfast.fences import verify_fenced

        verify_fenced(self.client(), self.url, shared=self.restarts)

    def crash(self, resource: str, value: str, token: int) -> None:
        """The handler fails before it has written anything."""
        with fenced(self.client(), token) as client:
            assert self.put(client, resource, "crash").status_code == 500

    def close(self) -> None:
        self._stack.close()


class AsgiSite(WsgiSite):
    """In a folder; by httpx."""

    restarts = True

    def __init__(self, folder: Path, single_use: bool = False) -> None:
        (folder / "tokens").mkdir(exist_ok=True)
        super().__init__(folder, single_use)

    def serve(self) -> Any:
        folder = self.folder / "tokens"
        made = FencingMiddleware(
            self.asgi,
            folder=folder,
            resource=request_path,
            readers=True,
            single_use=self.single_use,
        )
        return web.asgi(made)

    async def asgi(self, scope: Any, receive: Any, send: Any) -> None:
        body = b""
        more = True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        assert scope["holdfast.fencing"].token > 0
        status, answer = 204, ""
        if scope["method"] == "GET":
            status = 200 if scope["path"] in self.values else 404
            answer = self.values.get(scope["path"], "")
        elif body == b"crash":
            status = 500
        else:
            self.values[scope["path"]] = body.decode()
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": answer.encode()})

    def client(self) -> Any:
        import httpx

        if not hasattr(self._mine, "client"):
            self._mine.client = self._stack.enter_context(httpx.Client(trust_env=False))
        return self._mine.client

    def put(self, client: Any, resource: str, value: str) -> Any:
        return client.put(f"{self.url}/{quote(resource)}", content=value)

    def _path(self, resource: str) -> Path:
        name = hashlib.sha256(f"/{resource}".encode()).hexdigest()
        return self.folder / "tokens" / name

    def highest(self, resource: str) -> int:
        return FileFence().highest(self._path(resource))

    def reset(self, resource: str, to: int = 0) -> int:
        return FileFence().reset(self._path(resource), by="a test", to=to)

    def prune(self, older_than: float = 0.0) -> int:
        return FileFence().prune(self.folder / "tokens", older_than or 1e-9)

    def reset_floors(self, lock: Any = None, to: int = 0) -> None:
        FileFence().reset_floors(self.folder / "tokens", by="a test", lock=lock, to=to)


class WorkerSite(AsgiSite):
    """One worker of several: every process serves by itself, with tokens and values in files."""

    def __init__(self, folder: Path, single_use: bool = False) -> None:
        (folder / "values").mkdir(exist_ok=True)
        super().__init__(folder, single_use)
        self.values = FileValues(folder / "values")


class FileValues(dict[str, str]):
    """Values that all processes share, a file for each."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder

    def _path(self, name: str) -> Path:
        return self._folder / quote(name, safe="")

    def __contains__(self, name: object) -> bool:
        return self._path(str(name)).exists()

    def get(self, name: str, default: Any = None) -> Any:
        try:
            return self._path(name).read_text()
        except FileNotFoundError:
            return default

    def __setitem__(self, name: str, value: str) -> None:
        fresh = self._folder / f"new {os.getpid()} {threading.get_ident()}"
        fresh.write_text(value)
        fresh.rename(self._path(name))
