"""The addresses that a member's name stands for, found within a deadline.

The system's resolver cannot be interrupted, and may take a dozen seconds. It runs on a thread of its
own, which is left behind when the caller's time is over; the next caller waits for the same thread.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import suppress
from threading import Lock, Thread
from typing import Any

Place = tuple[int, Any]
"""The family of an address, and the address as `connect` wants it."""
Found = list[Place] | OSError


class Lookup:
    """One question to the resolver, and those who wait for its answer."""

    def __init__(self, host: str, port: int) -> None:
        self._host = host
        self._port = port
        self._mutex = Lock()
        self._callbacks: list[Callable[[], None]] = []
        self.found: Found | None = None
        Thread(target=self._run, name="holdfast-resolver", daemon=True).start()

    def notify(self, callback: Callable[[], None]) -> None:
        """Calls `callback` once there is an answer, from any thread."""
        with self._mutex:
            if self.found is None:
                self._callbacks.append(callback)
                return
        callback()

    def _run(self) -> None:
        found: Found
        try:
            found = places(self._host, self._port)
        except (OSError, UnicodeError) as error:
            found = error if isinstance(error, OSError) else OSError(str(error))
        with self._mutex:
            self.found = found
            callbacks = self._callbacks
        for callback in callbacks:
            callback()


def split(endpoint: str) -> tuple[str, int]:
    """Returns the host and the port of a member."""
    host, _, port = endpoint.rpartition(":")
    return host.removeprefix("[").removesuffix("]"), int(port)


def places(host: str, port: int) -> list[Place]:
    """Returns the addresses that a name stands for; that may take long."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [(family, where) for family, _, _, _, where in found]


class Resolver:
    """The questions to the resolver that are under way."""

    def __init__(self) -> None:
        self._lookups: dict[str, Lookup] = {}

    def begin(self, endpoint: str) -> list[Place] | Lookup:
        """Returns the addresses of a member, if it is named by its address, or else a lookup."""
        host, port = split(endpoint)
        for family in (socket.AF_INET, socket.AF_INET6):
            # Not by the resolver, which may have been in use when this process was forked.
            with suppress(OSError):
                socket.inet_pton(family, host)
                return [(family, (host, port))]
        lookup = self._lookups.get(endpoint)
        if lookup is None or lookup.found is not None:
            lookup = self._lookups[endpoint] = Lookup(host, port)
        return lookup


def answer_of(lookup: Lookup) -> list[Place]:
    """Returns what a lookup has found; raises `OSError`."""
    found = lookup.found
    if found is None:
        raise TimeoutError("its name was not resolved in time")
    if isinstance(found, OSError):
        raise OSError(f"its name cannot be resolved: {found.strerror or found}")
    return found
