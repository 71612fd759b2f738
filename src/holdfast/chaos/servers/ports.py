"""Ports for servers that are started a moment later, or again: no other process of ours takes them.

Each process that starts servers has a share of the ports to itself, whichever run it belongs to, and
gives the same one out again only after many others. They are below those that the kernel gives to
whoever asks for any port, so that neither a proxy nor a connection gets one of them meanwhile.
"""

from __future__ import annotations

import atexit
import itertools
import os
import socket
import threading
from functools import cache

FIRST, COUNT = 12000, 10000
"""The ports that are given out; not those above, where the buses of Redis Cluster are."""
SHARES = 16
_mutex = threading.Lock()


def free_port() -> int:
    return free_ports(1)[0]


def free_ports(number: int) -> list[int]:
    """Returns so many ports, no two of them the same."""
    with _mutex:
        return [next(port for port in _candidates() if _is_free(port)) for _ in range(number)]


def _is_free(port: int) -> bool:
    with socket.socket() as sock:
        try:
            sock.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


@cache
def _candidates() -> itertools.cycle[int]:
    """Returns the ports of this process's share, again and again."""
    share, _ = _share()
    ports = list(range(FIRST + share, FIRST + COUNT, SHARES))
    start = os.getpid() * 37 % len(ports)
    return itertools.cycle(ports[start:] + ports[:start])


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
