"""The wire for blocking code: a connection for each thread that is calling, kept for the next.

A thread that waits for a lock keeps the connection on which it was put into the queue, and reads its
own wake-up from it: no other thread stands between. The twin is `aio`: the same names and meanings.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from threading import Lock
from time import sleep
from typing import TYPE_CHECKING, Any, Protocol

from ..clock import Clock
from ..errors import BackendUnavailable, LockError
from ..model import Granted
from .address import Address
from .connection import Connection
from .protocol import bulk, pack

if TYPE_CHECKING:
    from .._sync.contract import Ticket

NO_CHANNEL = bulk(b"")
KEPT_IDLE = 32
"""Connections kept for the next caller."""
SUSPECT_AFTER = 0.5
"""Seconds unused after which a connection is looked at before it is trusted."""
PAUSE = 0.5
"""Seconds between attempts to hear again, while the server is gone."""
ATTEMPT = 1.0
"""Seconds for one attempt to reach a server that may not be the primary any more."""
SHORT_PAUSE = 0.05
"""Seconds before it is asked again where the primary is."""


class Finder(Protocol):
    """Knows where the primary is."""

    def find(self, by: float) -> Address: ...

    def doubt(self) -> None:
        """It may be elsewhere by now: ask again next time."""
        ...


class Ear:
    """A waiting ticket, and the connection on which it will be told."""

    __slots__ = ("bell", "connection", "dropped", "listening", "ticket")

    def __init__(self, ticket: Ticket, connection: Connection) -> None:
        self.ticket = ticket
        self.connection = connection
        self.bell = connection.bell
        """It stays the same when the connection is replaced."""
        self.listening = False
        self.dropped = False


class Wire:
    def __init__(
        self, address: Address, clock: Clock, channels: bytes, finder: Finder | None = None
    ) -> None:
        self._address = address
        self._finder = finder
        self._clock = clock
        self._channels = channels
        self._idle: list[Connection] = []
        self._ears: dict[str, Ear] = {}
        self._mutex = Lock()
        self._closed = False

    @property
    def address(self) -> Address:
        """Of the server, or of the one that was the primary last."""
        return self._address

    def open(self, by: float) -> None:
        self._give(self._take(by))

    def call(self, command: bytes, by: float) -> Any:
        """The server's answer, which may be an error it answered with. Raises `Lost` without one."""
        connection = self._take(by)
        try:
            reply = connection.call(command, by)
        except BaseException:
            self._failed(connection)
            raise
        self._give(connection)
        return reply

    def batch(self, commands: Sequence[bytes], by: float) -> list[Any]:
        """All at once, in one round trip."""
        connection = self._take(by)
        try:
            replies = connection.batch(commands, by)
        except BaseException:
            self._failed(connection)
            raise
        self._give(connection)
        return replies

    def ask(self, ticket: Ticket, command: bytes, owner: bytes, by: float) -> Any:
        """Ask for a lock: `command`, the channel where the ticket will be told, `owner`.

        A connection has no channel until it first needs one: who never waits never pays for it.
        """
        connection = self._take(by)
        try:
            queue = ticket.queue
            channel = connection.channel if queue else NO_CHANNEL
            reply = connection.call(command + channel + owner, by)
            if queue and type(reply) is int and reply < 0:
                self._subscribe(connection, by)
                reply = connection.call(command + connection.channel + owner, by)
        except BaseException:
            self._failed(connection)
            raise
        if type(reply) is int and reply >= 0:
            ear = Ear(ticket, connection)
            with self._mutex:
                old = self._ears.pop(ticket.owner, None)
                self._ears[ticket.owner] = ear
            if old is not None:
                self._give(old.connection)
            ticket.attach(ear.bell)
        else:
            self._give(connection)
        return reply

    def listen(self, ticket: Ticket, until: float | None) -> Granted | None:
        """Until this ticket is told something, or until `until`."""
        with self._mutex:
            ear = self._ears.get(ticket.owner)
            if ear is not None:
                ear.listening = True
        if ear is None:
            return ticket.wait(self._clock, until)
        try:
            if ear.connection.dead:
                self._mend(ear, until)
                return None
            return ear.connection.listen(ticket, until)
        finally:
            with self._mutex:
                ear.listening = False
                dropped = ear.dropped
            if dropped:
                self._give(ear.connection)

    def forget(self, owner: str) -> None:
        """This owner does not wait any more."""
        if owner not in self._ears:
            return
        with self._mutex:
            ear = self._ears.pop(owner, None)
            if ear is None:
                return
            listening = ear.listening
            ear.dropped = True
        ear.ticket.attach(None)
        if listening:
            ear.bell.set()  # it gives the connection back itself
        else:
            self._give(ear.connection)

    def turn_away(self) -> None:
        """This is not the server to talk to: next time a new connection may lead to another."""
        if self._finder is not None:
            self._finder.doubt()
            self._address = self._address._replace()  # those in use now are not kept, see _give
        idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()
        with self._mutex:
            ears = list(self._ears.values())
        for ear in ears:
            ear.connection.hang_up()  # who waits on it hears again on another

    def close(self) -> None:
        with self._mutex:
            self._closed = True
            idle, self._idle = self._idle, []
            owners = list(self._ears)
        for owner in owners:
            self.forget(owner)
        for connection in idle:
            connection.close()

    def _take(self, by: float) -> Connection:
        if self._closed:
            raise BackendUnavailable(f"this connection to {self._address} is closed")
        now = self._clock.now()
        while True:
            try:
                connection = self._idle.pop()
            except IndexError:
                return self._connected(by)
            if now - connection.used < SUSPECT_AFTER or connection.is_alive():
                return connection
            connection.close()

    def _connected(self, by: float) -> Connection:
        if self._finder is None:
            return Connection(self._address, self._clock, by)
        while True:
            # To wherever the primary is: asked, tried, and asked again while there is time.
            found = self._finder.find(by)
            if found != self._address:
                self._address = found
            try:
                limit = min(by, self._clock.now() + ATTEMPT)
                return Connection(self._address, self._clock, limit)
            except BackendUnavailable:
                self._finder.doubt()
                if self._closed or self._clock.now() + SHORT_PAUSE >= by:
                    raise
                sleep(SHORT_PAUSE)

    def _failed(self, connection: Connection) -> None:
        """It broke, or is overdue. Where the primary may have moved, others to it are as good."""
        connection.close()
        if self._finder is not None:
            self.turn_away()

    def _give(self, connection: Connection) -> None:
        connection.used = self._clock.now()
        if (
            connection.dead
            or self._closed
            or len(self._idle) >= KEPT_IDLE
            or connection.address is not self._address
        ):
            connection.close()
        else:
            self._idle.append(connection)
            if self._closed:  # meanwhile
                connection.close()

    def _subscribe(self, connection: Connection, by: float, name: bytes = b"") -> None:
        if connection.channel != NO_CHANNEL:
            return
        name = name or self._channels + os.urandom(9).hex().encode()
        reply = connection.call(pack(b"SUBSCRIBE", name), by)
        if isinstance(reply, Exception):
            raise BackendUnavailable(
                f"the server at {self._address} does not let us listen on channels: {reply}; a user "
                f"with an access list needs &{self._channels.decode()}*"
            )
        connection.listens_on(name)

    def _mend(self, ear: Ear, until: float | None) -> None:
        """Hear again, on a new connection and the same channel; who comes back has to ask."""
        while not ear.dropped:
            now = self._clock.now()
            limit = now + PAUSE if until is None else min(now + PAUSE, until)
            if now >= limit:
                return
            old = ear.connection
            try:
                fresh = self._connected(limit)
                try:
                    self._subscribe(fresh, limit, old.channel_name)
                except BaseException:
                    fresh.close()
                    raise
            except (LockError, OSError):
                if ear.bell.sleep(max(0.0, limit - self._clock.now())):
                    return
                continue
            fresh.take_bell(old)
            ear.connection = fresh
            return
