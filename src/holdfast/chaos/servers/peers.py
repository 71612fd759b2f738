"""The way between the members of an etcd cluster, which can be cut."""

from __future__ import annotations

import re
import socket
import threading
from contextlib import suppress

FROM = re.compile(rb"X-Server-From: ([0-9a-f]+)", re.IGNORECASE)
HEAD = 4096


class PeerLink:
    """Before the peer port of one member. Whoever connects says which member it is."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        self.deaf = False
        """Nobody gets through to this member."""
        self.refused: set[str] = set()
        """Nor do these, by their ids."""
        self._open: dict[socket.socket, tuple[socket.socket, str]] = {}
        self._mutex = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    def enforce(self) -> None:
        """Cut what is open and may not be any more."""
        with self._mutex:
            pairs = [(a, b) for a, (b, who) in self._open.items() if self._cut(who)]
        for pair in pairs:
            self._end(*pair)

    def close(self) -> None:
        self.deaf = True
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self.enforce()

    def _cut(self, who: str) -> bool:
        return self.deaf or who in self.refused

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        server: socket.socket | None = None
        with suppress(OSError):
            first = client.recv(65536)
            while first and b"\r\n\r\n" not in first and len(first) < HEAD:
                first += client.recv(65536)
            found = FROM.search(first)
            who = found[1].decode() if found else ""
            if first and not self._cut(who):
                server = socket.create_connection(("127.0.0.1", self._target))
                for sock in (client, server):
                    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                with self._mutex:
                    self._open[client] = server, who
                if self._cut(who):  # meanwhile, and `enforce` may have looked before this was open
                    self._end(client, server)
                    return
                server.sendall(first)
                threading.Thread(target=self._pump, args=(server, client), daemon=True).start()
                self._pump(client, server)
                return
        client.close()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)
        self._end(source, sink)

    def _end(self, *sockets: socket.socket) -> None:
        for sock in sockets:
            with self._mutex:
                self._open.pop(sock, None)
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()
