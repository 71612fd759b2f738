"""Connections to a database: a few, opened when they are needed, each lent for one call at a time."""

from __future__ import annotations

import time
from _thread import allocate_lock
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import RLock
from typing import Any, Protocol, TypeVar
from weakref import WeakSet

from ... import forks
from ...clock import Clock
from ...errors import BackendUnavailable, ConfigError
from ...refusals import as_public
from ..connecting import connecting
from .failures import Again, Late, Lost, Unready

PAUSE, LONGEST_PAUSE = 0.01, 0.25
"""Seconds before a step is sent again; each time twice as long."""
RESTART_LIMIT = 2.0
"""Seconds for which a step is sent again while connections break, or cannot be made."""
LOOK_AGAIN = 0.1
"""Seconds after which a caller that waits for a connection looks for itself."""

Value = str | int | bool | Sequence[str] | Sequence[int]
Row = tuple[Any, ...]
Result = TypeVar("Result")


class Connection(Protocol):
    """A connection to one database. One caller at a time."""

    def open(self, deadline: float) -> None:
        """Connects, and logs in."""
        ...

    def call(self, procedure: str, values: Sequence[Value], deadline: float) -> list[Row]:
        """Calls a procedure in a transaction of its own; returns its rows, with numbers as int.

        Raises `Lost`, `Again`, or an error for the user.
        """
        ...

    def close(self) -> None: ...


LEAST_TIME = 0.25
"""Seconds for a call that begins when its time is over."""


class Connections:
    """At most `most` connections, which `make` makes.

    Where none can be made, because the database or this process may have no more, a call is made on
    one of `others` that nobody uses.
    """

    def __init__(
        self,
        make: Callable[[], Connection],
        most: int,
        clock: Clock,
        address: str,
        others: Connections | None = None,
    ) -> None:
        self._make = make
        self._others = others
        self._most = most
        self._clock = clock
        self._address = address
        self._mutex = RLock()
        self._idle: deque[Connection] = deque()
        self._all: WeakSet[Connection] = WeakSet()
        """The connections that are open or being opened, but for any that an exception took from its
        caller."""
        self._waiting: deque[Any] = deque()
        self._closed = False
        self._made_in = forks.current()

    def call(
        self,
        procedure: str,
        values: Sequence[Value],
        deadline: float,
        lost: Callable[[], None] = lambda: None,
    ) -> list[Row]:
        """Calls a procedure that may be repeated without harm; returns its rows. `lost`: see `use`."""

        def work(connection: Connection) -> list[Row]:
            now = self._clock.now()
            # All before it was in time: it is late only because this process stood still.
            return connection.call(
                procedure, values, deadline if deadline > now else now + LEAST_TIME
            )

        return self.use(work, deadline, lost)

    def use(
        self,
        work: Callable[[Connection], Result],
        deadline: float,
        lost: Callable[[], None] = lambda: None,
    ) -> Result:
        """Does `work`, which may be repeated without harm, with a connection; again if it failed.

        A database that is restarting cannot be reached for a moment, which is waited for. Calls `lost`
        when a connection broke: what was sent on it may still arrive, after what is sent again.
        """
        pause = PAUSE
        lost_at: float | None = None
        reason: Lost | Again | None = None
        while True:
            try:
                return self._use_once(work, deadline)
            except ConfigError as error:
                raise as_public(error) from None
            except (Lost, Again) as failure:
                if reason is None or not isinstance(failure, Late):
                    reason = failure  # a refusal says more than that the time is over
                now = self._clock.now()
                until = deadline
                if isinstance(failure, Lost):
                    lost()
                    lost_at = lost_at or now
                    until = min(deadline, lost_at + RESTART_LIMIT)
                if until - now <= pause:
                    raise BackendUnavailable(f"{self._address}: {reason}") from failure
            time.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE)

    def _use_once(self, work: Callable[[Connection], Result], deadline: float) -> Result:
        try:
            connection = self._borrow(deadline)
        except (Lost, Again):
            if self._others is None or not self._others._idle:
                raise
            return self._others._use_once(work, deadline)
        try:
            result = work(connection)
        except BaseException as error:
            if isinstance(error, Again) and not isinstance(error, Unready):
                self._give_back(connection)
            else:
                self._drop(connection)
            raise
        self._give_back(connection)
        return result

    def _borrow(self, deadline: float) -> Connection:
        while True:
            with suppress(IndexError):
                return self._idle.pop()
            connection = self._new()
            if connection is None:
                self._wait(deadline)
                continue
            try:
                with connecting():
                    connection.open(deadline)
                forks.refuse_inherited(self._made_in)  # again: a child opens one of its own
            except BaseException:
                self._drop(connection)
                raise
            return connection

    def _new(self) -> Connection | None:
        """Returns a connection that is not open yet; None if there are as many as there may be."""
        forks.refuse_inherited(self._made_in)
        with self._mutex:
            if self._closed:
                raise BackendUnavailable(f"this connection to {self._address} is closed")
            if len(self._all) >= self._most:
                return None
            connection = self._make()
            self._all.add(connection)
            return connection

    def _wait(self, deadline: float) -> None:
        """Waits until a connection may have been given back."""
        left = deadline - self._clock.now()
        if left <= 0:
            raise Late("all connections to the database were busy for too long")
        turn = allocate_lock()
        turn.acquire()
        self._waiting.append(turn)
        if not self._idle:
            turn.acquire(True, min(left, LOOK_AGAIN))
        with suppress(ValueError):
            self._waiting.remove(turn)

    def _give_back(self, connection: Connection) -> None:
        if self._closed:
            self._drop(connection)
            return
        self._idle.append(connection)
        self._wake_one()

    def _drop(self, connection: Connection) -> None:
        if self._made_in != forks.current():
            return  # it is the parent's, whose other threads may hold our mutex here
        with self._mutex:
            self._all.discard(connection)
        connection.close()
        self._wake_one()

    def _wake_one(self) -> None:
        if self._waiting:
            with suppress(IndexError, RuntimeError):
                self._waiting.popleft().release()

    def close(self) -> None:
        """Closes those that nobody uses; the others when they are given back."""
        with self._mutex:
            self._closed = True
        while self._idle:
            with suppress(IndexError):
                self._drop(self._idle.pop())
