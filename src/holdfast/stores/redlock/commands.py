"""The commands to a node, packed. They differ from node to node in the incarnation, near the end."""

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
"""Counters for all locks: so many that two locks hardly ever share one, in bounded memory."""
CACHED = 4096
"""Locks whose command prefixes are kept."""
AUDIT_RECORDS = b"1000"
MARKED, UNMARKED = bulk(b"60000"), bulk(b"0")
"""Milliseconds for which a tombstone refuses a request that arrives after its owner has left."""
WAKING, QUIET = bulk(b"1"), bulk(b"0")
SEPARATOR = "\x1f"
EMPTY = bulk(b"")
LETTERS = {"election": "e", "once": "o"}
"""By kind of lock: the letter behind the pid in a request, as `kind_of.lua` knows it. Plain locks have
none; locks that several may hold have one for each mode, see `shared_commands`."""


class LockTerms(Protocol):
    """The part of a ticket's terms that goes into commands."""

    name: str
    ttl: float
    label: Label
    kind: str
    capacity: int
    weight: int


class BatchCommand:
    """A command that carries several requests of a kind."""

    __slots__ = ("_arguments", "_first", "_keys", "_keys_first", "_last", "_script")

    def __init__(
        self, script: Script, keys_first: int, first: bytes, keys: int, arguments: int, last: int
    ) -> None:
        self._script = script
        self._keys_first = keys_first
        self._first = first
        self._keys = keys
        """The number of keys for each request."""
        self._arguments = arguments
        self._last = last

    def pack(self, keys: Sequence[bytes], arguments: Sequence[bytes], last: bytes) -> bytes:
        """Returns one command for all requests, of which each has one of `keys` and of `arguments`."""
        count = len(keys)
        names = self._keys_first + count * self._keys
        head = self._script.command(names, names + count * self._arguments + self._last)
        return b"".join([head, self._first, *keys, *arguments, last])


class BatchItem(NamedTuple):
    """A request that may go in one command with others."""

    command: BatchCommand
    keys: bytes
    arguments: bytes
    last: Sequence[bytes]
    """For each node: the last argument of the command, which all requests have to share."""


class CommandPrefixes(NamedTuple):
    """The beginnings of the commands for one lock; the docstring of each says what has to follow."""

    ttl: float
    label: Label
    kind: str
    take: bytes
    """For `take.lua`; the round's id and the incarnation follow."""
    request: bytes
    """The arguments of a request in `take_batch.lua`; the round's id follows."""
    raise_: bytes
    """For `raise.lua`; the token, `packed_before`, the incarnation and the round's id follow."""
    release: bytes
    """For `free.lua` of a lease; the round's id follows."""
    free: bytes
    """For `free.lua`; the round's id, the tombstone's ms, and whether to wake a waiter follow."""
    wait: bytes
    """For `wait.lua`; the channel and the owner follow."""
    leave: bytes
    """For `leave.lua`; the owner follows."""
    leave_late: bytes
    """For `leave.lua`, with a tombstone that refuses a late request to wait; the owner and `lateness`
    follow."""
    keys: bytes
    """The keys of the lock, its queue and its counter."""
    request_keys: bytes
    """The keys of a request in `take_batch.lua`: the counter and the lock."""
    lock: bytes
    both: bytes
    """The keys of the lock and its queue."""
    counter: bytes
    mode: bytes = EMPTY
    """The part of a lock that several may hold, packed; see `shared_commands`."""
    slot: int | None = None
    """The slot of a semaphore."""


class Renewal(NamedTuple):
    """A hold that is to be renewed on one node."""

    name: str
    packed_id: bytes
    """The round's id, as an argument of a command."""
    begin: int
    ttl: float
    mode: bytes = EMPTY
    """As in `CommandPrefixes`."""


class Commands:
    """All commands of one namespace."""

    def __init__(self, namespace: str, heartbeat: float) -> None:
        self.naming = Naming(namespace, None)
        space = self.naming.audit.removesuffix(b":audit")
        self.marker_key = space + b":redlock:marker"
        self.marker = bulk(self.marker_key)
        self.beginning = bulk(space + b":redlock:beginning")
        self.counters = bulk(space + b":redlock:counters")
        """The list of the counters in use."""
        self._counter = space + b":redlock:counter:"
        self.heartbeat = heartbeat
        self.patience = heartbeat * MISSED_HEARTBEATS
        """Seconds without a heartbeat after which a node forgets a waiter."""
        self.lateness = bulk(b"%d" % millis(self.patience))
        self.scripts = lua.scripts()
        self._prefixes: dict[str, CommandPrefixes] = {}
        take, free = self.scripts["take_batch"], self.scripts["free_batch"]
        self.take_batch = BatchCommand(take, 2, self.counters + self.marker, 2, 3, 1)
        self.release_batch = BatchCommand(free, 0, b"", 1, 1, 0)

    @property
    def first_commands(self) -> list[bytes]:
        """The first commands on a connection: the run_id, the marker, and which scripts are missing."""
        digests = [script.digest for script in self.scripts.values()]
        return [
            pack(b"INFO", b"server"),
            pack(b"GET", self.marker_key),
            pack(b"SCRIPT", b"EXISTS", *digests),
        ]

    @property
    def loads(self) -> list[bytes]:
        """The commands that load every script into the server."""
        return [script.load for script in self.scripts.values()]

    def prefixes_for(self, terms: LockTerms) -> CommandPrefixes:
        """Returns the prefixes for the lock and the TTL of `terms`."""
        kept = self._prefixes.get(terms.name)
        if (
            kept is None
            or kept.ttl != terms.ttl
            or kept.label is not terms.label
            or kept.kind != terms.kind
        ):
            kept = self._prepare(terms.name, terms.ttl, terms.label, terms.kind)
        return kept

    def _prepare(self, name: str, ttl: float, label: Label, kind: str = "lock") -> CommandPrefixes:
        keys = self.naming.of(name)
        lock, both = bulk(keys.lock), bulk(keys.lock) + bulk(keys.queue)
        counter = self._packed_counter(keys.lock)
        request = packed_request(ttl, label, LETTERS.get(kind, ""))
        arguments = bulk(b"%d" % millis(ttl)) + request
        scripts = self.scripts
        prefixes = CommandPrefixes(
            ttl,
            label,
            kind,
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
            both,
            counter,
        )
        if len(self._prefixes) >= CACHED:
            self._prefixes.clear()
        self._prefixes[name] = prefixes
        return prefixes

    def _packed_counter(self, lock_key: bytes) -> bytes:
        return bulk(self._counter + b"%d" % (crc32(lock_key) % STRIPES))

    def any_prefixes(self, name: str) -> CommandPrefixes:
        """Returns prefixes for the lock `name`, of whatever TTL: for commands that request nothing."""
        return self._prefixes.get(name) or self._prepare(name, 1.0, Label("", 0))

    def renew(self, incarnation: bytes, holds: Sequence[Renewal]) -> bytes:
        """Returns the command that renews `holds`."""
        count = len(holds)
        parts = [self.scripts["renew"].command(count + 1, 5 * count + 2), self.marker]
        parts += [bulk(self.naming.lock_key(hold.name)) for hold in holds]
        parts.append(incarnation)
        for _, packed_id, begin, ttl, mode in holds:
            parts.append(packed_id + packed_before(begin) + bulk(b"%d" % millis(ttl)) + mode)
        return b"".join(parts)

    def inspect(self, names: Sequence[str]) -> bytes:
        """Returns the command that reads the locks `names` on a node."""
        count = len(names)
        parts = [self.scripts["inspect"].command(3 * count, 3 * count)]
        for keys in map(self.naming.of, names):
            parts += bulk(keys.lock), bulk(keys.queue), self._packed_counter(keys.lock)
        return b"".join(parts)

    def adopt(self, prefixes: CommandPrefixes, request: bytes, giver: bytes) -> bytes:
        """Returns the beginning of `adopt.lua`, as `CommandPrefixes.take` is one of `take.lua`.

        `request` is packed, and so is `giver`, the id of the giver's round.
        """
        keys = self.counters + self.marker + prefixes.request_keys
        ttl = bulk(b"%d" % millis(prefixes.ttl))
        return self.scripts["adopt"].command(4, 10) + keys + prefixes.mode + ttl + request + giver

    def find(self, name: str, owner: str, heir: str) -> bytes:
        """Returns the command that finds the holds of an attempt, and those that its `heir` adopted."""
        lock = self.any_prefixes(name).lock
        return (
            self.scripts["find"].command(1, 3) + lock + bulk(owner.encode()) + bulk(heir.encode())
        )

    def free_any(self, name: str, owner: str) -> bytes:
        """Returns the command that gives back whatever an attempt holds, with a tombstone."""
        both = self.any_prefixes(name).both
        return self.scripts["free_any"].command(2, 4) + both + bulk(owner.encode()) + MARKED

    def detach(self, prefixes: CommandPrefixes, ttl: float) -> bytes:
        """Returns the beginning of `detach.lua`; the incarnation, `packed_before` and the round's id
        follow."""
        head = self.scripts["detach"].command(2, 7) + prefixes.lock + self.marker
        return head + bulk(b"%d" % millis(ttl)) + prefixes.mode

    def amend(self, prefixes: CommandPrefixes, version: int, text: str, downgrade: bool) -> bytes:
        """Returns the beginning of `amend.lua`; what follows is as for `detach`.

        `version`: the number of this change of the text; 0 if there is none.
        """
        head = self.scripts["amend"].command(4, 11) + prefixes.keys + self.marker
        words = bulk(b"%d" % version) + bulk(text.encode()) + bulk(b"%d" % downgrade)
        return head + words + prefixes.mode

    def force(self, name: str, incarnation: bytes, least: int, record: str) -> bytes:
        """Returns the command that ends a hold by force, and leaves the counter at `least` or above."""
        prefixes = self.any_prefixes(name)
        keys = prefixes.keys + self.marker + bulk(self.naming.audit) + self.counters
        return (
            self.scripts["force"].command(6, 10)
            + keys
            + incarnation
            + bulk(b"%d" % least)
            + bulk(record.encode())
            + bulk(AUDIT_RECORDS)
        )

    # Recovery.

    def begin(
        self, run_id: bytes, incarnation: bytes, how: bytes, life: int, roster: bytes = b""
    ) -> bytes:
        """Returns the command by which a node begins to come back; see begin.lua."""
        keys = self.marker + self.beginning
        arguments = [run_id, incarnation, how, b"%d" % life, roster]
        return self.scripts["begin"].command(2, 7) + keys + b"".join(map(bulk, arguments))

    def seal(self, incarnation: bytes, name: str, life: int) -> bytes:
        """Returns the command that tells a voting node of another's `life`; see seal.lua."""
        keys = self.marker + self.counters
        arguments = incarnation + bulk(name.encode()) + bulk(b"%d" % life)
        return self.scripts["seal"].command(2, 5) + keys + arguments

    @property
    def highest(self) -> bytes:
        """The command that reads the highest counter of a node, which need not vote, and its clock."""
        return self.scripts["highest"].command(2, 2) + self.marker + self.counters

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
        """Returns the command that lets a node vote; see admit.lua."""
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
        return self.scripts["admit"].command(3, 11) + keys + b"".join(map(bulk, arguments))


def packed_request(ttl: float, label: Label, letter: str) -> bytes:
    """Returns the part of a hold, and of a waiter, that says who it is; packed."""
    host = label.host.replace(SEPARATOR, "")
    fields = (str(millis(ttl)), host, f"{label.pid}{letter}", label.text)
    return bulk(SEPARATOR.join(fields).encode())


def packed_before(begin: int) -> bytes:
    """Returns the counter from before the hold that began at `begin`: so a node knows that hold."""
    return bulk(b"%d" % (begin - 1))


def members_text(members: Sequence[str]) -> bytes:
    """Returns `members` as the marker has them: in one order, whatever order a client names them in."""
    return ",".join(sorted(members)).encode()
