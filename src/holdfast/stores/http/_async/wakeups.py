"""Wake-ups: one stream for all waiters and holders of a manager, opened again when it breaks.

They are hints. While there is no stream, heartbeats find out; once there is one again, whoever waits is
told to ask.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from contextlib import suppress
from threading import RLock
from weakref import WeakValueDictionary

from ...._runtime.aio import Routine, Signal
from ....clock import Clock
from ....model import SESSION_ID
from ..._async.contract import Ticket
from ...redis.owners import OwnerSet
from .. import codec
from ..wire.aio import Stream, Wire
from ..wire.failures import Failure

START_PAUSE = 0.1
"""Seconds after the first grant: a program that is done by then never opens the stream."""
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 5.0
"""Seconds between attempts to open the stream, while the service is gone."""
JOIN_LIMIT = 0.5
"""Seconds for which `close` waits for the routine, which may be connecting."""


class Wakeups:
    """The stream of one manager, and those who are told by it."""

    def __init__(self, wire: Wire, clock: Clock, query: str) -> None:
        self._wire = wire
        self._clock = clock
        self._query = query
        self.session = ""
        """The characters that the owner ids of this manager begin with, once one is known."""
        self.look: Callable[[Iterable[str]], None] = lambda owners: None
        self._tickets: WeakValueDictionary[str, Ticket] = WeakValueDictionary()
        """Those who wait for a lock or observe an election, by owner."""
        self._unheard = OwnerSet()
        """Owners that were granted a lock while there was no stream."""
        self.is_open = False
        self._stream: Stream | None = None
        self._hurry = Signal(clock)
        self._routine: Routine | None = None
        self._mutex = RLock()  # the handler of a signal may call `close`
        self._closed = False

    def session_for(self, owner: str) -> str | None:
        """Returns the session to tell wake-ups of `owner` to, where its owner id does not say it."""
        if not self.session:
            self.session = owner[:SESSION_ID]
        return None if owner.startswith(self.session) else self.session

    def expect(self, ticket: Ticket) -> None:
        """Tells `ticket` what the service says of it, from now on."""
        self._tickets[ticket.owner] = ticket

    def listen(self) -> None:
        """Opens the stream now, if there is none: somebody waits."""
        if not self.is_open:
            self._start()
            self._hurry.set()

    def forget(self, owner: str) -> None:
        """Tells nothing more to the ticket of `owner`."""
        self._tickets.pop(owner, None)

    def attend(self, owner: str) -> None:
        """Has it looked at `owner`, who was just granted a lock, when the service says so."""
        if not self.is_open:
            self._unheard.add(owner)
            self._start()
            if self.is_open:  # meanwhile
                self._tell_unheard()

    def ticket_of(self, owner: str) -> Ticket | None:
        """Returns the ticket of an owner that waits."""
        return self._tickets.get(owner)

    async def close(self) -> None:
        self._closed = True
        self._hurry.set()
        for ticket in list(self._tickets.values()):
            ticket.tell()
        with self._mutex:
            stream, routine = self._stream, self._routine
        if stream is not None:
            stream.close()
        if routine is not None:
            await routine.join(JOIN_LIMIT)

    def _start(self) -> None:
        with self._mutex:
            if self._routine is None and not self._closed:
                with suppress(RuntimeError):  # no thread is to be had now, as when Python is ending
                    self._routine = Routine(self._run, "holdfast-wakeups")

    # The routine.

    async def _run(self) -> None:
        await self._hurry.wait(self._clock.now() + START_PAUSE)
        pause = FIRST_PAUSE
        while not self._closed:
            began = self._clock.now()
            try:
                await self._listen()
            except Failure as failure:
                if failure.unreachable:
                    self._wire.turn_from(failure.endpoint)
            finally:
                was_open, self.is_open = self.is_open, False
            if was_open:
                pause = FIRST_PAUSE
                self._tell_waiting()
            if not self._closed:
                await Signal(self._clock).wait(max(began, self._clock.now()) + pause)
                pause = min(2 * pause, LONGEST_PAUSE)

    async def _listen(self) -> None:
        """Serves one stream, until it ends."""
        path = f"/v1/wakeups{self._query}&session={self.session}"
        with self._mutex:
            if self._closed:
                return
            stream = self._stream = self._wire.stream(path, self._opened, self._heard)
        try:
            await stream.run()
        finally:
            self._stream = None

    def _opened(self) -> None:
        self.is_open = True
        self._tell_unheard()
        self._tell_waiting()  # they may have been woken before

    def _heard(self, event: str, text: bytes) -> None:
        if event not in ("wakeup", ""):
            if event == "reset":
                self._tell_waiting()
            return
        try:
            data = codec.object_of(json.loads(text))
            owner = str(data["owner"])
            ticket = self._tickets.get(owner)
            if ticket is None:
                self.look([owner])
            elif data.get("handed") is True:
                # Not of an age: the waiter counts from its last heartbeat.
                grant = codec.granted({**data, "age": 0}, ticket.name, owner, 0.0)
                ticket.tell(grant)
            else:
                ticket.tell()
        except (ValueError, KeyError, RecursionError):
            self._tell_waiting()  # whatever it was, it was for one of them

    def _tell_unheard(self) -> None:
        """Has it looked at owners whose forced release may have been told before we listened."""
        owners = list(self._unheard)
        for owner in owners:
            self._unheard.discard(owner)
        if owners:
            self.look(owners)

    def _tell_waiting(self) -> None:
        for ticket in list(self._tickets.values()):
            ticket.tell()
