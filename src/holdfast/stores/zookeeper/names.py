"""The names of znodes.

    CHROOT/NAMESPACE/locks/NAME/ENTRY      a holder or a waiter: ephemeral, sequential
    CHROOT/NAMESPACE/sessions/ID           ephemeral; written to prove that its session lives
    CHROOT/NAMESPACE/audit                 what was released by force, the newest last
    CHROOT/NAMESPACE/recall                the name of the lock that was last released by force
    CHROOT/NAMESPACE/detached/END,OWNER    the path of a detached entry, for those who clean up
    CHROOT/NAMESPACE/elections/NAME        the last changes of an election

    CHROOT/NAMESPACE/locks/NAME/slot-N     a slot of a semaphore that is taken; it goes with its entry

    ENTRY = OWNER,KIND,CAPACITY,WEIGHT,TERM,SEQUENCE
    TERM = TTL in ms; or @END if the entry is detached: persistent, until END in ms since the epoch;
           and +SLOT for an entry that has one

The name of an entry says all that decides which entries may hold the lock, so one read of the children
is enough; the label is in its data. NAME is a container: ZooKeeper itself removes it some time after
its last entry has gone. Then the sequence starts again, which harms nobody: numbers are compared within
one parent only, and tokens are not made of them.

The sequence is a signed 32-bit number that wraps; numbers are compared modulo 2^32. The entries of one
queue are always within 2^31 of each other.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

from ...admission import Contender

_MODULUS = 1 << 32
_HALF = 1 << 31
NO_SLOT = -1
"""The slot of an entry that has none."""
REMEMBERED = 8192
"""The number of names that are not taken apart again: a waiter reads the names of all before it."""
SEMAPHORE = "semaphore"
"""The kind of lock whose holders have slots."""


class Entry(NamedTuple):
    """An entry of a queue: the name of its znode, taken apart."""

    name: str
    owner: str
    kind: str
    capacity: int
    weight: int
    ttl: float
    """The TTL, in seconds; of a detached entry 0."""
    sequence: int
    ends: int = 0
    """The time at which a detached entry ends, in ms since the epoch; of all others 0."""
    slot: int = NO_SLOT

    def has_ended(self, now: int) -> bool:
        """Returns whether the entry is detached, and its time is over by the servers' clock."""
        return 0 < self.ends <= now

    def remaining(self, now: int) -> float:
        """Returns the seconds that the entry has left at the most, unless it is renewed."""
        return max(0, self.ends - now) / 1000 if self.ends else self.ttl

    def renamed(self, **changes: Any) -> str:
        """Returns the name of an entry that differs by `changes`, and has the same place."""
        other = self._replace(**changes)
        start = entry_name(
            other.owner,
            other.kind,
            other.capacity,
            other.weight,
            other.ttl,
            other.ends,
            other.slot,
        )
        return start + self.name.rpartition(",")[2]

    @property
    def place(self) -> Contender:
        return _place(self.weight, self.capacity, self.kind)


@lru_cache(64)
def _place(weight: int, capacity: int, kind: str) -> Contender:
    return Contender(weight, capacity, f"{kind},{capacity}", False)


class Naming:
    """The paths of the znodes of one namespace."""

    def __init__(self, chroot: str, namespace: str) -> None:
        self.root = f"{chroot}/{encode_name(namespace)}"
        self.locks = self.root + "/locks"
        self.sessions = self.root + "/sessions"
        self.audit = self.root + "/audit"
        self.recall = self.root + "/recall"
        self.detached = self.root + "/detached"
        self.elections = self.root + "/elections"

    def lock(self, name: str) -> str:
        return f"{self.locks}/{encode_name(name)}"

    def election(self, name: str) -> str:
        """Returns the path of the record of an election's changes."""
        return f"{self.elections}/{encode_name(name)}"

    def marker(self, entry: Entry) -> str:
        """Returns the path of the znode that tells those who clean up of a detached entry."""
        return f"{self.detached}/{entry.ends},{quote(entry.owner, safe='')}"

    def needed(self) -> list[str]:
        """Returns the path of every znode that has to be there, parents first."""
        parts = self.root.split("/")[1:]
        above = ["/" + "/".join(parts[: i + 1]) for i in range(len(parts))]
        return [*above, self.locks, self.sessions, self.recall]


def encode_name(text: str) -> str:
    """Returns `text` as the name of one znode."""
    name = quote(text, safe="")
    # ZooKeeper gives only these two a meaning of their own; `quote` leaves dots as they are.
    return name.replace(".", "%2E") if name in (".", "..") else name


def decode_name(name: str) -> str:
    """Returns the text that `encode_name` was given.

    `unquote` takes some ten times as long for a long name that is not ASCII, and a list has thousands.
    """
    if "%" not in name:
        return name
    words = name.encode().replace(b"\\", b"\\\\").replace(b"%", b"\\x")
    try:
        return words.decode("unicode_escape").encode("latin-1").decode(errors="replace")
    except UnicodeDecodeError:  # a foreign name
        return unquote(name)


def entry_name(
    owner: str,
    kind: str,
    capacity: int,
    weight: int,
    ttl: float,
    ends: int = 0,
    slot: int = NO_SLOT,
) -> str:
    """Returns the name of an entry without its sequence number, which the server appends."""
    term = f"@{ends}" if ends else f"{int(ttl * 1000)}"
    if slot != NO_SLOT:
        term += f"+{slot}"
    return f"{quote(owner, safe='')},{quote(kind, safe='')},{capacity},{weight},{term},"


@lru_cache(REMEMBERED)
def parse(name: str) -> Entry | None:
    """Returns the entry; None for a foreign znode, which nothing here touches."""
    parts = name.split(",")
    if len(parts) != 6:
        return None
    owner, kind, capacity, weight, term, sequence = parts
    term, _, slot = term.partition("+")
    detached = term.startswith("@")
    try:
        return Entry(
            name,
            unquote(owner),
            unquote(kind),
            int(capacity),
            int(weight),
            0.0 if detached else int(term) / 1000,
            int(sequence),
            int(term[1:]) if detached else 0,
            int(slot) if slot else NO_SLOT,
        )
    except ValueError:
        return None


def parsed(name: str) -> Entry:
    """Returns the entry of one of our own names."""
    entry = parse(name)
    assert entry is not None, name
    return entry


def slot_path(lock_path: str, slot: int) -> str:
    return f"{lock_path}/slot-{slot}"


def free_slots(names: Iterable[str], capacity: int) -> list[int]:
    """Returns the slots of a semaphore that are not among the children of its znode."""
    taken = set(names)
    return [slot for slot in range(capacity) if f"slot-{slot}" not in taken]


def ordered_entries(names: Iterable[str]) -> list[Entry]:
    """Returns the entries among these children, in the order in which they joined the queue."""
    entries = [entry for entry in map(parse, names) if entry is not None]
    if len(entries) > 1:
        # Relative to any of them: they all lie within half of the numbers that there are.
        base = entries[0].sequence - _HALF
        entries.sort(key=lambda entry: (entry.sequence - base) % _MODULUS)
    return entries
