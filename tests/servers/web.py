"""Small applications on real sockets: WSGI by the standard library, ASGI by uvicorn."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True
    request_queue_size = 128


class _Quiet(WSGIRequestHandler):
    def log_message(self, *_: Any) -> None:
        return

    def get_environ(self) -> Any:
        # As most servers do, for those who need the path as it was sent.
        return {**super().get_environ(), "RAW_URI": self.path, "REQUEST_URI": self.path}


@contextmanager
def wsgi(app: Any) -> Iterator[str]:
    """Its URL."""
    with make_server("127.0.0.1", 0, app, _Server, _Quiet) as server:
        # A daemon: one that serves the whole run is stopped at exit, which would wait for it first.
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join(20)


@contextmanager
def asgi(app: Any) -> Iterator[str]:
    import uvicorn

    config = uvicorn.Config(app, log_level="error", lifespan="off")
    server = uvicorn.Server(config)
    listening = socket.create_server(("127.0.0.1", 0), backlog=128)
    thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(20)
        listening.close()
