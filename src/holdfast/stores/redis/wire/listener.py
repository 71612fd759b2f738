"""The connection on which blocking code hears what no thread waits for, and the thread that reads it.

In asyncio the one connection of a manager hears everything. Here a connection belongs to the thread
that is calling; so forced releases, and changes of elections, come on one of their own, for all threads
together. It is opened a moment after the first grant, or when an election is first observed.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from threading import RLock

from ...._runtime.threads import Routine, Signal
from ....clock import Clock
from ....errors import BackendUnavailable, LockError
from ..owners import OwnerSet
from .blocking_connection import Connection
from .pool import ConnectionPool
from .protocol import bulk, pack
from .refusals import deaf

START_PAUSE = 0.1
"""Seconds after the first grant: a program that is done by then never opens the connection."""
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 5.0
"""Seconds between attempts to open the connection, while the server is gone."""
CONNECT_LIMIT = 5.0
JOIN_LIMIT = 0.5
"""Seconds for which `close` waits for the thread, which may be connecting."""


class Listener:
    """The listening connection of one manager to one server, opened again when it breaks."""

    def __init__(
        self,
        pool: ConnectionPool,
        clock: Clock,
        channels: bytes,
        recalls: bytes,
        woken: Callable[[bytes], None],
        lost: Callable[[], None],
    ) -> None:
        """Takes what to call with each message, and when the connection broke: some may be missed."""
        self._pool = pool
        self._clock = clock
        self._name = channels + os.urandom(9).hex().encode()
        self._recalls = recalls
        self._woken = woken
        self._lost = lost
        self.channel = bulk(self._name)
        """The channel on which observers are told, packed."""
        self._has_observers = False
        self._complete = False
        """Whether the connection was to listen on that channel, too."""
        self._subscribed = False
        """Whether it does."""
        self.attentive = False
        """Whether the connection listens, as far as the server lets it."""
        self._refusal: Exception | None = None
        """The server's reply, if it does not let us listen."""
        self._unheard = OwnerSet()
        """Owners that were granted a lock before the connection listened."""
        self._mutex = RLock()  # the handler of a signal may call `close`
        self._closed = False
        self._hurry = Signal(clock)
        self._waiting: list[Signal] = []
        self._connection: Connection | None = None
        self._routine: Routine | None = None

    def start(self, owner: str = "") -> None:
        """Starts the thread, if there is none. A forced release of `owner` will not be missed."""
        if owner:
            self._unheard.add(owner)
        with self._mutex:
            if self._routine is None and not self._closed:
                with suppress(RuntimeError):  # no thread is to be had now, as when Python is ending
                    self._routine = Routine(self._run, "holdfast-redis-listener")
        if owner and self.attentive:  # meanwhile
            self._tell_unheard()

    def await_channel(self, deadline: float) -> bytes:
        """Returns the channel, packed, once the connection listens on it."""
        done = Signal(self._clock)
        with self._mutex:
            self._waiting.append(done)
        try:
            self.start()
            if not self._has_observers:
                self._has_observers = True
                self.interrupt()  # the next connection listens on both
            self._hurry.set()
            while not self._subscribed:
                if self._closed:
                    raise BackendUnavailable(f"this connection to {self._pool.address} is closed")
                if self._refusal is not None:
                    refusal, self._refusal = self._refusal, None
                    self.interrupt()  # to be asked again by the next one
                    raise deaf(
                        refusal, self._pool.address, self._recalls.rpartition(b":")[0] + b":"
                    )
                if not done.wait(deadline):
                    raise BackendUnavailable(
                        f"cannot listen to the server at {self._pool.address}: it was not reached "
                        "in time"
                    )
        finally:
            with self._mutex:
                self._waiting.remove(done)
        return self.channel

    def interrupt(self) -> None:
        """Has the connection made anew: the next one may lead to another server."""
        connection = self._connection
        if connection is not None:
            connection.interrupt()

    def close(self) -> None:
        self._closed = True
        self._hurry.set()
        self._tell_waiting()
        self.interrupt()
        if self._routine is not None:
            self._routine.join(JOIN_LIMIT)

    # The thread.

    def _run(self) -> None:
        self._hurry.wait(self._clock.now() + START_PAUSE)
        pause = FIRST_PAUSE
        while not self._closed:
            try:
                connection = self._open()
            except (LockError, OSError):
                self._hurry.wait(self._clock.now() + pause)
                pause = min(LONGEST_PAUSE, 2 * pause)
                continue
            try:
                pause = FIRST_PAUSE
                self._tell_unheard()
                self._tell_waiting()
                if self._is_complete():
                    connection.hear(self._woken)
            finally:
                self.attentive = self._subscribed = False
                self._connection = None
                connection.close()
            if not self._closed:
                self._lost()
                self._hurry.wait(self._clock.now() + FIRST_PAUSE)

    def _open(self) -> Connection:
        connection = self._pool.open(self._clock.now() + CONNECT_LIMIT)
        try:
            now = self._clock.now()
            names = [self._recalls, self._name] if self._has_observers else [self._recalls]
            replies = [
                connection.call(pack(b"SUBSCRIBE", name), now + CONNECT_LIMIT, now)
                for name in names
            ]
        except BaseException:
            connection.close()
            raise
        refused = [reply for reply in replies if isinstance(reply, Exception)]
        self._refusal = refused[0] if refused else None
        self._connection = connection
        self._complete = len(names) == 2
        self._subscribed = self._complete and not refused
        self.attentive = True
        return connection

    def _is_complete(self) -> bool:
        """Returns whether this connection will do: no observers have come, or it was made for them."""
        return not self._closed and (self._complete or not self._has_observers)

    def _tell_unheard(self) -> None:
        """Has it looked at owners whose forced release may have been published before we listened."""
        owners = list(self._unheard)
        for owner in owners:
            self._unheard.discard(owner)
            self._woken(b"%b -1" % owner.encode())

    def _tell_waiting(self) -> None:
        with self._mutex:
            waiting = list(self._waiting)
        for signal in waiting:
            signal.set()
