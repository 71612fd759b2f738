"""One attempt at a lock as this manager knows it."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import TYPE_CHECKING

from ..._async.contract import Terms
from ..keys import GRANTED, WAITING, Standing, in_value
from .queue import Line, Slot

if TYPE_CHECKING:
    from ..._async.contract import Ticket
    from .leases import Lease
    from .watches import Watch

NOT_RUNG: tuple[int, Sequence[bytes]] = 0, ()


class Attempt:
    __slots__ = (
        "answered",
        "asked_ttl",
        "behind",
        "blocker",
        "burned",
        "changed",
        "created",
        "doubtful",
        "lease",
        "leaving",
        "line",
        "looked",
        "owed",
        "owner",
        "rung",
        "since",
        "slot",
        "terms",
        "ticket",
        "token",
        "until",
    )

    slot: Slot
    """Where its key is. Set at once by whoever makes an attempt."""

    def __init__(self, terms: Terms, owner: str, line: Line, ticket: Ticket | None = None) -> None:
        self.terms = terms
        self.owner = owner
        self.line = line
        self.ticket = ticket
        self.asked_ttl = terms.ttl
        self.created = 0
        """The revision that created its key; 0 until that is known."""
        self.changed = 0
        self.token = 0
        """0 while it waits."""
        self.since = 0.0
        self.answered = 0.0
        """When we learned that it is held."""
        self.lease: Lease | None = None
        self.until = inf
        """When what was last answered about it is over, on our own clock."""
        self.doubtful = False
        """A request that creates its key ended without an answer: it may still arrive."""
        self.burned = False
        """An unconditional deletion of its key may still arrive: nobody else may have that key."""
        self.owed = False
        """It was given up, and the store has not been told."""
        self.leaving = False
        """Somebody is just about to tell it."""
        self.behind: Sequence[bytes] = ()
        """Who stood behind it when it was granted the lock, as the bell said."""
        self.rung = NOT_RUNG
        """At which revision the bell rang for it, and who stood behind, until that is made use of."""
        self.blocker: Watch | None = None
        """Of what it waits for."""
        self.looked = 0.0
        """When the line was last looked at for it."""

    @property
    def name(self) -> str:
        return self.terms.name

    @property
    def kind(self) -> str:
        return self.terms.kind

    @property
    def capacity(self) -> int:
        return self.terms.capacity

    @property
    def key(self) -> bytes:
        return self.slot.key

    @property
    def shape(self) -> str:
        return f"{self.kind}.{self.capacity}"

    @property
    def may_be_there(self) -> bool:
        """Whether the store may have a key of it."""
        return self.created > 0 or self.doubtful

    def doubt(self) -> None:
        self.doubtful = True

    def burn(self) -> None:
        self.burned = True

    def held_from(self, token: int, revision: int) -> None:
        """It was made the holder, by a write of that revision."""
        # In this order: who is about to take the lock for it, in another thread, must not put its
        # write on top of this one, and looks at them the other way round.
        self.token = token
        self.changed = revision

    def entry(self, granted: bool, wall: float, token: int = 0) -> bytes:
        if granted == (self.token == 0):
            self.since = wall
        since = f"{self.since or wall:.3f}"
        return self.entry_of(self.owner, GRANTED if granted else WAITING, since, token)

    def entry_of(self, owner: str, state: str, since: str, token: int = 0) -> bytes:
        terms = self.terms
        return in_value(state, owner, terms.weight, self.asked_ttl, since, token, terms.label)

    def is_at(self, standing: Standing) -> bool:
        """Whether this entry in line is the one of this attempt."""
        return standing.kv.key == self.key and standing.entry.owner == self.owner

    def matches(self, ticket: Ticket) -> bool:
        mine, asked = self.terms, ticket.terms
        return mine is asked or (
            (mine.weight, mine.capacity, mine.kind) == (asked.weight, asked.capacity, asked.kind)
        )

    @classmethod
    def found(cls, standing: Standing, line: Line, token_base: int) -> Attempt:
        """One that another manager made."""
        kv, entry, name, kind, capacity = standing
        terms = Terms(name, entry.ttl, entry.label, entry.weight, capacity, kind)
        attempt = cls(terms, entry.owner, line)
        attempt.slot = Slot(kv.key, line.look)
        attempt.since = entry.since
        attempt.created = kv.created
        attempt.changed = kv.changed
        attempt.token = standing.token(token_base)
        return attempt
