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

from ...._runtime.threads import Signal
from ....clock import Clock
from ....errors import BackendUnavailable, LockError
from ....model import Granted, quick_new
from ..address import Address
from .protocol import FREED, LONG, NO_CHANNEL, PING, Lost, handed, pack
from .threads_connection import SHORT, Connection, Ear

if TYPE_CHECKING:
    from ..._sync.contract import Ticket

ASYNCHRONOUS = False
KEPT_IDLE = 32
"""Connections kept for the next caller."""
SUSPECT_AFTER = 0.5
"""Seconds unused after which a connection is looked at before it is trusted."""
PATIENT = 1.0
"""Seconds that one must be ready to wait for, to be told of its place in the queue a moment later."""
PAUSE = 0.5
"""Seconds between attempts to hear again, while the server is gone."""
ATTEMPT = 1.0
"""Seconds for one attempt to reach a server that may not be the primary any more."""
SHORT_PAUSE = 0.05
"""Seconds before it is asked again where the primary is."""


class Finder(Protocol):
    """Knows where the primary is."""

    def find(self, deadline: float) -> Address: ...

    def doubt(self) -> None:
        """It may be elsewhere by now: ask again next time."""
        ...


class Wire:
    def __init__(
        self, address: Address, clock: Clock, channels: bytes, finder: Finder | None = None
    ) -> None:
        self._address = address
        self._finder = finder
        self._clock = clock
        self._now = clock.now
        self._channels = channels
        self._idle: list[Connection] = []
        self.waiting: dict[str, Ear] = {}
        """By owner: who waits to be told."""
        self._mutex = Lock()
        self._closed = False

    @property
    def address(self) -> Address:
        """Of the server, or of the one that was the primary last."""
        return self._address

    def open(self, deadline: float) -> None:
        now = self._now()
        self._give(self._take(deadline, now), now)

    def call(self, command: bytes, deadline: float) -> Any:
        """The server's answer, which may be an error it answered with. Raises `Lost` without one."""
        now = self._now()
        connection = self._take(deadline, now)
        try:
            reply = connection.call(command, deadline, now)
        except BaseException:
            self._failed(connection)
            raise
        self._give(connection, now)
        return reply

    def release(self, command: bytes, deadline: float) -> Any:
        """As `call`, for a command that may wake others."""
        clock = self._now
        now = clock()
        try:  # `_take`, in short
            connection = self._idle.pop()
        except IndexError:
            connection = self._new(deadline)
        try:
            if now - connection.used >= SUSPECT_AFTER:
                connection = self._trusted(connection, deadline, now)
            if connection.ear is None:
                reply = connection.call(command, deadline, now, SHORT)
            else:  # somebody else wanted what we had, and will again
                data = connection.exchange(PING + command, deadline, now)
                if data == FREED:
                    reply = 1
                else:
                    connection.first(data, deadline)
                    reply = connection.next(deadline)
        except BaseException:
            self._failed(connection)
            raise
        self._give(connection, now)
        return reply

    def batch(self, commands: Sequence[bytes], deadline: float) -> list[Any]:
        """All at once, in one round trip."""
        now = self._now()
        connection = self._take(deadline, now)
        try:
            replies = connection.batch(commands, deadline, now)
        except BaseException:
            self._failed(connection)
            raise
        self._give(connection, now)
        return replies

    def ask(self, ticket: Ticket, command: bytes, owner: bytes, deadline: float) -> Any:
        """Ask for a lock: `command`, the channel where the ticket will be told, `owner`.

        A connection has no channel until it first needs one: who never waits never pays for it. So this
        may answer "not in the queue" for a ticket that is to queue: `enqueue` is for that.

        Where there is one, the answer "in the queue" is waited for together with the wake-up, for a
        moment: one sleep less, and if both have come this answers a grant that was handed over.
        """
        clock = self._now
        now = clock()
        try:  # `_take`, in short
            connection = self._idle.pop()
        except IndexError:
            connection = self._new(deadline)
        try:
            if now - connection.used >= SUSPECT_AFTER:
                connection = self._trusted(connection, deadline, now)
            channel = connection.channel if ticket.queue else NO_CHANNEL
            until = ticket.until
            if channel is NO_CHANNEL or ticket.terms.barge or (until and until - now < PATIENT):
                reply = connection.call(command + channel + owner, deadline, now, SHORT)
            else:
                beginning = connection.told + ticket.owner.encode()
                data = connection.exchange(command + channel + owner, deadline, now, LONG)
                token = handed(data, beginning)
                if token and connection.address is self._address:
                    # `_give`, in short: others wait for the lock by now.
                    connection.used = now
                    self._idle.append(connection)
                    if self._closed:
                        connection.close()
                    return quick_new(Granted, (token, ticket.ttl, True, 0.0))
                reply = connection.first_or_woken(ticket, data, deadline)
                if type(reply) is Granted and connection.address is not self._address:
                    raise Lost(f"the server at {connection.address} may not be the primary now")
        except BaseException:
            self._failed(connection)
            raise
        if type(reply) is not int:
            self._give(connection, now)
        else:
            self._asked(ticket, connection, reply)
        return reply

    def enqueue(self, ticket: Ticket, command: bytes, owner: bytes, deadline: float) -> Any:
        """The same, on a connection that has a channel."""
        now = self._now()
        connection = self._take(deadline, now)
        try:
            self._subscribe(connection, deadline)
            reply = connection.call(command + connection.channel + owner, deadline, now)
        except BaseException:
            self._failed(connection)
            raise
        self._asked(ticket, connection, reply)
        return reply

    def _asked(self, ticket: Ticket, connection: Connection, reply: Any) -> None:
        """Listen on this connection, if that is what was answered."""
        ear = connection.ear
        if type(reply) is int and reply >= 0 and ear is not None:
            if ticket.owner in self.waiting:
                self.forget(ticket.owner)  # it was asked again
            ear.ticket, ear.dropped, ear.rung = ticket, False, False
            self.waiting[ticket.owner] = ear
            ticket.attach(ear)
        else:
            self._give(connection, connection.used)

    def listen(self, ticket: Ticket, until: float | None) -> Granted | None:
        """Until this ticket is told something, or until `until`. With a grant it is forgotten."""
        owner = ticket.owner
        with self._mutex:
            ear = self.waiting.get(owner)
            if ear is not None:
                ear.listening = True
        if ear is None:
            return ticket.wait(self._clock, until)
        grant = None
        try:
            connection = ear.connection
            if not connection.dead:
                grant = connection.listen(ticket, until)
            else:
                self._mend(ear, until)
        finally:
            with self._mutex:
                ear.listening = ear.rung = False
                ended = ear.dropped
                if grant is not None and not ended:
                    ended = True
                    del self.waiting[owner]
            if ended:
                ticket.attach(None)
                self._give(ear.connection, ear.connection.used)
        return grant

    def forget(self, owner: str) -> None:
        """This owner does not wait any more."""
        if owner not in self.waiting:
            return
        with self._mutex:
            ear = self.waiting.pop(owner, None)
            if ear is None:
                return
            ear.dropped = True
            listening = ear.listening
        if listening:
            ear.set()  # it gives the connection back itself
            return
        if ear.ticket is not None:
            ear.ticket.attach(None)
        self._give(ear.connection, self._now())

    def turn_away(self) -> None:
        """This is not the server to talk to: next time a new connection may lead to another."""
        if self._finder is not None:
            self._finder.doubt()
            self._address = self._address._replace()  # those in use now are not kept, see _give
        idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()
        with self._mutex:
            ears = list(self.waiting.values())
        for ear in ears:
            ear.connection.interrupt()  # who waits on it hears again on another

    def close(self) -> None:
        with self._mutex:
            self._closed = True
            idle, self._idle = self._idle, []
            owners = list(self.waiting)
        for owner in owners:
            self.forget(owner)
        for connection in idle:
            connection.close()

    def _take(self, deadline: float, now: float) -> Connection:
        try:
            connection = self._idle.pop()
        except IndexError:
            return self._new(deadline)
        if now - connection.used < SUSPECT_AFTER:
            return connection
        return self._trusted(connection, deadline, now)

    def _trusted(self, connection: Connection, deadline: float, now: float) -> Connection:
        """This one, if its server has not hung up meanwhile; else another."""
        if connection.is_alive():
            return connection
        connection.close()
        return self._take(deadline, now)

    def _new(self, deadline: float) -> Connection:
        if self._closed:
            raise BackendUnavailable(f"this connection to {self._address} is closed")
        if self._finder is None:
            return Connection(self._address, self._clock, deadline)
        return self._found(self._finder, deadline)

    def _found(self, finder: Finder, deadline: float) -> Connection:
        """To wherever the primary is: asked, tried, and asked again while there is time."""
        while True:
            found = finder.find(deadline)
            if found != self._address:
                self._address = found
            try:
                return Connection(self._address, self._clock, min(deadline, self._now() + ATTEMPT))
            except BackendUnavailable:
                finder.doubt()
                if self._closed or self._now() + SHORT_PAUSE >= deadline:
                    raise
                sleep(SHORT_PAUSE)

    def _failed(self, connection: Connection) -> None:
        """It broke, or is overdue. Where the primary may have moved, others to it are as good."""
        connection.close()
        if self._finder is not None:
            self.turn_away()

    def _give(self, connection: Connection, now: float) -> None:
        """Kept for the next caller, with when it was last used."""
        connection.used = now
        idle = self._idle
        if (
            connection.dead
            or connection.address is not self._address
            or (idle and len(idle) >= KEPT_IDLE)
        ):
            connection.close()
            return
        idle.append(connection)
        if self._closed:  # perhaps meanwhile
            connection.close()

    def _subscribe(
        self, connection: Connection, deadline: float, name: bytes = b"", ear: Ear | None = None
    ) -> None:
        if connection.channel != NO_CHANNEL:
            return
        name = name or self._channels + os.urandom(9).hex().encode()
        reply = connection.call(pack(b"SUBSCRIBE", name), deadline, self._now())
        if isinstance(reply, Exception):
            raise BackendUnavailable(
                f"the server at {self._address} does not let us listen on channels: {reply}; a user "
                f"with an access list needs &{self._channels.decode()}*"
            )
        connection.listens_on(name, ear)

    def _mend(self, ear: Ear, until: float | None) -> None:
        """Hear again, on a new connection and the same channel; who comes back has to ask."""
        broken = ear.connection
        broken.close()
        ear.pause = Signal(self._clock)
        while not (ear.dropped or ear.rung):
            now = self._now()
            limit = now + PAUSE if until is None else min(now + PAUSE, until)
            if now >= limit:
                return
            try:
                fresh = self._new(limit)
                try:
                    self._subscribe(fresh, limit, broken.channel_name, ear)
                except BaseException:
                    fresh.close()
                    raise
            except (LockError, OSError):
                ear.pause.wait(limit)
                continue
            ear.connection = fresh
            return
