"""The addresses that a host's name stands for, found within the caller's deadline.

`getaddrinfo` cannot be interrupted, and a name server that does not answer keeps it for a dozen
seconds. So it runs in a daemon thread of its own, which a caller whose time is over leaves behind.
Neither the end of the process nor the end of an event loop waits for that thread.

All callers that want the same name at the same time share one thread. What it finds after the last of
them has given up is kept for the next one, for `LATE_KEPT` seconds: so a name server that is slower
than every deadline still helps the callers that try again.
"""

from __future__ import annotations

import os
import socket
from _thread import allocate_lock, start_new_thread
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from ..clock import system_clock
from ..interrupts import let_through

if TYPE_CHECKING:
    import asyncio

LATE_KEPT = 60.0
LONGEST_SLEEP = 1.0
"""Seconds after which a caller looks at its clock again."""


class Place(NamedTuple):
    """One address of a host, as a socket wants it."""

    family: int
    where: Any


class Lookup:
    """One call of `getaddrinfo`, and the callers that wait for it."""

    # No mutex, which a fork or a signal's handler could find held. A caller first enters itself and
    # then looks whether the lookup is done; the thread does it the other way round.

    __slots__ = ("_host", "_key", "_port", "_wakers", "done", "done_at", "error", "found", "wanted")

    def __init__(self, key: tuple[int, str, int]) -> None:
        self._key = key
        _, self._host, self._port = key
        self._wakers: list[Callable[[], None]] = []
        self.wanted: dict[Callable[[], None], None] = {}
        """The callers that have not given up."""
        self.done = False
        self.done_at = 0.0
        self.found: list[Place] = []
        self.error: OSError | None = None

    def start(self) -> None:
        try:
            start_new_thread(self._run, ())  # no Thread, whose start can be interrupted
        except RuntimeError as error:  # no more threads, or the process is ending
            let_through(error)
            self.error = OSError(f"the name {self._host!r} cannot be looked up: {error}")
            self._finish()

    def join(self, wake: Callable[[], None]) -> None:
        """Calls `wake` when the lookup is done, from any thread; or at once if it is."""
        self.wanted[wake] = None
        self._wakers.append(wake)
        if self.done:
            wake()

    def leave(self, wake: Callable[[], None]) -> None:
        self.wanted.pop(wake, None)

    def result(self) -> list[Place]:
        """Returns what was found, to one who waited for it: it is not kept for another."""
        if _lookups.get(self._key) is self:
            _lookups.pop(self._key, None)
        if self.error is not None:
            raise type(self.error)(*self.error.args)  # each caller has one of its own
        return self.found

    def _run(self) -> None:
        try:
            self.found = look_up(self._host, self._port)
        except OSError as error:
            self.error = error
        except Exception as error:  # a name that cannot even be asked for
            self.error = OSError(f"{self._host!r} is no name of a host: {error}")
        self._finish()

    def _finish(self) -> None:
        self.done_at = system_clock().now()
        self.done = True
        if self.wanted or self.error is not None:
            _lookups.pop(self._key, None)
        for wake in self._wakers:
            wake()


_lookups: dict[tuple[int, str, int], Lookup] = {}
"""The lookups under way, and those that nobody waited for to the end; by process, since a forked child
has none of its parent's threads."""


def look_up(host: str, port: int, flags: int = 0) -> list[Place]:
    """Returns the addresses of `host`, however long that takes."""
    # As bytes: for a text Python imports a codec, and in a child that is forked while another thread
    # does so, that import never ends.
    name = host.encode() if host.isascii() else host
    found = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM, flags=flags)
    return [Place(int(family), where) for family, _, _, _, where in found]


def _lookup_of(host: str, port: int) -> Lookup:
    """Returns the lookup of `host` that is under way, has been left behind, or starts now."""
    key = (os.getpid(), host, port)
    lookup = _lookups.get(key)
    if lookup is not None and lookup.done:
        _lookups.pop(key, None)
        if system_clock().now() - lookup.done_at > LATE_KEPT:
            lookup = None
    if lookup is None:
        mine = Lookup(key)
        lookup = _lookups.setdefault(key, mine)
        if lookup is mine:
            mine.start()
    return lookup


def numeric(host: str, port: int) -> list[Place] | None:
    """Returns the address if `host` is one already, and no name."""
    if ":" in host or host.replace(".", "").isdecimal():
        try:
            return look_up(host, port, socket.AI_NUMERICHOST)
        except OSError as error:
            let_through(error)
    return None


def resolve(host: str, port: int, deadline: float, now: Callable[[], float]) -> list[Place]:
    """Returns the addresses of `host`; raises `OSError`, which `TimeoutError` is, by `deadline`."""
    places = numeric(host, port)
    if places is not None:
        return places
    lookup = _lookup_of(host, port)
    lock = allocate_lock()
    lock.acquire()

    def wake() -> None:
        with suppress(RuntimeError):  # it was woken twice
            lock.release()

    try:
        lookup.join(wake)
        while not lookup.done:
            left = deadline - now()
            if left <= 0:
                raise TimeoutError(unresolved(host))
            lock.acquire(True, min(left, LONGEST_SLEEP))
    finally:
        lookup.leave(wake)
    return lookup.result()


async def resolve_in_loop(loop: asyncio.AbstractEventLoop, host: str, port: int) -> list[Place]:
    """Returns the addresses of `host`; raises `OSError`. A caller with a deadline cancels it."""
    own_names = getattr(loop, "resolve", None)
    if own_names is not None:  # the simulator's
        return [Place(*place) for place in own_names(host, port)]
    places = numeric(host, port)
    if places is not None:
        return places
    lookup = _lookup_of(host, port)
    future: asyncio.Future[None] = loop.create_future()

    def settle() -> None:
        if not future.done():
            future.set_result(None)

    def wake() -> None:
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(settle)

    try:
        lookup.join(wake)
        await future
    finally:
        lookup.leave(wake)
    return lookup.result()


def why_late(host: str, port: int) -> str:
    """Returns what to say of a host that could not be reached in time; empty if its name was found."""
    lookup = _lookups.get((os.getpid(), host, port))
    return "" if lookup is None or lookup.done else unresolved(host)


def unresolved(host: str) -> str:
    """Returns what to say of a name that has been looked up for too long."""
    return f"the name {host!r} was not resolved in time; is the name server slow?"
