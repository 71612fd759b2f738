"""How locks are laid out as keys, and what stands in them. Made to be read with etcdctl, too.

    /holdfast/<namespace>/lock/<name>/<kind>.<capacity>/<session>.<slot>    holds or waits
    /holdfast/<namespace>/bell/<session>     who of a manager was granted what, for it to watch
    /holdfast/<namespace>/left/<owner>       an attempt that was given up with its request under way
    /holdfast/<namespace>/forced/<name>      the latest forced release, for whoever asks

The entries of one lock stand in line by the revision that created them. A key is used again by the
next attempt of the same manager: one that is new each time would leave a trace in etcd's index until
its next compaction, and every look at the line would have to pass them all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ...admission import Contender
from ...model import Label, Participant
from .wire.messages import KeyValue, after

WAITING, GRANTED = "waiting", "granted"


class Entry(NamedTuple):
    """What the value of a key says."""

    state: str
    owner: str
    weight: int
    ttl: float
    since: float
    """When it began to wait, or was granted; seconds since the epoch, by the clock of who wrote it."""
    token: int
    """0: it is the revision that changed the key last."""
    label: Label

    def encode(self) -> bytes:
        state, owner, weight, ttl, since, token, label = self
        return in_value(state, owner, weight, ttl, f"{since:.3f}", token, label)

    def granted(self, wall: float, token: int = 0) -> Entry:
        since = self.since if self.state == GRANTED else wall
        return self._replace(state=GRANTED, since=since, token=token)


def in_value(
    state: str, owner: str, weight: int, ttl: float, since: str, token: int, label: Label
) -> bytes:
    host, pid, text = label
    # The host's name before the text, which may have spaces.
    return (
        f"{state} {owner} {weight} {ttl:g} {since} {token} {pid} {host.replace(' ', '_')} {text}"
    ).encode()


def decode(value: bytes) -> Entry | None:
    """None for what is not ours."""
    parts = value.decode(errors="replace").split(" ", 8)
    try:
        state, owner, weight, ttl, since, token, pid, host, text = parts
        label = Label(host, int(pid), text)
        return Entry(state, owner, int(weight), float(ttl), float(since), int(token), label)
    except ValueError:
        return None


class Standing(NamedTuple):
    """One entry in line, with its key."""

    kv: KeyValue
    entry: Entry
    name: str
    kind: str
    capacity: int

    @property
    def place(self) -> Contender:
        shape = f"{self.kind}.{self.capacity}"
        return Contender(self.entry.weight, self.capacity, shape, self.entry.state == GRANTED)

    def token(self, base: int) -> int:
        if self.entry.state != GRANTED:
            return 0
        return self.entry.token or base + self.kv.changed

    def participant(self, base: int, remaining: float) -> Participant:
        entry = self.entry
        return Participant(
            entry.owner, entry.label, self.token(base), entry.since, remaining, entry.weight
        )


class Naming:
    def __init__(self, namespace: str) -> None:
        self.root = f"/holdfast/{_escaped(namespace)}/".encode()
        self._locks = self.root + b"lock/"

    def line(self, name: str) -> bytes:
        """What the keys of everybody who holds this lock or waits for it start with."""
        return self._locks + _escaped(name).encode() + b"/"

    def of_kind(self, line: bytes, kind: str, capacity: int) -> bytes:
        return line + f"{kind}.{capacity}/".encode()

    def starting(self, prefix: str) -> tuple[bytes, bytes]:
        """From and to, for the locks whose names start so."""
        first = self._locks + _escaped(prefix).encode()
        return first, after(first)

    def left(self, owner: str) -> bytes:
        return self.root + b"left/" + _escaped(owner).encode()

    def bell(self, session: str) -> bytes:
        return self.root + b"bell/" + session.encode()

    def bell_of(self, key: bytes) -> bytes:
        """The bell of the manager that has this key in a line."""
        return self.root + b"bell/" + key.rpartition(b"/")[2].partition(b".")[0]

    def forced(self, name: str) -> bytes:
        return self.root + b"forced/" + _escaped(name).encode()

    def standing(self, kv: KeyValue) -> Standing | None:
        """None for a key that is not ours."""
        parts = kv.key[len(self._locks) :].split(b"/")
        entry = decode(kv.value)
        if len(parts) != 3 or entry is None:
            return None
        kind, _, capacity = parts[1].decode(errors="replace").rpartition(".")
        if not capacity.isdecimal():
            return None
        name = parts[0].decode(errors="replace").replace("%2F", "/").replace("%25", "%")
        return Standing(kv, entry, name, kind, int(capacity))


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace("/", "%2F")


# What a bell says: who was granted the lock, and who stands behind, so that it can grant it to the next
# without having to look. Neither names nor entries have control characters.


def ring(heir: Standing, behind: Sequence[bytes]) -> bytes:
    """`behind`: as `in_bytes` has them, or as another bell said."""
    return b"\n".join((heir.entry.owner.encode() + b"\t" + heir.kv.key, *behind))


def in_bytes(standing: Standing) -> bytes:
    kv = standing.kv
    return b"%b\t%d\t%d\t%b" % (kv.key, kv.changed, kv.lease, kv.value)


def rung(value: bytes) -> tuple[str, bytes, list[bytes]]:
    """The owner and the key that were granted, and those behind, still in bytes."""
    first, *behind = value.split(b"\n")
    owner, _, key = first.partition(b"\t")
    return owner.decode(errors="replace"), key, behind


def behind(line: bytes) -> KeyValue:
    key, changed, lease, value = line.split(b"\t")
    return KeyValue(key, value, 0, int(changed), int(lease))
