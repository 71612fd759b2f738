"""A service with its security, on a real socket in a thread of this process, for the tests."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from holdfast.service import Settings
from holdfast.service.app import App, create_app
from holdfast.service.security import token_file
from holdfast.service.security.badge import Badge
from holdfast.service.security.bearer import generate
from holdfast.service.security.setup import secure
from holdfast.service.server import Server, listen

LIMIT = 60.0
"""Seconds after which something that should happen counts as not happening."""


class Served:
    """A running service. Its tokens are made by `token`, and shown by `as_`."""

    def __init__(
        self,
        folder: Path,
        port: int,
        app: App,
        settings: Settings,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.loop = loop
        self.folder = folder
        self.port = port
        self.app = app
        self.token_file = Path(str(settings.token_file))
        scheme = "https" if settings.tls_cert else "http"
        self.url = f"{scheme}://127.0.0.1:{port}"

    def token(self, role: str = "hold", *prefixes: str, **changes: Any) -> str:
        """Makes a token, and returns its text."""
        return make_token(self.token_file, role, *prefixes, **changes)

    @contextmanager
    def as_(self, token: str | None = None, **options: Any) -> Iterator[httpx.Client]:
        """Yields a client that shows this token."""
        headers = {**options.pop("headers", {})}
        if token is not None:
            headers["authorization"] = f"Bearer {token}"
        options = {"verify": False, "trust_env": False, "timeout": LIMIT, **options}
        with httpx.Client(base_url=self.url, headers=headers, **options) as client:
            yield client

    def cut_streams(self) -> None:
        """Ends all streams of events, as a stop of the service does."""

        def end() -> None:
            for stream in list(self.app.service.streams):
                stream.end()

        self.loop.call_soon_threadsafe(end)

    def raw(self, data: bytes, read: bool = True) -> bytes:
        """Sends these bytes, and returns what is answered until the connection ends."""
        with self.connect() as connection:
            connection.sendall(data)
            return read_all(connection) if read else b""

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), LIMIT)


def make_token(path: Path, role: str = "hold", *prefixes: str, **changes: Any) -> str:
    """Adds a token to a file, and returns its text."""
    text, bearer = generate()
    badge = Badge(bearer.id, bearer.digest, "tester", role, prefixes or ("",), None, 1.0, None)
    token_file.add(str(path), badge._replace(**changes))
    return text


def read_all(connection: socket.socket) -> bytes:
    """Returns what comes until the other side closes the connection."""
    data = b""
    try:
        while part := connection.recv(65536):
            data += part
    except ConnectionResetError:
        pass
    return data


@contextmanager
def serve(folder: Path, **options: Any) -> Iterator[Served]:
    """Runs a service on a store in that folder, with these settings, and ends it."""
    chosen: dict[str, Any] = {
        "url": f"sqlite://{folder}/locks.db",
        "token_file": str(folder / "tokens.json"),
        "port": 0,
        **options,
    }
    settings = Settings(**chosen)
    security = secure(settings)
    app = create_app(
        settings,
        authority=security.tokens,
        middleware=security.middleware,
        operations=security.operations,
    )
    listening = listen(settings.host, settings.port)
    ready = threading.Event()
    server = Server(app, ready.set, **security.server_options)
    loops: list[asyncio.AbstractEventLoop] = []

    async def run() -> None:
        loops.append(asyncio.get_running_loop())
        await server._serve(sockets=[listening])

    thread = threading.Thread(target=lambda: asyncio.run(run()), name="served")
    thread.start()
    try:
        assert ready.wait(LIMIT)
        yield Served(folder, listening.getsockname()[1], app, settings, loops[0])
    finally:
        server.should_exit = True
        thread.join(LIMIT)
        listening.close()
        assert not thread.is_alive()


def problem(answer: httpx.Response) -> dict[str, Any]:
    """Returns the problem of an answer, which has to be one."""
    assert answer.headers["content-type"] == "application/problem+json", answer.text
    found: dict[str, Any] = json.loads(answer.text)
    assert found["status"] == answer.status_code
    return found
