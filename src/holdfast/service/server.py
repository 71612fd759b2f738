"""The server: a socket, uvicorn on it, and a stop in which nobody is left waiting.

A stop begins with the application: those who wait are answered, and have left their queues; streams
end; what is asked from then on is refused. Then the connections are closed, and the stores are let go
of. All of it has an end after `Settings.stop_within` seconds.
"""

from __future__ import annotations

import asyncio
import errno
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import uvicorn

from .app import App
from .one_write import OneWriteProtocol

BACKLOG = 4096
STOPPED_BY = (signal.SIGINT, signal.SIGTERM)
CLOSE_SHARE = 0.4
"""The part of a stop that is left to the stores; the connections have the rest."""
FAREWELL = 1.0
"""Seconds in which a client with TLS has to say goodbye; then its connection ends without."""


class CannotListen(Exception):
    """Raised when the address cannot be listened on; its text says why."""


def listen(host: str, port: int) -> socket.socket:
    """Returns a socket that listens there; port 0 is any that is free."""
    try:
        found = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE | socket.AI_NUMERICSERV
        )
    except OSError as error:
        raise CannotListen(f"the host {host!r} has no address: {error.strerror}") from None
    family, kind, protocol, _, address = found[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        reason = error.strerror or str(error)
        if error.errno == errno.EADDRINUSE:
            raise CannotListen(
                f"port {port} of {host} is in use, by another service perhaps; choose another by "
                "--port, or 0 for any that is free"
            ) from None
        raise CannotListen(f"{host} port {port} cannot be listened on: {reason}") from None
    return listener


def where(listener: socket.socket, scheme: str = "http") -> str:
    """Returns the URL at which a socket listens."""
    host, port = listener.getsockname()[:2]
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


class Server(uvicorn.Server):
    """A server of uvicorn whose stop begins with the application."""

    def __init__(self, app: App, announce: Callable[[], object], **options: Any) -> None:
        stop_within = app.service.settings.stop_within
        chosen: dict[str, Any] = {
            "http": OneWriteProtocol,
            "lifespan": "on",
            "access_log": False,
            "log_config": None,
            "server_header": False,
            "backlog": BACKLOG,
            "timeout_keep_alive": 75,
            "proxy_headers": False,
            "timeout_graceful_shutdown": stop_within * (1 - CLOSE_SHARE),
            **options,
        }
        config = uvicorn.Config(app.begin, interface="asgi3", **chosen)
        super().__init__(config)
        self._app = app
        self._announce = announce

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        with self._handshakes_in_time():
            await super().startup(sockets)
        if self.started:
            self._announce()

    @contextmanager
    def _handshakes_in_time(self) -> Iterator[None]:
        """Has the servers that are made meanwhile give a handshake of TLS as long as a request.

        An event loop gives it a minute, and uvicorn has no option for that.
        """
        loop = asyncio.get_running_loop()
        if self.config.ssl is not None:
            within = {
                "ssl_handshake_timeout": self._app.service.settings.receive_within,
                "ssl_shutdown_timeout": FAREWELL,
            }
            loop.create_server = partial(loop.create_server, **within)  # type: ignore[method-assign]
        try:
            yield
        finally:
            vars(loop).pop("create_server", None)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._app.service.begin_stop()
        await super().shutdown(sockets)
        service = self._app.service
        if not service.closed:  # a second signal came, and nothing was waited for
            await service.close_in_time()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stops at the first signal, and at once at the second. A stop is no failure."""
        if threading.current_thread() is not threading.main_thread():
            yield  # a signal is heard in the main thread only
            return
        before = {number: signal.signal(number, self.handle_exit) for number in STOPPED_BY}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def serve(
    app: App,
    listener: socket.socket,
    announce: Callable[[], object] = lambda: None,
    **options: Any,
) -> None:
    """Serves `app` on a socket that listens, until a signal stops it.

    `announce` is called once requests are answered. `options` are those of `uvicorn.Config`, such as
    `ssl_certfile`.
    """
    _raise_descriptor_limit()
    Server(app, announce, **options).run(sockets=[listener])


def _raise_descriptor_limit() -> None:
    """Lets this process have as many connections as the system allows it."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
