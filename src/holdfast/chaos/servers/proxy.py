"""A TCP proxy that stands before a server and can be told to misbehave. It runs on threads."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections import deque
from contextlib import nullcontext, suppress

from .errors import ServerError

Place = int | str | tuple[str, int]
"""Where a server listens: a port of this machine, a host and a port, or the path of a unix socket."""


class Proxy:
    """Each fault is an attribute; those named `..._once` are used up by the first connection."""

    def __init__(self, target: Place, listen: str | None = "127.0.0.1", port: int = 0) -> None:
        """Listens at a port of `listen`, or at that path; None: it is given its sockets."""
        self._target: Place = target
        self.port = 0
        self._server: socket.socket | None = None
        if listen is not None and "/" in listen:
            self._server = socket.socket(socket.AF_UNIX)
            self._server.bind(listen)
            self._server.listen(128)
        elif listen is not None:
            self._server = socket.create_server((listen, port))
            self.port = self._server.getsockname()[1]
        self._requests_pass = threading.Event()
        self._requests_pass.set()
        self._answers_pass = threading.Event()
        self._answers_pass.set()
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
        self._closed = False
        self._thread = threading.Thread(target=self._accept, daemon=True)
        if self._server is not None:
            self._thread.start()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def hold(self, requests: bool = True, answers: bool = True) -> None:
        """Lets nothing pass any more, in one direction or both, until `release` is called.

        That is what a network does that is cut and mended while the connections last.
        """
        for gate, held in ((self._requests_pass, requests), (self._answers_pass, answers)):
            if held:
                gate.clear()

    def release(self) -> None:
        """Lets pass what was held, in its order."""
        self._requests_pass.set()
        self._answers_pass.set()

    @property
    def holds(self) -> bool:
        return not (self._requests_pass.is_set() and self._answers_pass.is_set())

    @property
    def connections(self) -> int:
        """How many there are now."""
        with self._mutex:
            return len(self._open) // 2

    @property
    def kept(self) -> int:
        """How many requests are kept for `let_go`."""
        return len(self._kept)

    def turn_to(self, target: Place) -> None:
        """Leads to another server from now on; connections to the one before are reset."""
        self._target = target
        self.hang_up()

    def hang_up(self) -> None:
        """Reset every connection there is."""
        with self._mutex:
            sockets = list(self._open)
        for sock in sockets:
            _reset(sock)

    def hang_up_muted(self) -> None:
        """Reset the connections on which no answer comes any more."""
        with self._mutex:
            sockets = [sock for sock in self._muted if sock in self._open]
        for sock in sockets:
            _reset(sock)

    def mute(self) -> None:
        """No answer comes any more on the connections there are now."""
        with self._mutex:
            self._muted |= self._open

    def let_go(self, answered: bool = True) -> None:
        """Deliver what was kept, and wait until it was `answered`; the server may refuse it instead."""
        kept, self._kept = self._kept, []
        if not kept:
            raise ServerError("nothing was kept")
        for server, data in kept:
            self._answered.clear()
            with suppress(OSError) if not answered else nullcontext():
                server.sendall(data)
            if answered and not self._answered.wait(10.0):
                raise ServerError("what was kept was not answered")
            server.close()

    def replay(self, requests: list[bytes]) -> int:
        """Deliver these once more, as if somebody between had; answers how many were carried out."""
        done = 0
        for data in requests:
            with connect_to(self._target, 5.0) as server:
                server.sendall(data)
                done += bool(server.recv(65536))
        return done

    def close(self) -> None:
        self._closed = True
        if self._server is not None:
            with suppress(OSError):
                self._server.shutdown(socket.SHUT_RDWR)  # else an accept under way takes one more
            self._server.close()
            self._thread.join(20.0)  # it may have accepted one before that
        self.hang_up()
        self.release()
        for server, _ in self._kept:
            server.close()

    def _accept(self) -> None:
        assert self._server is not None
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            self.serve(client)

    def serve(self, client: socket.socket) -> None:
        """Passes on what comes on a connection that was accepted, here or by somebody else."""
        if self.refuse:
            _reset(client)
            return
        try:
            server = connect_to(self._target)
        except OSError:
            _reset(client)
            return
        for sock in (client, server):
            if sock.family != socket.AF_UNIX:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with self._mutex:
            self._open |= {client, server}
        if self._closed:  # meanwhile
            self._end(client, server)
            return
        threading.Thread(target=self._requests, args=(client, server), daemon=True).start()
        threading.Thread(target=self._answers, args=(client, server), daemon=True).start()

    def _requests(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while data := client.recv(65536):
                self._requests_pass.wait()
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
                if server not in self._delivering:
                    self._answers_pass.wait()
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


def connect_to(place: Place, timeout: float | None = None) -> socket.socket:
    """Returns a connection to a server."""
    if isinstance(place, str):
        sock = socket.socket(socket.AF_UNIX)
        try:
            sock.settimeout(timeout)
            sock.connect(place)
        except BaseException:
            sock.close()
            raise
        return sock
    where = ("127.0.0.1", place) if isinstance(place, int) else place
    return socket.create_connection(where, timeout)


def _reset(sock: socket.socket) -> None:
    with suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        sock.shutdown(socket.SHUT_RD)
    sock.close()
