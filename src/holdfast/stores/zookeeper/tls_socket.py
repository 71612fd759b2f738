"""A connection by TLS, as kazoo's loop needs it.

That loop polls the descriptor. Beneath TLS this says both too little, since what was decrypted along
with an earlier reply waits in the library, and too much, since a record may hold nothing for us: then
kazoo would wait for a reply that nobody sends, and send nothing meanwhile. So what can be read is read
first.
"""

from __future__ import annotations

import socket
import ssl
from typing import Any

from ...interrupts import let_through
from ..connecting import connecting
from ..tls import in_words

CHUNK = 65536


class TlsSocket:
    """A socket with TLS. `fill` is called when its descriptor is readable."""

    def __init__(self, sock: ssl.SSLSocket) -> None:
        self._sock = sock
        self._unread = bytearray()
        self._ended = False

    def fileno(self) -> int:
        return self._sock.fileno()

    def setblocking(self, flag: bool) -> None:
        self._sock.setblocking(flag)

    def fill(self) -> bool:
        """Reads what has come; returns whether there is something for `recv`, if only the end."""
        if not self._unread and not self._ended:
            try:
                data = self._sock.recv(CHUNK)
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError, BlockingIOError):
                return False
            except OSError:
                data = b""
            self._unread += data
            self._ended = not data
        return True

    @property
    def has_unread(self) -> bool:
        """Whether there is something for `recv` of which the descriptor says nothing."""
        return bool(self._unread) or self._sock.pending() > 0

    def recv(self, size: int) -> bytes:
        if not self.fill():
            raise ssl.SSLWantReadError(ssl.SSL_ERROR_WANT_READ, "nothing to read")
        data = bytes(self._unread[:size])
        del self._unread[:size]
        return data

    def send(self, data: Any) -> int:
        return self._sock.send(data)

    def shutdown(self, how: int) -> None:
        socket.socket.shutdown(self._sock, how)  # TLS stays: its thread may be reading

    def close(self) -> None:
        self._sock.close()


def connect(
    place: tuple[str, int], hostname: str, timeout: float, context: ssl.SSLContext
) -> TlsSocket:
    """Returns a connection to `place`, whose certificate is checked to be for `hostname`."""
    sock = socket.create_connection(place, timeout)
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with connecting():
            try:
                return TlsSocket(context.wrap_socket(sock, server_hostname=hostname))
            except OSError as error:
                let_through(error)
                # The second argument is what kazoo tells of it.
                raise OSError(error.errno or 0, str(in_words(error, context))) from None
    except BaseException:
        sock.close()
        raise
