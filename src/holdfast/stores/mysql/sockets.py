"""Sockets on which every wait ends by a deadline, whatever timeouts the driver sets on them."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from typing import Any

from ...forked_sockets import end_in_children

LAST_LOOK = 0.001
"""Seconds for which a socket is looked at when the deadline is over: if this process stood still, what
it waits for has come meanwhile."""


class Deadline:
    """The time on a clock by which all that waits on a socket has to be done."""

    __slots__ = ("_now", "at")

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self.at = 0.0

    def left(self) -> float:
        """Returns the seconds for which a call may wait."""
        return max(self.at - self._now(), LAST_LOOK)


class _Timed(socket.socket):
    """A socket whose waits end at a deadline. A wait that a signal interrupts does not begin anew."""

    deadline: Deadline | None = None

    def settimeout(self, value: float | None) -> None:
        """Does nothing once there is a deadline: the driver's timeouts begin anew with each read."""
        if self.deadline is None:
            super().settimeout(value)

    def hurry(self) -> None:
        """Bounds the next call by the deadline."""
        if self.deadline is not None:
            super().settimeout(self.deadline.left())

    def recv_into(self, *values: Any, **named: Any) -> int:
        self.hurry()
        return super().recv_into(*values, **named)

    def sendall(self, *values: Any, **named: Any) -> None:
        self.hurry()
        return super().sendall(*values, **named)


class TimedSocket(_Timed):
    """A plain socket, to a TCP port or a Unix socket."""


class TimedTls(_Timed, ssl.SSLSocket):
    """A socket that speaks TLS."""

    def send(self, *values: Any, **named: Any) -> int:
        self.hurry()
        return super().send(*values, **named)


class TimedContext(ssl.SSLContext):
    """A context whose sockets take over the deadline of those that they are made of."""

    sslsocket_class = TimedTls

    def wrap_socket(self, sock: socket.socket, *values: Any, **named: Any) -> ssl.SSLSocket:
        assert isinstance(sock, TimedSocket)
        deadline = sock.deadline
        named["do_handshake_on_connect"] = False
        wrapped = super().wrap_socket(sock, *values, **named)
        assert isinstance(wrapped, TimedTls)
        end_in_children(wrapped)
        wrapped.deadline = deadline
        try:
            wrapped.hurry()  # the handshake is one call
            wrapped.do_handshake()
        except BaseException:
            wrapped.close()
            raise
        return wrapped


def connect(family: int, where: Any, deadline: Deadline) -> TimedSocket:
    """Returns a connected socket; raises `OSError`, which `TimeoutError` is, by the deadline."""
    sock = TimedSocket(family, socket.SOCK_STREAM)
    try:
        sock.deadline = deadline
        end_in_children(sock)
        sock.hurry()
        sock.connect(where)
        if family != socket.AF_UNIX:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    except BaseException:
        sock.close()
        raise
    return sock
