"""The names of znodes.

    CHROOT/NAMESPACE/locks/NAME/ENTRY      a holder or a waiter: ephemeral, sequential
    CHROOT/NAMESPACE/sessions/ID           ephemeral; written to prove that its session lives
    CHROOT/NAMESPACE/audit                 what was released by force, the newest last

    ENTRY = OWNER,KIND,CAPACITY,WEIGHT,TTL in ms,SEQUENCE

The name of an entry says all that decides which entries may hold the lock, so one read of the children
is enough; the label is in its data. NAME is a container: ZooKeeper itself removes it some time after
its last entry has gone. Then the sequence starts again, which harms nobody: numbers are compared within
one parent only, and tokens are not made of them.

The sequence is a signed 32-bit number that wraps; numbers are compared modulo 2^32. The entries of one
queue are always within 2^31 of each other.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple
from urllib.parse import quote, unquote

from ...admission import Contender

_MODULUS = 1 << 32
_HALF = 1 << 31


class Entry(NamedTuple):
    """An entry of a queue: the name of its znode, taken apart."""

    name: str
    owner: str
    kind: str
    capacity: int
    weight: int
    ttl: float
    sequence: int

    @property
    def place(self) -> Contender:
        return Contender(self.weight, self.capacity, f"{self.kind},{self.capacity}", False)


class Naming:
    """The paths of the znodes of one namespace."""

    def __init__(self, chroot: str, namespace: str) -> None:
        self.root = f"{chroot}/{encode_name(namespace)}"
        self.locks = self.root + "/locks"
        self.sessions = self.root + "/sessions"
        self.audit = self.root + "/audit"

    def lock(self, name: str) -> str:
        return f"{self.locks}/{encode_name(name)}"

    def needed(self) -> list[str]:
        """Returns the path of every znode that has to be there, parents first."""
        parts = self.root.split("/")[1:]
        above = ["/" + "/".join(parts[: i + 1]) for i in range(len(parts))]
        return [*above, self.locks, self.sessions]


def encode_name(text: str) -> str:
    """Returns `text` as the name of one znode."""
    name = quote(text, safe="")
    # ZooKeeper gives only these two a meaning of their own; `quote` leaves dots as they are.
    return name.replace(".", "%2E") if name in (".", "..") else name


decode_name = unquote


def entry_name(owner: str, kind: str, capacity: int, weight: int, ttl: float) -> str:
    """Returns the name of an entry without its sequence number, which the server appends."""
    return f"{quote(owner, safe='')},{quote(kind, safe='')},{capacity},{weight},{int(ttl * 1000)},"


def parse(name: str) -> Entry | None:
    """Returns the entry; None for a foreign znode, which nothing here touches."""
    parts = name.split(",")
    if len(parts) != 6:
        return None
    owner, kind, capacity, weight, ttl, sequence = parts
    try:
        return Entry(
            name,
            unquote(owner),
            unquote(kind),
            int(capacity),
            int(weight),
            int(ttl) / 1000,
            int(sequence),
        )
    except ValueError:
        return None


def ordered_entries(names: Iterable[str]) -> list[Entry]:
    """Returns the entries among these children, in the order in which they joined the queue."""
    entries = [entry for entry in map(parse, names) if entry is not None]
    if len(entries) > 1:
        # Relative to any of them: they all lie within half of the numbers that there are.
        base = entries[0].sequence - _HALF
        entries.sort(key=lambda entry: (entry.sequence - base) % _MODULUS)
    return entries
