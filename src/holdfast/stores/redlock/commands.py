"""The commands to a node, packed. What differs from node to node is its incarnation, near the end."""

from __future__ import annotations

from binascii import crc32
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from ...entries import MISSED_HEARTBEATS
from ...model import Label
from ..redis.answers import millis
from ..redis.keys import Naming
from ..redis.lua import Script
from ..redis.wire.protocol import bulk, pack
from . import lua

STRIPES = 16384
"""Counters for all locks together: their memory is bounded, and two locks hardly ever share one."""
CACHED = 4096
AUDIT_RECORDS = b"1000"
MARKED, UNMARKED = bulk(b"60000"), bulk(b"0")
"""Milliseconds for which a request that arrives after its owner has left is refused."""
WAKING, QUIET = bulk(b"1"), bulk(b"0")
SEPARATOR = "\x1f"


class Asked(Protocol):
    """The terms of a ticket, as far as they matter here."""

    name: str
    ttl: float
    label: Label


class Together:
    """How several requests of a kind go in one command: a third less work for the server."""

    __slots__ = ("_arguments", "_first", "_keys", "_keys_first", "_last", "_script")

    def __init__(
        self, script: Script, keys_first: int, first: bytes, keys: int, arguments: int, last: int
    ) -> None:
        self._script = script
        self._keys_first = keys_first
        self._first = first
        self._keys = keys
        """So many for each."""
        self._arguments = arguments
        self._last = last

    def pack(self, keys: Sequence[bytes], arguments: Sequence[bytes], last: bytes) -> bytes:
        count = len(keys)
        names = self._keys_first + count * self._keys
        head = self._script.command(names, names + count * self._arguments + self._last)
        return b"".join([head, self._first, *keys, *arguments, last])


class Part(NamedTuple):
    """A request that may go together with others, as its parts."""

    kind: Together
    keys: bytes
    arguments: bytes
    last: Sequence[bytes]
    """For each node: what comes behind all of them, and has to be the same."""


class Words(NamedTuple):
    """The beginnings of the commands for one lock."""

    ttl: float
    label: Label
    take: bytes
    """The owner and the incarnation follow."""
    request: bytes
    """The arguments of that, for one of several; the owner follows."""
    raise_: bytes
    """The token, `before`, the incarnation and the owner follow."""
    release: bytes
    """The owner follows."""
    free: bytes
    """The owner, the mark, and whether to wake somebody follow."""
    wait: bytes
    """The channel and the owner follow."""
    leave: bytes
    """The owner follows."""
    leave_late: bytes
    """The same, refusing a request to wait that is late; the owner and `lateness` follow."""
    keys: bytes
    """The lock, its queue and its counter."""
    request_keys: bytes
    """Of the arguments, for one of several: the counter and the lock."""
    lock: bytes


class Commands:
    def __init__(self, namespace: str, heartbeat: float) -> None:
        self.naming = Naming(namespace, None)
        space = self.naming.audit.removesuffix(b":audit")
        self.marker_key = space + b":redlock:marker"
        self.of_nodes = (space + b":redlock:*").decode()
        """All keys that say how the nodes stand."""
        self.marker = bulk(self.marker_key)
        self.beginning = bulk(space + b":redlock:beginning")
        self.counters = bulk(space + b":redlock:counters")
        """Those in use."""
        self._counter = space + b":redlock:counter:%d"
        self.patience = heartbeat * MISSED_HEARTBEATS
        """Seconds without a heartbeat after which a node forgets a waiter."""
        self.lateness = bulk(b"%d" % millis(self.patience))
        self._scripts = lua.scripts()
        self._words: dict[str, Words] = {}
        scripts = self._scripts
        self.takes = Together(scripts["takes"], 2, self.counters + self.marker, 2, 3, 1)
        self.releases = Together(scripts["frees"], 0, b"", 1, 1, 0)

    @property
    def questions(self) -> list[bytes]:
        """What a node is asked first: in which life it is, in which it votes, and what it lacks."""
        digests = [script.digest for script in self._scripts.values()]
        return [
            pack(b"INFO", b"server"),
            pack(b"GET", self.marker_key),
            pack(b"SCRIPT", b"EXISTS", *digests),
        ]

    @property
    def loads(self) -> list[bytes]:
        """They bring every script to the server."""
        return [script.load for script in self._scripts.values()]

    def of(self, ticket: Asked) -> Words:
        kept = self._words.get(ticket.name)
        if kept is None or kept.ttl != ticket.ttl or kept.label is not ticket.label:
            kept = self._prepare(ticket.name, ticket.ttl, ticket.label)
        return kept

    def _prepare(self, name: str, ttl: float, label: Label) -> Words:
        keys = self.naming.of(name)
        lock, both = bulk(keys.lock), bulk(keys.lock) + bulk(keys.queue)
        counter = bulk(self._counter % (crc32(keys.lock) % STRIPES))
        host = label.host.replace(SEPARATOR, "")
        request = bulk(
            SEPARATOR.join((str(millis(ttl)), host, str(label.pid), label.text)).encode()
        )
        arguments = bulk(b"%d" % millis(ttl)) + request
        scripts = self._scripts
        words = Words(
            ttl,
            label,
            scripts["take"].command(4, 8)
            + self.counters
            + self.marker
            + counter
            + lock
            + arguments,
            arguments,
            scripts["raise"].command(3, 7) + lock + counter + self.marker,
            scripts["free"].command(1, 2) + lock,
            scripts["free"].command(1, 4) + lock,
            scripts["wait"].command(2, 6) + both + self.lateness + request,
            scripts["leave"].command(2, 3) + both,
            scripts["leave"].command(2, 4) + both,
            both + counter,
            counter + lock,
            lock,
        )
        if len(self._words) >= CACHED:
            self._words.clear()
        self._words[name] = words
        return words

    def plain(self, name: str) -> Words:
        """For those who ask for nothing."""
        return self._words.get(name) or self._prepare(name, 1.0, Label("", 0))

    def keep(self, vote: bytes, holds: Sequence[tuple[str, str, int, float]]) -> bytes:
        """One command for many: name, owner, beginning, ttl of each."""
        count = len(holds)
        parts = [self._scripts["keep"].command(count + 1, 4 * count + 2), self.marker]
        parts += [bulk(self.naming.lock_key(name)) for name, _, _, _ in holds]
        parts.append(vote)
        for _, owner, begin, ttl in holds:
            parts.append(bulk(owner.encode()) + before(begin) + bulk(b"%d" % millis(ttl)))
        return b"".join(parts)

    def look(self, names: Sequence[str]) -> bytes:
        count = len(names)
        words = [self.plain(name) for name in names]
        return self._scripts["look"].command(3 * count, 3 * count) + b"".join(
            [one.keys for one in words]
        )

    def force(self, name: str, vote: bytes, least: int, record: str) -> bytes:
        words = self.plain(name)
        keys = words.keys + self.marker + bulk(self.naming.audit) + self.counters
        return (
            self._scripts["force"].command(6, 10)
            + keys
            + vote
            + bulk(b"%d" % least)
            + bulk(record.encode())
            + bulk(AUDIT_RECORDS)
        )

    # For a node that comes back.

    def begin(
        self, run_id: bytes, incarnation: bytes, how: bytes, life: int, roster: bytes = b""
    ) -> bytes:
        keys = self.marker + self.beginning
        arguments = [run_id, incarnation, how, b"%d" % life, roster]
        return self._scripts["begin"].command(2, 7) + keys + b"".join(map(bulk, arguments))

    def seal(self, vote: bytes, name: str, life: int) -> bytes:
        keys = self.marker + self.counters
        arguments = vote + bulk(name.encode()) + bulk(b"%d" % life)
        return self._scripts["seal"].command(2, 5) + keys + arguments

    def admit(
        self,
        run_id: bytes,
        incarnation: bytes,
        life: int,
        base: int,
        max_ttl: float,
        members: Sequence[str],
        known: bytes,
        roster: bytes = b"",
    ) -> bytes:
        keys = self.marker + self.beginning + self.counters
        arguments: list[Any] = [
            run_id,
            incarnation,
            b"%d" % life,
            b"%d" % base,
            b"%d" % millis(max_ttl),
            members_text(members),
            known,
            roster,
        ]
        return self._scripts["admit"].command(3, 11) + keys + b"".join(map(bulk, arguments))


def before(begin: int) -> bytes:
    """How a node knows the hold that began so: by what its counter was before."""
    return bulk(b"%d" % (begin - 1))


def members_text(members: Sequence[str]) -> bytes:
    """The same for all clients, in whatever order they name the nodes."""
    return ",".join(sorted(members)).encode()
