"""Bells: wake-ups for those who wait in a queue without a held request, and listen to `/v1/wakeups`.

A ticket that was put into a queue, or that observes an election, is kept here so that the backend can
wake it; what it is told is passed on to whoever listens for its session. It is soft: a client whose
service is gone, or that renews through another one, misses a hint and no more.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from .._runtime.aio import Routine
from ..entries import MISSED_HEARTBEATS, Claim
from ..errors import LockError
from ..model import SESSION_ID, UNKNOWN, Granted, Outcome, Unknown, Waiting
from ..stores._async.contract import Ticket

if TYPE_CHECKING:
    from .store import Store

Wakeup = dict[str, Any]

UNHEARD = 60.0
"""Seconds after which it is looked whether a ticket of which nothing was heard still waits."""
UNKEPT = 0.001
"""The TTL in a renewal that only asks: it shortens nothing, and keeps nothing."""
MOST = 100_000
"""Tickets that are kept. The oldest go first: they miss their wake-ups, and nothing else."""
MOST_PLACED, MOST_LOCKS = 100_000, 100
"""Owners whose id alone does not say who listens for them, and of whom that is remembered; and of how
many locks for each."""
BATCH = 128
MOST_PENDING = 1000
"""Wake-ups for a listener that does not read; then it is told to ask about everything."""


def place_of(key: str, owner: str, session: str | None = None) -> str:
    """Returns where a client listens for `owner`: a session that only callers of one key share.

    `session` is given where the owner id does not begin with it.
    """
    return f"{key}/{owner[:SESSION_ID] if session is None else session}"


def key_in(place: str) -> str:
    """Returns the key of the callers who listen at a place."""
    return place.partition("/")[0]


class Bell:
    """A ticket, and the task that waits for what the backend tells it."""

    __slots__ = ("_bells", "_task", "heard", "owner", "place", "ticket")

    def __init__(self, bells: Bells, ticket: Ticket, owner: str, place: str, heard: float) -> None:
        self._bells = bells
        self.ticket = ticket
        self.owner = owner
        """The id by which its client knows it; the ticket of an observer has another."""
        self.place = place
        """Where those listen who are told."""
        self.heard = heard
        """When its client was last heard of."""
        self._task = asyncio.create_task(self._wait())

    async def _wait(self) -> None:
        while True:
            grant = await self._bells.wait(self.ticket)
            self._bells.tell(self.ticket.owner, grant)

    def take_down(self) -> None:
        self._task.cancel()


class Listener:
    """One who listens to the wake-ups of a session."""

    def __init__(self, place: str, signal: asyncio.Event) -> None:
        self.place = place
        self.pending: list[Wakeup] = []
        self.overflowed = False
        """Whether there was more than it could be told."""
        self._signal = signal

    def put(self, wakeup: Wakeup) -> None:
        if len(self.pending) < MOST_PENDING:
            self.pending.append(wakeup)
        else:
            self.overflowed = True
        self._signal.set()


class Bells:
    """The tickets of one namespace that somebody may listen for."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._bells: OrderedDict[str, Bell] = OrderedDict()
        """By the owner of the ticket; the one that was heard of least lately comes first."""
        self._listeners: dict[str, list[Listener]] = {}
        self._places: dict[str, dict[str, str]] = {}
        """The places of owners by lock, where the owner id alone does not tell."""
        self._counts: Counter[str] = Counter()
        """How many bells each caller has, by its key."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._sweep: Routine | None = None

    def __len__(self) -> int:
        return len(self._bells)

    @property
    def idle(self) -> bool:
        """Whether there is no ticket, and nobody listens."""
        return not self._bells and not self._listeners

    def count(self, key: str) -> int:
        """Returns the number of tickets that the caller of this key has here."""
        return self._counts[key]

    def close(self) -> None:
        """Takes all bells down."""
        for bell in list(self._bells.values()):
            self.take_down(bell.ticket.name, bell.ticket.owner)

    def share_listeners(self, bells: Bells) -> None:
        """Tells what happens here to those who listen to `bells`, too."""
        self._listeners = bells._listeners

    def hang(self, ticket: Ticket, place: str, observer: str | None = None) -> None:
        """Passes on what this ticket is told to those who listen at `place`, until its wait is over.

        `observer`: the id by which the client of a ticket that observes knows it.
        """
        self._loop = asyncio.get_running_loop()
        if observer is None:
            self.remember(ticket.name, ticket.owner, place)
        self.take_down(ticket.name, ticket.owner)
        now = self._store.now()
        self._bells[ticket.owner] = Bell(self, ticket, observer or ticket.owner, place, now)
        self._counts[key_in(place)] += 1
        if len(self._bells) > MOST:
            oldest = next(iter(self._bells.values())).ticket
            self.take_down(oldest.name, oldest.owner)
        if self._sweep is None:
            self._sweep = Routine(self._run, "holdfast-serve-bells")

    def remember(self, name: str, owner: str, place: str, anew: bool = True) -> None:
        """Remembers where those listen who are told of `owner`: its client was granted that lock.

        Not `anew`: unless that is known.
        """
        places = self._places.get(owner)
        if places is not None:
            if not anew and name in places:
                return
            del self._places[owner]
            places.pop(name, None)
        if place != place_of("", owner):
            places = places or {}
            places[name] = place
            if len(places) > MOST_LOCKS:
                del places[next(iter(places))]
        if places:
            self._places[owner] = places
            if len(self._places) > MOST_PLACED:
                del self._places[next(iter(self._places))]

    def name_of(self, owner: str) -> str | None:
        """Returns the lock that this owner waits for, or observes; None if it is not known here."""
        bell = self._bells.get(owner)
        return None if bell is None else bell.ticket.name

    def ticket_of(self, name: str, owner: str) -> Ticket | None:
        """Returns the ticket of an owner that is known here."""
        bell = self._bells.get(owner)
        return bell.ticket if bell is not None and bell.ticket.name == name else None

    def note(self, name: str, owner: str, outcome: Outcome) -> None:
        """Notes what was answered to the renewal of an owner."""
        bell = self._bells.get(owner)
        if bell is None or bell.ticket.name != name or isinstance(outcome, Unknown):
            return
        if isinstance(outcome, Waiting):
            bell.heard = self._store.now()
            self._bells.move_to_end(owner)
        else:
            self.take_down(name, owner)

    def take_down(self, name: str, owner: str) -> None:
        """Passes on nothing more of what this owner waits for."""
        bell = self._bells.get(owner)
        if bell is not None and bell.ticket.name == name:
            del self._bells[owner]
            bell.take_down()
            key = key_in(bell.place)
            self._counts[key] -= 1
            if not self._counts[key]:
                del self._counts[key]

    async def wait(self, ticket: Ticket) -> Granted | None:
        """Waits until the backend tells `ticket` something."""
        return await self._store.backend.wait(ticket, None)

    def ring(self, owner: str) -> None:
        """Tells whoever listens that this owner should ask. From any thread."""
        if self._loop is not None and self._listeners:
            try:
                self._loop.call_soon_threadsafe(self.tell, owner)
            except RuntimeError:
                return  # the loop is closed

    def tell(self, owner: str, grant: Granted | None = None) -> None:
        """Tells the listeners of this owner's session; with the grant, if it has one."""
        bell = self._bells.get(owner)
        if bell is not None:
            places: Iterable[str] = (bell.place,)
        else:
            places = self._places.get(owner, {}).values() or (place_of("", owner),)
        listeners = [one for place in places for one in self._listeners.get(place, ())]
        if not listeners:
            return
        wakeup: Wakeup = {"owner": owner if bell is None else bell.owner}
        if bell is not None:
            wakeup["name"] = bell.ticket.name
            if grant is not None:
                wakeup |= {"state": "held", "handed": True, "token": grant.token, "ttl": grant.ttl}
                if grant.slot is not None:
                    wakeup["slot"] = grant.slot
        for listener in listeners:
            listener.put(wakeup)

    def listen(self, place: str, signal: asyncio.Event) -> Listener:
        """Returns a listener at `place`; `signal` is set when there is a wake-up."""
        self._loop = asyncio.get_running_loop()
        listener = Listener(place, signal)
        self._listeners.setdefault(place, []).append(listener)
        return listener

    def leave(self, listener: Listener) -> None:
        """Ends what `listen` began."""
        listeners = self._listeners.get(listener.place, [])
        if listener in listeners:
            listeners.remove(listener)
        if not listeners:
            self._listeners.pop(listener.place, None)

    async def _run(self) -> None:
        """Looks after tickets of which nothing was heard for long: their client may be gone.

        It renews through another service, perhaps; so they are asked about. One that holds its lock by
        now, or is gone, is not kept. One whose place no other service can renew leaves its queue.
        """
        while self._bells:
            await asyncio.sleep(UNHEARD / 4)
            store = self._store
            # By then a place that nobody renews is gone, and is not to be kept by our asking.
            silence = max(UNHEARD, MISSED_HEARTBEATS * store.backend.heartbeat)
            now = store.now()
            unheard: list[Ticket] = []
            for bell in self._bells.values():
                if bell.heard + silence > now or len(unheard) >= BATCH:
                    break
                unheard.append(bell.ticket)
            if not unheard:
                continue
            claims = [Claim(one.name, one.owner, UNKEPT) for one in unheard]
            try:
                outcomes = await store.renew(claims)
            except LockError:
                outcomes = [UNKNOWN] * len(claims)
            for ticket, outcome in zip(unheard, outcomes, strict=True):
                if isinstance(outcome, Waiting) and store.lanes.bound:
                    self.take_down(ticket.name, ticket.owner)
                    await store.clean_up(ticket)
                else:
                    self.note(ticket.name, ticket.owner, outcome)
        self._sweep = None
