"""A server that speaks HTTP/2 and gRPC by the package `h2`, as badly as a test wants."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import h2.config
import h2.connection
import h2.events
import h2.exceptions
import h2.settings

HEADERS = [(":status", "200"), ("content-type", "application/grpc")]


class Http2Server:
    """Answers each call with `reply`, unless `on_call` does something else about it.

    `on_call(server, link, stream, message)` is called with each message, and returns True if it has
    dealt with it.
    """

    def __init__(self, on_call: Callable[..., bool] | None = None, limit: int = 0) -> None:
        self.on_call = on_call
        self.limit = limit
        """The most concurrent streams; 0 for any number."""
        self.reply = b""
        self.calls = 0
        self.together = 0
        """The most streams that were open at once, on one connection."""
        self.links: list[Link] = []
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    @property
    def endpoint(self) -> str:
        return f"127.0.0.1:{self.port}"

    def close(self) -> None:
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self._thread.join(20.0)  # it may have accepted one more
        for link in self.links:
            link.hang_up()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._server.accept()
            except OSError:
                return
            link = Link(self, sock)
            self.links.append(link)
            threading.Thread(target=link.run, daemon=True).start()


class Link:
    """One connection."""

    def __init__(self, server: Http2Server, sock: socket.socket) -> None:
        self.server = server
        self.socket = sock
        config = h2.config.H2Configuration(client_side=False, header_encoding="utf-8")
        self.h2: Any = h2.connection.H2Connection(config)
        self.open: set[int] = set()
        self.pings = 0

    def run(self) -> None:
        with suppress(OSError, h2.exceptions.ProtocolError):
            self.h2.initiate_connection()
            if self.server.limit:
                limit = h2.settings.SettingCodes.MAX_CONCURRENT_STREAMS
                self.h2.update_settings({limit: self.server.limit})
            self.flush()
            while data := self.socket.recv(65536):
                for event in self.h2.receive_data(data):
                    self._handle(event)
                self.flush()
        self.hang_up()

    def flush(self) -> None:
        self.socket.sendall(self.h2.data_to_send())

    def hang_up(self) -> None:
        with suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()

    def answer(self, stream: int, message: bytes) -> None:
        self.h2.send_headers(stream, HEADERS)
        self.h2.send_data(stream, b"\0" + len(message).to_bytes(4, "big") + message)
        self.end(stream)

    def end(self, stream: int) -> None:
        self.open.discard(stream)
        self.h2.send_headers(stream, [("grpc-status", "0"), ("grpc-message", "")], end_stream=True)

    def _handle(self, event: Any) -> None:
        server = self.server
        if isinstance(event, h2.events.RequestReceived):
            self.open.add(event.stream_id)
            server.together = max(server.together, len(self.open))
        elif isinstance(event, h2.events.PingReceived):
            self.pings += 1
        elif isinstance(event, h2.events.StreamReset):
            self.open.discard(event.stream_id)
        elif isinstance(event, h2.events.DataReceived) and event.data:
            self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            server.calls += 1
            message = event.data[5:]
            if server.on_call is None or not server.on_call(server, self, event.stream_id, message):
                self.answer(event.stream_id, server.reply)
