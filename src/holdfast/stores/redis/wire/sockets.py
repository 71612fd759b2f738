"""What is set on every connection to a server."""

from __future__ import annotations

import socket

_PROBES = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}
"""After so many seconds without a word, how often, and how many times; where the system knows them."""


def prepare(sock: socket.socket) -> None:
    """Nothing is held back to be sent together; and what lies idle is probed. Else a router on the way
    may forget it without a word, and the next command on it would wait in vain."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _PROBES.items():
        option = getattr(socket, name, None)
        if option is not None:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)
