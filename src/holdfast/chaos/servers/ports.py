"""Ports for servers that are started a moment later, or again: no other process of ours takes them.

Each process that starts servers has a share of the ports to itself, whichever run it belongs to, and
gives the same one out again only after many others.
"""

from __future__ import annotations

import atexit
import socket
from collections import deque
from contextlib import ExitStack
from functools import cache

SHARES = 16
_given: deque[int] = deque(maxlen=300)
"""Fewer than a share has."""


def free_port() -> int:
    return free_ports(1)[0]


def free_ports(number: int) -> list[int]:
    """Returns so many ports, no two of them the same."""
    share, _ = _share()
    found: list[int] = []
    with ExitStack() as stack:
        while len(found) < number:
            sock = stack.enter_context(socket.socket())
            sock.bind(("127.0.0.1", 0))
            port: int = sock.getsockname()[1]
            # The kernel gives odd ones to those who ask like this, and even ones to connections.
            if port // 2 % SHARES == share and port not in _given:
                _given.append(port)
                found.append(port)
    return found


@cache
def _share() -> tuple[int, socket.socket]:
    """Returns the first share that no other process has, and the name that says so until our end."""
    name = socket.socket(socket.AF_UNIX)
    atexit.register(name.close)
    for share in range(SHARES):
        try:
            name.bind(f"\0holdfast-test-ports-{share}")
            break
        except OSError:
            continue
    return share, name
