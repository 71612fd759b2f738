"""The layout of locks as keys, and the values of those keys. Made to be read with etcdctl, too.

    /holdfast/<namespace>/lock/<name>/<kind>.<capacity>/<session>.<number>   a holder or a waiter
    /holdfast/<namespace>/lock/<name>/<kind>.<capacity>/~<session>.<number>  a holder that adopted
    /holdfast/<namespace>/bell/<session>     the latest grant to a waiter of a manager, which watches it
    /holdfast/<namespace>/left/<owner>       the tombstone of an attempt that was given up
    /holdfast/<namespace>/forced/<name>      the record of the latest forced release
    /holdfast/<namespace>/slot/<name>/<number>           a slot of a semaphore: the owner that has it
    /holdfast/<namespace>/change/<name>/<owner>.<what>   a change of an election, for its observers

The entries of one lock form its queue, ordered by the revision that created them; but the holders that
adopted a lease stand first, since whoever gave it did not stand behind a waiter. A key is used again by
the next attempt of the same manager: a key that is new each time would leave a trace in etcd's index
until its next compaction, and every read of the queue would have to pass them all.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ...admission import Contender
from ...model import Label, Participant
from .wire.messages import KeyValue, after

WAITING, GRANTED = "waiting", "granted"
ADOPTED = b"~"
"""The first character of the last part of the key of a holder that adopted its lease."""
_DETACHED, _SLOT = "detached", "slot="


class Entry(NamedTuple):
    """The value of a key in a queue."""

    state: str
    owner: str
    weight: int
    ttl: float
    since: float
    """The time at which the owner began to wait, or was granted the lock: seconds since the epoch, by
    the clock of the client that wrote it."""
    token: int
    """The token; 0 if it is the revision that last changed the key."""
    label: Label
    detached: bool = False
    """True if it is on an etcd lease of its own, which nobody keeps alive."""
    slot: int | None = None
    """The slot of a holder of a semaphore."""

    def encode(self) -> bytes:
        """Returns the bytes that are stored."""
        state, owner, weight, ttl, since, token, (host, pid, text), detached, slot = self
        # The host's name stands before the text, which may have spaces.
        host = host.replace(" ", "_")
        notes = f"{token}" if slot is None else f"{token},{_SLOT}{slot}"
        if detached:
            notes += f",{_DETACHED}"
        return f"{state} {owner} {weight} {ttl:g} {since:.3f} {notes} {pid} {host} {text}".encode()

    def granted(self, wall: float, token: int = 0) -> Entry:
        """Returns the entry as it is once the lock was granted at the time `wall`."""
        since = self.since if self.state == GRANTED else wall
        return self._replace(state=GRANTED, since=since, token=token)


def decode(value: bytes) -> Entry | None:
    """Returns the entry that `value` stands for; None for a value that is not ours."""
    parts = value.decode(errors="replace").split(" ", 8)
    try:
        state, owner, weight, ttl, since, notes, pid, host, text = parts
        token, *rest = notes.split(",")
        return Entry(
            state,
            owner,
            int(weight),
            float(ttl),
            float(since),
            int(token),
            Label(host, int(pid), text),
            _DETACHED in rest,
            next((int(one.removeprefix(_SLOT)) for one in rest if one.startswith(_SLOT)), None),
        )
    except ValueError:
        return None


class StoredEntry(NamedTuple):
    """An entry as it was read from the store, with its key."""

    kv: KeyValue
    entry: Entry
    name: str
    kind: str
    capacity: int

    @property
    def place(self) -> Contender:
        """The entry as the rule of admission sees it."""
        shape = f"{self.kind}.{self.capacity}"
        return Contender(self.entry.weight, self.capacity, shape, self.entry.state == GRANTED)

    @property
    def adopted(self) -> bool:
        """True for a holder that adopted its lease."""
        return self.kv.key.rpartition(b"/")[2].startswith(ADOPTED)

    def token(self, base: int) -> int:
        """Returns the holder's token, or 0 for a waiter."""
        if self.entry.state != GRANTED:
            return 0
        return self.entry.token or base + self.kv.changed

    def participant(self, base: int, remaining: float) -> Participant:
        """Returns the holder or waiter as users are shown it."""
        entry = self.entry
        return Participant(
            entry.owner,
            entry.label,
            self.token(base),
            entry.since,
            remaining,
            entry.weight,
            entry.slot,
            entry.ttl,
        )


class Naming:
    """The names of all keys of one namespace."""

    def __init__(self, namespace: str) -> None:
        self.root = f"/holdfast/{_escaped(namespace)}/".encode()
        self._locks = self.root + b"lock/"

    def queue(self, name: str) -> bytes:
        """Returns the prefix of all entries of the lock `name`."""
        return self._locks + _escaped(name).encode() + b"/"

    def queue_of_kind(self, queue: bytes, kind: str, capacity: int) -> bytes:
        """Returns the prefix of those entries of a queue that are of this kind and capacity."""
        return queue + f"{kind}.{capacity}/".encode()

    def queues(self, prefix: str) -> tuple[bytes, bytes]:
        """Returns the first key, and the end, of all locks whose names start with `prefix`."""
        first = self._locks + _escaped(prefix).encode()
        return first, after(first)

    def tombstone(self, owner: str) -> bytes:
        """Returns the key which says that the attempt of `owner` was given up."""
        return self.root + b"left/" + _escaped(owner).encode()

    def wakeup(self, session: str) -> bytes:
        """Returns the key that a manager watches for grants to its waiters."""
        return self.root + b"bell/" + session.encode()

    def wakeup_for(self, key: bytes) -> bytes:
        """Returns the wake-up key of the manager to which an entry's `key` belongs."""
        return self.root + b"bell/" + key.rpartition(b"/")[2].partition(b".")[0]

    def forced(self, name: str) -> bytes:
        """Returns the key of the record of a forced release."""
        return self.root + b"forced/" + _escaped(name).encode()

    def slots(self, name: str) -> bytes:
        """Returns the prefix of the slots of the semaphore `name`."""
        return self.root + b"slot/" + _escaped(name).encode() + b"/"

    def slot(self, name: str, number: int) -> bytes:
        """Returns the key of a slot of the semaphore `name`."""
        return self.slots(name) + b"%d" % number

    def notes(self, name: str) -> bytes:
        """Returns the prefix of the notes of all changes of the election `name`."""
        return self.root + b"change/" + _escaped(name).encode() + b"/"

    def note(self, name: str, owner: str, what: str) -> bytes:
        """Returns the key of the note of a change: what has become of the term of `owner`."""
        return self.notes(name) + f"{_escaped(owner)}.{what}".encode()

    def stored_entry(self, kv: KeyValue) -> StoredEntry | None:
        """Returns the entry that was read; None for a key that is not ours."""
        parts = kv.key[len(self._locks) :].split(b"/")
        entry = decode(kv.value)
        if len(parts) != 3 or entry is None:
            return None
        kind, _, capacity = parts[1].decode(errors="replace").rpartition(".")
        if not capacity.isdecimal():
            return None
        name = parts[0].decode(errors="replace").replace("%2F", "/").replace("%25", "%")
        return StoredEntry(kv, entry, name, kind, int(capacity))

    def stored_entries(self, keys: Iterable[KeyValue]) -> list[StoredEntry]:
        """Returns the entries that were read, in the order of the queue, without foreign keys.

        `keys` are in the order of their creation. Those of adopted leases may be there twice.
        """
        return in_order([one for one in map(self.stored_entry, keys) if one is not None])


def in_order(entries: list[StoredEntry]) -> list[StoredEntry]:
    """Returns entries that were read in the order of their creation in the order of the queue."""
    adopted = {one.kv.key: one for one in entries if one.adopted}
    if not adopted:
        return entries
    return [*adopted.values(), *(one for one in entries if not one.adopted)]


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace("/", "%2F")


# A wake-up says which owner was granted the lock, and which waiters follow it in the queue, so that it
# can hand the lock on without reading the queue first. `etcd_handoff` of 32 processes: 261 hand-overs a
# second with this, 179 without. Neither names nor entries have control characters.


class Wakeup(NamedTuple):
    """The value of a wake-up key."""

    owner: str
    """The owner that was granted a lock."""
    key: bytes
    """The key of its entry."""
    followers: list[bytes]
    """The waiters behind it, in their order, each as `encode_follower` has it."""
    slot: int | None = None
    """The slot of a semaphore that it was given."""

    def encode(self) -> bytes:
        """Returns the bytes that are stored."""
        slot = b"" if self.slot is None else b"\t%d" % self.slot
        return b"\n".join((self.owner.encode() + b"\t" + self.key + slot, *self.followers))


def decode_wakeup(value: bytes) -> Wakeup:
    """Returns the wake-up that `value` stands for."""
    first, *followers = value.split(b"\n")
    owner, key, *slot = first.split(b"\t")
    return Wakeup(owner.decode(errors="replace"), key, followers, int(slot[0]) if slot else None)


def encode_follower(stored: StoredEntry) -> bytes:
    """Returns a waiter's entry as a wake-up has it."""
    kv = stored.kv
    return b"%b\t%d\t%d\t%b" % (kv.key, kv.changed, kv.lease, kv.value)


def decode_follower(line: bytes) -> KeyValue:
    """Returns a waiter's entry from a wake-up; the revision that created it is not known."""
    key, changed, lease, value = line.split(b"\t")
    return KeyValue(key, value, 0, int(changed), int(lease))


class Note(NamedTuple):
    """The value of a key that tells of a change of an election."""

    owner: str
    """The leader; empty if nobody leads."""
    token: int
    """The leader's token, or that of the last leader; 0 if it is the revision that created the key."""
    since: float
    label: Label

    def encode(self) -> bytes:
        """Returns the bytes that are stored."""
        owner, token, since, (host, pid, text) = self
        return f"{owner} {token} {since:.3f} {pid} {host.replace(' ', '_')} {text}".encode()


def decode_note(value: bytes) -> Note | None:
    """Returns the note that `value` stands for; None for a value that is not ours."""
    try:
        owner, token, since, pid, host, text = value.decode(errors="replace").split(" ", 5)
        return Note(owner, int(token), float(since), Label(host, int(pid), text))
    except ValueError:
        return None
