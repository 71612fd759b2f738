"""A store: one namespace of the operator's store, as the service uses it.

It is opened on first use, by the same code as a manager of the library, and has no keeper: leases
belong to the callers of the service.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from time import monotonic
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from .. import aio
from .._async.session import Session
from ..entries import Claim
from ..errors import LockError
from ..events import Event
from ..model import Label, LockState, Outcome
from ..stores._async.contract import Backend, Terms, Ticket
from .bells import Bells
from .given_up import GivenUp
from .heartbeats import Heartbeats
from .hooks import Hooks
from .lanes import Lanes
from .listing import Listing
from .waiting import Waits

Result = TypeVar("Result")

LEAST_PATIENCE = 0.25
"""Seconds that a call has at the least, when opening the store has taken the time there was."""


MOST_TERMS = 1000
"""Terms that are kept for the next request which asks for the same."""
MOST_RECALLED = 10_000
FORCED_FOR = 30.0
"""Seconds for which a forced release is remembered."""


class Store:
    """One namespace, and those who wait in it through this process."""

    def __init__(
        self,
        url: str | None,
        namespace: str,
        options: dict[str, Any],
        patience: float,
        hooks: Hooks,
        another: Callable[[], Store],
    ) -> None:
        """`another` makes one for the same namespace, with a backend of its own."""
        self.namespace = namespace
        self.patience = patience
        self.hooks = hooks
        self.locks = aio.connect(url, namespace=namespace, label="holdfast serve", **options)
        self.guarantees = self.locks.guarantees
        self.realm = self.locks._opening.realm
        """The place where the tokens of its locks are counted."""
        self.heartbeats = Heartbeats(self)
        self.bells = Bells(self)
        self.waits = Waits(self)
        self.uses: dict[str, tuple[str, int]] = {}
        """By the owner of requests under way: their lock, and how many there are."""
        self.lanes = Lanes(self, another)
        self.used_at = 0.0
        """When a client with a timing of its own last used it."""
        self.taker = ""
        """The key of the caller who was the first to want this timing."""
        self.given_up = GivenUp()
        self.turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """By the owner of a request for several locks: requests that repeat it come after it."""
        self.listing = Listing(self)
        self.observers: set[Ticket] = set()
        """The held requests for changes of elections."""
        self.forced: dict[str, float] = {}
        """The locks that were taken away by force lately, through this process, and when."""
        self.recalled: dict[str, float] = {}
        """The owners of whom the store had news lately: a forced release through another process."""
        self._terms: dict[tuple[Any, ...], Terms] = {}
        self._session: Session | None = None

    def open_session(self) -> Session | None:
        """Returns the session with the store, if there is one that is open."""
        session = self._session
        return None if session is None or session.closed else session

    async def session(self) -> Session:
        """Returns the session with the store; opens it if there is none."""
        session = self._session
        if session is None or session.closed:
            session = self._session = await self.locks._opening.session(self.patience)
            self._terms.clear()
            if hasattr(session.backend, "look"):
                session.backend.look = self._look
            session.backend = self.hooks.wrap(session.backend)
        return session

    @property
    def backend(self) -> Backend:
        """The backend, of a store that was opened."""
        assert self._session is not None
        return self._session.backend

    def now(self) -> float:
        """Returns the time on the clock of a store that was opened."""
        assert self._session is not None
        return self._session.now()

    def wall(self) -> float:
        """Returns the time in seconds since the epoch, by the clock of a store that was opened."""
        assert self._session is not None
        return self._session.clock.wall()

    def ask(self, question: Callable[[Backend, float], Awaitable[Result]]) -> Awaitable[Result]:
        """Returns the store's answer to `question`, which is given a deadline."""
        session = self.open_session()
        if session is None:
            return self._open_and_ask(question)
        return question(session.backend, session.now() + self.patience)

    async def _open_and_ask(
        self, question: Callable[[Backend, float], Awaitable[Result]]
    ) -> Result:
        began = monotonic()
        session = await self.session()
        limit = max(self.patience - (monotonic() - began), LEAST_PATIENCE)
        return await question(session.backend, session.now() + limit)

    # The verbs that several parts of the service use.

    def renew(self, claims: Sequence[Claim]) -> Awaitable[Sequence[Outcome]]:
        return self.ask(lambda backend, deadline: backend.renew(claims, deadline))

    def release(self, name: str, owner: str) -> Awaitable[bool]:
        return self.ask(lambda backend, deadline: backend.release(name, owner, deadline))

    async def give_up(self, name: str, owner: str) -> None:
        """Refuses requests of an owner that arrive later: here, and at the store if it can do that."""
        await self.session()
        self.refuse(name, owner)

    def refuse(self, name: str, owner: str) -> None:
        """Does as `give_up`, at a store that was opened; the next release of this owner tells it."""
        self.given_up.add(name, owner)
        doubt = getattr(self.backend, "doubt", None)
        if doubt is not None:
            doubt(owner)

    def inspect(self, name: str) -> Awaitable[LockState]:
        return self.ask(lambda backend, deadline: backend.inspect(name, deadline))

    def list(self, prefix: str) -> Awaitable[Sequence[LockState]]:
        return self.ask(lambda backend, deadline: backend.list(prefix, deadline))

    async def clean_up(self, ticket: Ticket) -> None:
        """Leaves nothing of an attempt on the store: at once, or in the background."""
        session = await self.session()
        await session.clean_up(ticket)
        if session.pending_releases:
            # What is released later must not be what a repeated request is granted meanwhile.
            self.given_up.add(ticket.name, ticket.owner)

    def terms(self, values: dict[str, Any], name: str, client: str) -> Terms:
        """Returns the terms that the values of a request stand for: the same object for the same ones.

        A backend keeps with it what it has made of them.
        """
        key = (
            name,
            client,
            values["ttl"],
            values["label"],
            values["weight"],
            values["capacity"],
            values["kind"],
            values["fair"] is False,
            values["renew"],
            values["delay"],
        )
        terms = self._terms.get(key)
        if terms is None:
            if len(self._terms) >= MOST_TERMS:
                self._terms.clear()
            label = values["label"]
            if not isinstance(label, Label):
                label = Label(client, 0, label or "")
            terms = self._terms[key] = Terms(name, values["ttl"], label, *key[4:], bound=False)
        return terms

    def tell(
        self, kind: str, name: str, owner: str, token: int, duration: float, detail: str = ""
    ) -> None:
        """Tells the listeners what happened to a lease."""
        if self.hooks.events:
            wall = self._session.clock.wall() if self._session is not None else 0.0
            self.hooks.events.tell(Event(kind, name, owner, token, duration, wall, detail))

    def stop(self) -> None:
        """Ends all held requests."""
        self.waits.stop()
        for ticket in list(self.observers):
            ticket.tell()

    def note_forced(self, name: str) -> None:
        """Notes that a lock was taken away by force, for those who listen to events."""
        now = self.now()
        self.forced = {one: at for one, at in self.forced.items() if at + FORCED_FOR > now}
        self.forced[name] = now

    def _look(self, owners: Iterable[str]) -> None:
        """Asks about owners of whom the backend has news. From any thread."""
        now = self.now()
        if len(self.recalled) > MOST_RECALLED:
            self.recalled = {}
        for owner in list(owners):
            self.recalled[owner] = now
            self.heartbeats.hurry(owner)
            self.bells.ring(owner)

    # Beside others of the same namespace.

    def stand_beside(self, first: Store) -> None:
        """Becomes a lane of `first`."""
        self.lanes = first.lanes
        self.given_up = first.given_up
        self.bells.share_listeners(first.bells)

    def name_of(self, owner: str) -> str | None:
        """Returns the lock that this owner id is in use for here; None if it is not."""
        used = self.uses.get(owner)
        return self.bells.name_of(owner) if used is None else used[0]

    @property
    def idle(self) -> bool:
        """Whether nothing is under way here, and nobody is to be woken."""
        return not self.uses and not self.observers and self.bells.idle

    async def close(self) -> None:
        self.heartbeats.close()
        self.bells.close()
        with suppress(LockError):
            await self.locks.close()
