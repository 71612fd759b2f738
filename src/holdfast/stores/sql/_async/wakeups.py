"""The waking of waiters and observers: by messages of the database if it sends them, else by looking.

One connection listens for all of a manager; also for its holders, who are told of a forced release: it
is opened a moment after the first grant, so that short programs do without it. Whether messages come
through is tried when it is opened and from time to time, because a pooler, or a peer that vanished, may
swallow them: then the waiters and observers are looked after by one query for all of them, often at
first and less often after a while. Either way it is the heartbeats that correctness rests on.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from secrets import token_hex
from threading import RLock
from typing import Any, Protocol

from ...._runtime.aio import Poller, Routine, Signal, Turn, Worker
from ....clock import Clock
from ....errors import LockError
from ....interrupts import let_through
from ....model import Granted
from ..._async.contract import Ticket
from ..failures import Again, Lost
from ..store import SqlStore
from ..unheard import Unheard

FIRST_LOOK, SLOWER, LAST_LOOK = 0.01, 1.3, 0.25
"""Seconds between two looks, after something has changed and after a while; and how they grow apart."""
RECALLED = "-1"
"""The token in a message about a lease that was ended by force."""
PROBE_LIMIT = 1.0
"""Seconds in which a message to ourselves has to come through."""
PROBE_EVERY = 10.0
"""Seconds between two such messages, while anybody waits."""
LISTEN_AGAIN = 30.0
"""Seconds after which listening is tried again where it did not work."""
LOOK_LIMIT = 5.0
STAND_BY = 0.25
"""Seconds after the first grant, and after a waiter came, until messages are read for holders."""


class Listening(Protocol):
    """A connection that listens on a channel."""

    def fileno(self) -> int: ...
    def notes(self) -> list[tuple[str, str]]: ...
    def close(self) -> None: ...


class Listener(Protocol):
    """A database that sends messages to connections that listen."""

    def listen(self, channel: str, deadline: float) -> Listening: ...
    def hears(self, listening: Any, channel: str, text: str, deadline: float) -> bool: ...


class Wakeups:
    """The waiters of one manager, and what wakes them."""

    def __init__(
        self,
        store: SqlStore,
        listener: Listener | None,
        worker: Worker,
        poller: Poller,
        clock: Clock,
    ) -> None:
        self._store = store
        self._listener = listener
        self._worker = worker
        self._poller = poller
        self._clock = clock
        self._mutex = RLock()
        self._preparing = Turn()
        self.tickets: dict[str, Ticket] = {}
        """The waiting attempts, by owner."""
        self._unheard = Unheard()
        """The owners to which the database sends no messages: they are looked after (with `_mutex`)."""
        self._channel = f"holdfast_{token_hex(8)}"
        self._listening: Listening | None = None
        self._watched = -1
        self._listen_at = 0.0
        """When listening is to be tried, where it does not work."""
        self._probe_at = 0.0
        self._probed = self._heard = 0
        """The numbers of the last message to ourselves, and of the last that came through."""
        self._looking: Routine | None = None
        self._changed = Signal(clock)
        self._pause = FIRST_LOOK
        self.recall: Callable[[Iterable[str]], None] = lambda owners: None
        """The function to call with owners whose leases were ended by force."""
        self._observing: set[str] = set()
        """The owners of `tickets` that observe, and do not wait for a grant."""
        self._unlistened: set[str] = set()
        """The holders that were granted their locks before anybody listened for them."""
        self._standing_by: Routine | None = None
        self._turn = Signal(clock)
        """Set when a waiter takes over from the routine that stands by, or all ends."""
        self._reading = False
        """Whether that routine reads messages."""
        self._closed = False

    @property
    def channel(self) -> str:
        """The channel on which a waiter is woken; empty if it is looked after."""
        return self._channel if self._listening is not None else ""

    @property
    def home(self) -> str:
        """The channel on which a new holder or waiter is told; nobody may listen there yet."""
        untried = self._listener is not None and self._listen_at == 0.0
        return self._channel if untried else self.channel

    @property
    def ready(self) -> bool:
        """Whether it is known in which way waiters are woken."""
        return self._listening is not None or self._clock.now() < self._listen_at

    async def prepare(self, deadline: float) -> None:
        """Listens, if that works; else waiters are looked after."""
        try:
            if await self._preparing.take(deadline - self._clock.now()) and not self.ready:
                await self._prepare(deadline)
        finally:
            self._preparing.end()

    async def _prepare(self, deadline: float) -> None:
        if self._listener is None:
            self._listen_at = float("inf")
            return
        listening = await self._worker.call(self._listen, deadline)
        self._listen_at = self._clock.now() + LISTEN_AGAIN
        if listening is None:
            return
        with self._mutex:
            if self._closed or self._listening is not None:  # a signal's handler may have come here
                listening.close()
                return
            try:
                self._watched = os.dup(listening.fileno())
            except OSError as error:  # there is no descriptor left
                listening.close()
                let_through(error)
                return
            self._probed = self._heard = 0
            self._probe_at = self._clock.now() + PROBE_EVERY
            self._listening = listening
            self._poller.watch(self._watched, self._hear)

    def granted(self, owner: str) -> None:
        """Sees to it that a new holder is told of a forced release, if the database sends messages."""
        if self._listening is not None or self._listener is None:
            return
        if not self.ready:
            self._unlistened.add(owner)
            with self._mutex:
                if self._standing_by is None and not self._closed:
                    self._standing_by = Routine(self._stand_by, "holdfast-listening")

    def observe(self, ticket: Ticket) -> None:
        """Takes up an observer."""
        self._observing.add(ticket.owner)
        self.add(ticket)

    def add(self, ticket: Ticket) -> None:
        """Takes up a waiter."""
        self.tickets[ticket.owner] = ticket
        if self._reading:
            self._reading = False
            self._turn.set()
        if self._listening is None:
            self._look_after([ticket])

    def drop(self, owner: str) -> None:
        """Forgets a waiter, an observer or a holder."""
        self.tickets.pop(owner, None)
        with self._mutex:
            self._unheard.discard(owner)
        self._observing.discard(owner)
        self._unlistened.discard(owner)

    async def check(self, channel: str, owners: Iterable[str], deadline: float) -> None:
        """Sees to it that messages still come through. Called when a heartbeat has told the database
        that `owners` are woken on `channel`."""
        now = self._clock.now()
        if channel:
            with self._mutex:
                # Nobody may listen any more since that was sent.
                for owner in owners if self._listening is not None else ():
                    self._unheard.discard(owner)
        if self._listener is None:
            return
        if self._listening is None:
            if now >= self._listen_at:
                await self.prepare(deadline)
        elif self._probed > self._heard and now >= self._probe_at - PROBE_EVERY + PROBE_LIMIT:
            self._deafen()
        elif now >= self._probe_at:
            self._probe_at = now + PROBE_EVERY
            self._probed += 1
            await self._worker.call(self._probe, str(self._probed), deadline)

    def close(self) -> None:
        """Ends listening and looking."""
        with self._mutex:
            self._closed = True
            self._stop_listening()
        self.tickets.clear()
        self._changed.set()
        self._turn.set()

    # Listening.

    def _listen(self, deadline: float) -> Listening | None:
        """Returns a connection on which messages come through; None if there is no such."""
        assert self._listener is not None
        until = min(deadline, self._clock.now() + PROBE_LIMIT)
        listening: Listening | None = None
        try:
            listening = self._listener.listen(self._channel, until)
            self._store.call("wake", [self._channel, "0"], until)
            if self._listener.hears(listening, self._channel, "0", until):
                heard, listening = listening, None
                return heard
        except (LockError, Lost, Again):
            return None
        finally:
            if listening is not None:
                listening.close()
        return None

    async def _stand_by(self) -> None:
        """Reads messages while nobody waits: those who wait do it themselves."""
        listened = False
        until = self._clock.now() + STAND_BY
        while True:
            await self._turn.wait(until)
            if not self._closed:
                with suppress(LockError):
                    await self._listen_for_holders(self._clock.now() + LOOK_LIMIT)
            with self._mutex:
                if self._closed or (self._listening is None and not listened):
                    self._standing_by = None
                    self._unlistened.clear()
                    return
            until = self._clock.now() + STAND_BY
            listened = self._listening is not None
            if listened:
                self._reading = True
                if not self.tickets:
                    await self._poller.attend(self._turn, None)
                self._reading = False
            else:
                until = self._listen_at

    async def _listen_for_holders(self, deadline: float) -> None:
        """Listens, and finds the leases that were ended by force before."""
        if not self.ready:
            await self.prepare(deadline)
        if self._listening is not None and self._unlistened:
            owners, self._unlistened = self._unlistened, set()
            held = await self._worker.call(self._store.look, list(owners), deadline)
            self.recall([owner for owner in owners if owner not in held])

    def _hear(self) -> None:
        """Reads messages, and passes them on. Called by the poller."""
        listening = self._listening
        if listening is None:
            return
        try:
            notes = listening.notes()
        except Lost:
            self._deafen()
            return
        for channel, text in notes:
            owner, _, number = text.partition(" ")
            if channel == self._channel and number == RECALLED:
                self.recall([owner])
            elif channel == self._channel and number:
                self._tell(owner, int(number))
            elif channel == self._channel:
                self._heard = max(self._heard, int(owner))

    def _probe(self, text: str, deadline: float) -> None:
        try:
            until = min(deadline, self._clock.now() + PROBE_LIMIT)
            self._store.call("wake", [self._channel, text], until)
        except LockError:
            return  # nothing comes through, which is noticed

    def _deafen(self) -> None:
        """Gives up a connection that brings no messages: waiters are looked after from now on."""
        with self._mutex:
            self._stop_listening()
        if not self._closed:
            self._listen_at = self._clock.now() + LISTEN_AGAIN
            self._turn.set()
            self._look_after(list(self.tickets.values()))
            for ticket in list(self.tickets.values()):
                ticket.tell()

    def _stop_listening(self) -> None:
        listening, self._listening = self._listening, None
        if listening is not None:
            self._poller.unwatch(self._watched)
            listening.close()

    # Looking.

    def _look_after(self, tickets: Iterable[Ticket]) -> None:
        with self._mutex:
            for ticket in tickets:
                observes = ticket.owner in self._observing
                self._unheard.add(ticket.owner, ticket.name, observes)
            self._pause = FIRST_LOOK
            if self._unheard and self._looking is None and not self._closed:
                self._looking = Routine(self._look, "holdfast-looking")
        self._changed.set()

    async def _look(self) -> None:
        """Looks for grants, as long as anybody needs that."""
        while True:
            await self._changed.wait(self._clock.now() + self._pause)
            with self._mutex:
                owners = self._unheard.first()
                if self._closed or not owners:
                    self._looking = None
                    return
            self._pause = min(self._pause * SLOWER, LAST_LOOK)
            try:
                found = await self._worker.call(
                    self._store.look, owners, self._clock.now() + LOOK_LIMIT
                )
            except LockError:
                continue  # the heartbeats will tell
            for owner, token in found.items():
                self._pause = FIRST_LOOK
                self._tell(owner, token)

    def _tell(self, owner: str, token: int) -> None:
        ticket = self.tickets.get(owner)
        if ticket is None:
            return
        if token:
            self.drop(owner)
        elif owner in self._observing:
            with self._mutex:
                self._unheard.discard(owner)  # until it asks what has changed
        ticket.tell(Granted(token, ticket.ttl, True) if token else None)
