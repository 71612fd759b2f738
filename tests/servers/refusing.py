"""Redis servers that say why they let nobody in, and hang up."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from holdfast.chaos.servers.redis import RedisServer
from worlds.threads import eventually

DENIED = (
    b"-DENIED Redis is running in protected mode because protected mode is enabled and no password is "
    b"set for the default user.\r\n"
)


class RefusingServer:
    """Each connection gets `words`, and is closed: at once, or when a request has come (`late`).

    That request is left unread, so the connection is then reset.
    """

    def __init__(self, words: bytes = DENIED, late: bool = False, port: int = 0) -> None:
        self._words = words
        self._late = late
        self._server = socket.create_server(("127.0.0.1", port))
        self.port: int = self._server.getsockname()[1]
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def __enter__(self) -> RefusingServer:
        return self

    def __exit__(self, *error: object) -> None:
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self._thread.join(20.0)

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._server.accept()
            except OSError:
                return
            with sock, suppress(OSError):
                if self._late:
                    sock.settimeout(20.0)
                    sock.recv(1, socket.MSG_PEEK)
                sock.sendall(self._words)


@contextmanager
def full(server: RedisServer) -> Iterator[None]:
    """Lets a server have as many clients as it takes, so that it refuses another."""
    server("CONFIG", "SET", "maxclients", "1")
    sock = socket.socket()

    def enter() -> bool:
        nonlocal sock
        sock.close()
        sock = socket.create_connection(("127.0.0.1", server.port), 20.0)
        sock.sendall(b"PING\r\n")
        return sock.recv(1) == b"+"  # else the client before is not gone yet

    try:
        eventually(enter)
        yield
    finally:
        sock.close()
