"""One attempt at a lock as this manager knows it, and the parts of requests that its line needs."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from ...etcd.keys import GRANTED, WAITING, Entry, Naming, Standing
from ...etcd.messages import absent, after, otherwise, read
from ...model import Label

if TYPE_CHECKING:
    from ..contract import Ticket
    from .etcd_leases import Lease
    from .etcd_watch import Watch

ALL_READ = 1000
"""Up to this capacity a look at the line reads no more than could ever be admitted."""


NOT_RUNG: tuple[int, list[bytes]] = 0, []


class Line:
    """The line of one lock, as one kind of it asks."""

    __slots__ = (
        "_looked_for",
        "alone",
        "burned",
        "capacity",
        "end",
        "kind",
        "look",
        "mine",
        "same_kind",
        "slots",
        "start",
        "tail",
        "watch",
    )

    def __init__(self, naming: Naming, name: str, kind: str, capacity: int, session: str) -> None:
        self.start = naming.line(name)
        self.end = after(self.start)
        self.kind = naming.of_kind(self.start, kind, capacity)
        self.capacity = capacity
        self.alone = absent(self.start, self.end)
        """If: nobody is in line."""
        self.same_kind = absent(self.start, self.kind) + absent(after(self.kind), self.end)
        """If: nobody is there who asks for another kind or capacity."""
        self.look = read(self.start, self.end, self.enough)
        self.mine = self.kind + f"{session}.".encode()
        """What the keys of this manager in this line start with; a number follows."""
        self._looked_for = b"", b""
        self.slots: set[int] = set()
        """Which of our keys are in use."""
        self.burned: set[int] = set()
        """And which must not be used any more."""
        self.watch: Watch | None = None
        """Of those keys, once any of them is worth watching."""
        self.tail: tuple[bytes, float] = b"", 0.0
        """If: the last whom we knew to wait, when we gave the lock to another, still waits. And until
        when that is worth asking."""

    @property
    def enough(self) -> int:
        """Entries to read to know who may be admitted; 0 for all."""
        return self.capacity + 1 if self.capacity < ALL_READ else 0

    def look_for(self, key: bytes) -> bytes:
        """Otherwise: look at the line, and at this key of ours. It is mostly the same one."""
        if self._looked_for[0] != key:
            self._looked_for = key, otherwise(self.look, read(key))
        return self._looked_for[1]

    def take_slot(self) -> int:
        slot = 0
        while slot in self.slots or slot in self.burned:
            slot += 1
        self.slots.add(slot)
        return slot


class Attempt:
    __slots__ = (
        "answered",
        "asked_ttl",
        "behind",
        "blocker",
        "burned",
        "capacity",
        "changed",
        "created",
        "doubtful",
        "key",
        "kind",
        "label",
        "lease",
        "leaving",
        "line",
        "looked",
        "name",
        "owed",
        "owner",
        "renew",
        "rung",
        "since",
        "slot",
        "ticket",
        "token",
        "until",
        "weight",
    )

    def __init__(self, name: str, owner: str, line: Line, kind: str, capacity: int) -> None:
        self.name = name
        self.owner = owner
        self.line = line
        self.kind = kind
        self.capacity = capacity
        self.weight = 1
        self.label = Label("", 0)
        self.asked_ttl = 1.0
        self.renew = True
        self.ticket: Ticket | None = None
        self.key = b""
        self.slot = -1
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
        self.behind: list[bytes] = []
        """Who stood behind it when it was granted the lock, as the bell said."""
        self.rung = NOT_RUNG
        """At which revision the bell rang for it, and who stood behind, until that is made use of."""
        self.blocker: Watch | None = None
        """Of what it waits for."""
        self.looked = 0.0
        """When the line was last looked at for it."""

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
        return Entry(
            GRANTED if granted else WAITING,
            self.owner,
            self.weight,
            self.asked_ttl,
            self.since or wall,
            token,
            self.label,
        ).encode()

    def is_at(self, standing: Standing) -> bool:
        """Whether this entry in line is the one of this attempt."""
        return standing.kv.key == self.key and standing.entry.owner == self.owner

    def matches(self, ticket: Ticket) -> bool:
        asked = ticket.weight, ticket.capacity, ticket.kind
        return (self.weight, self.capacity, self.kind) == asked

    @classmethod
    def of(cls, ticket: Ticket, line: Line) -> Attempt:
        """A new one, with a key that is not in use."""
        attempt = cls(ticket.name, ticket.owner, line, ticket.kind, ticket.capacity)
        attempt.weight = ticket.weight
        attempt.label = ticket.label
        attempt.asked_ttl = ticket.ttl
        attempt.renew = ticket.renew
        attempt.ticket = ticket
        attempt.take_key()
        return attempt

    def take_key(self) -> None:
        slot = self.line.take_slot()
        self.line.slots.discard(self.slot)
        self.slot = slot
        self.key = self.line.mine + b"%d" % slot

    @classmethod
    def found(cls, standing: Standing, line: Line, token_base: int) -> Attempt:
        """One that another manager made."""
        entry = standing.entry
        attempt = cls(standing.name, entry.owner, line, standing.kind, standing.capacity)
        attempt.weight = entry.weight
        attempt.label = entry.label
        attempt.asked_ttl = entry.ttl
        attempt.since = entry.since
        attempt.key = standing.kv.key
        attempt.created = standing.kv.created
        attempt.changed = standing.kv.changed
        attempt.token = standing.token(token_base)
        return attempt
