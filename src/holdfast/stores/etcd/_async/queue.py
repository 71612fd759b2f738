"""The line of one lock: the parts of requests that need it, made once, and our own keys in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ..keys import Naming
from ..wire.messages import absent, after, delete_one, otherwise, read

if TYPE_CHECKING:
    from .attempt import Attempt
    from .leases import Lease
    from .watches import Watch

ALL_READ = 1000
"""Up to this capacity a look at the line reads no more than could ever be admitted."""

NO_TAIL: tuple[bytes, float] = b"", 0.0


class Slot:
    """A key of this manager in a line. It is used again by one attempt after the other."""

    __slots__ = ("attempt", "burned", "deletion", "key", "look")

    def __init__(self, key: bytes, look: bytes) -> None:
        self.key = key
        self.deletion = delete_one(key)
        self.look = otherwise(look, read(key))
        """Otherwise: look at the line, and at this key."""
        self.attempt: Attempt | None = None
        """Whose it is now."""
        self.burned = False
        """It must not be used any more."""


class Line:
    """The line of one lock, as one kind of it asks."""

    __slots__ = (
        "_register",
        "alone",
        "capacity",
        "dropped",
        "end",
        "kind",
        "look",
        "mine",
        "same_kind",
        "slots",
        "start",
        "tail",
        "used",
        "wanted",
        "watch",
    )

    def __init__(
        self,
        naming: Naming,
        name: str,
        kind: str,
        capacity: int,
        session: str,
        register: dict[bytes, Slot],
    ) -> None:
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
        self.slots: list[Slot] = []
        """By that number, as many as were ever needed at once."""
        self._register = register
        """Of the slots of all lines, by their keys."""
        self.used = 0
        """How many of them are in use."""
        self.dropped = False
        """It was idle and is not remembered any more: whoever comes needs another."""
        self.watch: Watch | None = None
        """Of those keys, once any of them is worth watching."""
        self.wanted = 0
        """Others were seen to wait: who gives the lock back looks at the line first. And how often it
        may find nobody there before that is not done any more."""
        self.tail = NO_TAIL
        """If: the last whom we knew to wait, when we gave the lock to another, still waits. And until
        when that is worth asking."""

    @property
    def enough(self) -> int:
        """Entries to read to know who may be admitted; 0 for all."""
        return self.capacity + 1 if self.capacity < ALL_READ else 0

    @property
    def idle(self) -> bool:
        """Nothing would be lost with it."""
        return not self.used and self.watch is None and not any(one.burned for one in self.slots)

    def take(self, attempt: Attempt) -> Slot:
        for slot in self.slots:
            if slot.attempt is None and not slot.burned:
                break
        else:
            slot = Slot(self.mine + b"%d" % len(self.slots), self.look)
            self.slots.append(slot)
            self._register[slot.key] = slot
        slot.attempt = attempt
        self.used += 1
        return slot

    def give(self, slot: Slot, burned: bool) -> None:
        slot.attempt = None
        slot.burned = burned
        self.used -= 1


class Form(NamedTuple):
    """The request for a lock, but for who asks and when."""

    slot: Slot
    hold: Lease
    wait: Lease | None
    parts: list[bytes]
    """Between them goes the owner; in one or two of them the time has its place."""


class Prepared:
    """What all attempts at a lock have in common; kept with its terms."""

    __slots__ = ("form", "line")

    def __init__(self, line: Line) -> None:
        self.line = line
        self.form: Form | None = None
