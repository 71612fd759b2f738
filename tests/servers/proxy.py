"""A TCP proxy that stands before a server and can be told to misbehave. It runs on threads."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections import deque
from contextlib import nullcontext, suppress


class Proxy:
    """Each fault is an attribute; those named `..._once` are used up by the first connection."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        self.delay = 0.0
        """Seconds by which answers come later."""
        self.swallow = False
        """Requests arrive, answers do not."""
        self.deaf = False
        """Requests do not arrive; answers do."""
        self.stalled = False
        """Nothing arrives, either way; the connections stay open, as after a cable was pulled."""
        self.pieces = 0
        """Answers come in pieces of so many bytes; 0: as they are."""
        self.refuse = False
        """New connections are reset."""
        self.cut_once = -1
        """Let so many bytes of the next answer through, then hang up."""
        self.reset_once = False
        """Deliver the next request, and reset the connection without its answer."""
        self.lose_once = False
        """The next answer does not arrive; those behind it do."""
        self.keep_once = False
        """Hang up on the next request, but keep it, and deliver it when `let_go` is called."""
        self.mute_once = False
        """From the next request on, no answer comes any more on that connection."""
        self.about = b""
        """Only a request with this in it is reset, kept or muted: HTTP/2 has its own in between."""
        self.seen: deque[bytes] = deque(maxlen=200)
        """The latest requests that were delivered, for `replay`."""
        self._kept: list[tuple[socket.socket, bytes]] = []
        self._muted: set[socket.socket] = set()
        self._delivering: set[socket.socket] = set()
        self._answered = threading.Event()
        self._open: set[socket.socket] = set()
        self._mutex = threading.Lock()
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def hang_up(self) -> None:
        """Reset every connection there is."""
        with self._mutex:
            sockets = list(self._open)
        for sock in sockets:
            _reset(sock)

    def mute(self) -> None:
        """No answer comes any more on the connections there are now."""
        with self._mutex:
            self._muted |= self._open

    def let_go(self, answered: bool = True) -> None:
        """Deliver what was kept, and wait until it was `answered`; the server may refuse it instead."""
        kept, self._kept = self._kept, []
        assert kept, "nothing was kept"
        for server, data in kept:
            self._answered.clear()
            with suppress(OSError) if not answered else nullcontext():
                server.sendall(data)
            assert not answered or self._answered.wait(10.0), "what was kept was not answered"
            server.close()

    def replay(self, requests: list[bytes]) -> int:
        """Deliver these once more, as if somebody between had; answers how many were carried out."""
        done = 0
        for data in requests:
            with socket.create_connection(("127.0.0.1", self._target), 5.0) as server:
                server.sendall(data)
                done += bool(server.recv(65536))
        return done

    def close(self) -> None:
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)  # else an accept under way takes one more
        self._server.close()
        self._thread.join(20.0)  # it may have accepted one before that
        self.hang_up()
        for server, _ in self._kept:
            server.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            if self.refuse:
                _reset(client)
                continue
            try:
                server = socket.create_connection(("127.0.0.1", self._target))
            except OSError:
                _reset(client)
                continue
            for sock in (client, server):
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._mutex:
                self._open |= {client, server}
            threading.Thread(target=self._requests, args=(client, server), daemon=True).start()
            threading.Thread(target=self._answers, args=(client, server), daemon=True).start()

    def _requests(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while data := client.recv(65536):
                if self.stalled or self.deaf:
                    continue
                self.seen.append(data)
                if self.keep_once and self.about in data:
                    self.keep_once = False
                    self._delivering.add(server)
                    self._kept.append((server, data))
                    with self._mutex:
                        self._open.discard(server)
                    _reset(client)
                    return
                if self.reset_once and self.about in data:
                    self.reset_once = False
                    self._muted.add(server)  # first, or its answer may be quicker than we are
                    server.sendall(data)
                    _reset(client)
                    break
                if self.mute_once and self.about in data:
                    self.mute_once = False
                    self._muted.add(server)
                server.sendall(data)
        self._end(client, server)

    def _answers(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while data := server.recv(65536):
                if server in self._delivering:  # nobody is there to hear it
                    self._answered.set()
                    continue
                if self.delay:
                    time.sleep(self.delay)
                if self.cut_once >= 0:
                    client.sendall(data[: self.cut_once])
                    self.cut_once = -1
                    break
                if self.lose_once:
                    self.lose_once = False
                    continue
                if not self.swallow and not self.stalled and server not in self._muted:
                    size = self.pieces or len(data)
                    try:
                        for start in range(0, len(data), size):
                            client.sendall(data[start : start + size])
                    except OSError:
                        if server not in self._delivering:
                            raise
        if server in self._delivering:
            self._answered.set()
        else:
            self._end(client, server)

    def _end(self, *sockets: socket.socket) -> None:
        for sock in sockets:
            with self._mutex:
                self._open.discard(sock)
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()


def _reset(sock: socket.socket) -> None:
    with suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        sock.shutdown(socket.SHUT_RD)
    sock.close()
