"""The pool of blocking connections: one for each thread that is calling, kept for the next one."""

from __future__ import annotations

from time import sleep
from typing import Protocol

from .... import forks
from ....clock import Clock
from ....errors import BackendUnavailable
from ..address import Address
from .blocking_connection import Connection

KEPT_IDLE = 32
"""Connections kept for the next caller."""
SUSPECT_AFTER = 0.5
"""Seconds without use after which a connection is checked before it is used."""
CONNECT_LIMIT = 1.0
"""Seconds for one attempt to reach a server that may not be the primary any more."""
FINDER_PAUSE = 0.05
"""Seconds before the finder is asked again for the primary."""


class PrimaryFinder(Protocol):
    """A way to learn where the primary is."""

    def find(self, deadline: float) -> Address: ...

    def doubt(self) -> None:
        """Forgets where the primary was: it may be elsewhere by now."""
        ...


class ConnectionPool:
    """The connections to one server. The list is only appended to and popped from, without a mutex."""

    def __init__(self, address: Address, clock: Clock, finder: PrimaryFinder | None) -> None:
        self.address = address
        """The address of the server, or of the last one that was the primary."""
        self.finder = finder
        self.closed = False
        self._clock = clock
        self._idle: list[Connection] = []
        self._made_in = forks.current()

    def borrow(self, deadline: float, now: float) -> Connection:
        """Returns a connection that no other thread uses until it is given back."""
        while True:
            try:
                connection = self._idle.pop()
            except IndexError:
                break
            if now - connection.used < SUSPECT_AFTER or connection.is_alive():
                return connection
            connection.close()
        return self.open(deadline)  # out here: what it raises is then the first error

    def give_back(self, connection: Connection, now: float) -> None:
        """Keeps the connection for the next caller, and the time when it was last used."""
        connection.used = now
        if (
            connection.dead
            or connection.address is not self.address
            or len(self._idle) >= KEPT_IDLE
        ):
            connection.close()
            return
        self._idle.append(connection)
        if self.closed:  # perhaps meanwhile
            connection.close()

    def drop(self) -> None:
        """Closes the idle connections. Those in use are closed when they are given back, if the next
        ones may lead to another server."""
        if self.finder is not None:
            self.finder.doubt()
            self.address = self.address._replace()  # another object, see `give_back`
        self._close_idle()

    def close(self) -> None:
        self.closed = True
        self._close_idle()

    def _close_idle(self) -> None:
        idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def open(self, deadline: float) -> Connection:
        """Returns a new connection."""
        forks.refuse_inherited(self._made_in)
        if self.closed:
            raise BackendUnavailable(f"this connection to {self.address} is closed")
        if self.finder is None:
            connection = Connection(self.address, self._clock, deadline)
        else:
            connection = self._open_to_primary(self.finder, deadline)
        return self._ours(connection)

    def _ours(self, connection: Connection) -> Connection:
        """Returns a new connection, unless it is of a child that goes on with its parent's call."""
        if self._made_in != forks.generation:
            connection.close()
            forks.refuse_inherited(self._made_in)
        return connection

    def _open_to_primary(self, finder: PrimaryFinder, deadline: float) -> Connection:
        """Connects to the primary: the finder is asked, and asked again, while there is time."""
        now = self._clock.now
        while True:
            found = finder.find(deadline)
            if found != self.address:
                self.address = found
            try:
                return Connection(self.address, self._clock, min(deadline, now() + CONNECT_LIMIT))
            except BackendUnavailable:
                finder.doubt()
                if self.closed or now() + FINDER_PAUSE >= deadline:
                    raise
                sleep(FINDER_PAUSE)
