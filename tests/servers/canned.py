"""A server that answers every request with the same bytes, whatever it was asked."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress


class CannedServer:
    """Each connection gets the `answer` for each request, and is then closed if `hang_up`."""

    def __init__(self, answer: bytes, hang_up: bool = False) -> None:
        self.answer = answer
        self.hang_up = hang_up
        self.seen: list[bytes] = []
        """The requests that came."""
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        self._open: set[socket.socket] = set()
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> CannedServer:
        return self

    def __exit__(self, *error: object) -> None:
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self._thread.join(20.0)
        for sock in list(self._open):
            sock.close()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._server.accept()
            except OSError:
                return
            self._open.add(sock)
            threading.Thread(target=self._serve, args=(sock,), daemon=True).start()

    def _serve(self, sock: socket.socket) -> None:
        with suppress(OSError):
            while data := sock.recv(65536):
                self.seen.append(data)
                sock.sendall(self.answer)
                if self.hang_up:
                    sock.shutdown(socket.SHUT_WR)
        sock.close()
        self._open.discard(sock)
