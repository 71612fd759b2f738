"""The queue of one lock, as one manager uses it: its part of each request, and our own keys."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ...._runtime.aio import Turn
from ..keys import ADOPTED, Naming
from ..wire.messages import absent, after, read

if TYPE_CHECKING:
    from .attempt import Attempt
    from .reading import Reading

ALL_READ = 1000
"""The capacity up to which a read of the queue is limited to the entries that could be admitted."""
CREDIT = 4
"""The number of releases that may find a contended queue empty before it counts as free again."""


class Queue:
    """The entries of one lock of one kind and capacity."""

    __slots__ = (
        "_adopted",
        "_credit",
        "_free",
        "_latest",
        "_numbers",
        "adopted",
        "capacity",
        "end",
        "if_empty",
        "if_one_kind",
        "in_use",
        "looking",
        "own",
        "read",
        "reading",
        "start",
        "turn",
    )

    def __init__(
        self,
        naming: Naming,
        name: str,
        kind: str,
        capacity: int,
        session: str,
        numbers: Iterator[int],
        adopted: bool = False,
    ) -> None:
        self.start = naming.queue(name)
        self.end = after(self.start)
        self.capacity = capacity
        of_kind = naming.queue_of_kind(self.start, kind, capacity)
        self.adopted = adopted
        """True for those entries of this manager that adopted a lease: they are kept apart."""
        first_adopted = of_kind + ADOPTED
        self.own = (first_adopted if adopted else of_kind) + f"{session}.".encode()
        """The prefix of this manager's keys in this queue; a number follows."""
        self.if_empty = absent(self.start, self.end)
        """A condition: the queue is empty."""
        self.if_one_kind = absent(self.start, of_kind) + absent(after(of_kind), self.end)
        """A condition: the queue has no entry of another kind or capacity."""
        self._adopted = first_adopted, after(first_adopted)
        self.read = self.reads(self.enough)
        """Operations: read the entries that could be admitted."""
        self._numbers = numbers
        self._free: list[bytes] = []
        """Keys of this manager that are not in use. A key that a late request may still change is not
        put back here; its number is never drawn again."""
        self.in_use: set[bytes] = set()
        self._credit = 0
        self.turn = Turn()
        """The turn to join the queue without a neighbour, which one attempt has at a time."""
        self._latest: Attempt | None = None
        self.looking = Turn()
        """The turn to read the whole queue for its waiters, which one of them has at a time."""
        self.reading: Reading | None = None
        """The queue as it was last read for them."""

    @property
    def enough(self) -> int:
        """The number of entries to read to know which are admitted; 0 for all."""
        return self.capacity + 1 if self.capacity < ALL_READ else 0

    def reads(self, limit: int, *, stale: bool = False) -> tuple[bytes, ...]:
        """Returns operations that read the first entries, and all holders that adopted a lease: those
        were created later than their place says."""
        first = read(self.start, self.end, limit, stale=stale)
        return (first, read(*self._adopted, stale=stale)) if limit else (first,)

    @property
    def contended(self) -> bool:
        """True if others were seen to wait: a release then reads the queue first."""
        return self._credit > 0

    @property
    def is_shared(self) -> bool:
        """True if it is a mutex that several attempts of this manager want."""
        return self.capacity == 1 and len(self.in_use) > 1

    @property
    def neighbour(self) -> Attempt | None:
        """The attempt of this manager that was the latest to join; None if it has left since."""
        latest = self._latest
        return None if latest is None or latest.released else latest

    def joined(self, attempt: Attempt) -> None:
        """Notes that `attempt` has an entry in the queue."""
        self._latest = attempt

    def left(self, attempt: Attempt) -> None:
        """Notes that `attempt` has no entry in the queue."""
        if self._latest is attempt:
            self._latest = None

    def saw_waiters(self) -> None:
        """Notes that others wait."""
        self._credit = CREDIT

    def saw_nobody(self) -> None:
        """Notes that a release found nobody to hand the lock to."""
        self._credit = max(self._credit - 1, 0)

    def take_key(self) -> bytes:
        """Returns a key for one attempt; one that was used before, if there is any."""
        key = self._free.pop() if self._free else self.own + b"%d" % next(self._numbers)
        self.in_use.add(key)
        return key

    def give_key(self, key: bytes, reusable: bool) -> None:
        """Takes the key back from an attempt that has ended."""
        self.in_use.discard(key)
        if not self.in_use:
            self.reading = None  # which may be large
        if reusable:
            self._free.append(key)
