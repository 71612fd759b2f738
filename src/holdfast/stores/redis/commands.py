"""The commands for one namespace, packed. All but the owner is kept ready for the next time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from ...entries import MISSED_HEARTBEATS, Claim
from ...model import Label
from .answers import millis, request
from .keys import Naming
from .lua import scripts
from .wire.protocol import bulk

CACHED_COMMANDS = 4096
AUDIT_RECORDS = b"1000"
TOMBSTONE = bulk(b"60000")
"""Milliseconds for which a late request of an owner that has left is refused."""


class LockTerms(Protocol):
    """The terms of a ticket, as far as a command depends on them."""

    name: str
    ttl: float
    label: Label
    weight: int
    capacity: int
    kind: str
    barge: bool
    delay: float


class AcquireCommand:
    """The beginning of the command that acquires one lock; the channel and the owner follow it."""

    __slots__ = (
        "arguments",
        "barge",
        "capacity",
        "command",
        "delay",
        "keys",
        "kind",
        "label",
        "ttl",
        "weight",
    )

    def __init__(self, terms: LockTerms, command: bytes, keys: bytes, arguments: bytes) -> None:
        self.ttl = terms.ttl
        self.kind = terms.kind
        self.weight = terms.weight
        self.capacity = terms.capacity
        self.barge = terms.barge
        self.delay = terms.delay
        self.label = terms.label
        self.command = command
        self.keys = keys
        """The keys of the lock, packed."""
        self.arguments = arguments
        """The request and the TTL, packed."""


class Commands:
    """The commands of one manager."""

    def __init__(self, naming: Naming, heartbeat: float, claim_window: float) -> None:
        self.naming = naming
        self._patience = heartbeat * MISSED_HEARTBEATS
        self._claim_window = claim_window
        self._scripts = scripts()
        self._acquires: dict[str, AcquireCommand] = {}
        self._releases: dict[str, bytes] = {}
        self._lock_keys: dict[str, bytes] = {}

    @property
    def script_loads(self) -> list[bytes]:
        """The commands that load every script into a server."""
        return [script.load for script in self._scripts.values()]

    def acquire_all(self, prepared: Sequence[AcquireCommand], owners: Sequence[str]) -> bytes:
        """Returns one command that acquires all these locks, each for one owner. Not for a cluster."""
        count = 3 * len(owners)
        parts = [self._scripts["acquire_all"].command(count, 2 * count)]
        parts += [one.keys for one in prepared]
        for one, owner in zip(prepared, owners, strict=True):
            parts.append(b"%b$%d\r\n%b\r\n" % (one.arguments, len(owner), owner.encode()))
        return b"".join(parts)

    def acquire(self, terms: LockTerms) -> AcquireCommand:
        """Returns the command for these terms; the channel and the owner follow it."""
        cached = self._acquires.get(terms.name)
        if (
            cached is None
            or cached.ttl != terms.ttl
            or cached.kind != terms.kind
            or cached.weight != terms.weight
            or cached.capacity != terms.capacity
            or cached.barge != terms.barge
            or cached.delay != terms.delay
            or cached.label is not terms.label
        ):
            cached = self._pack_acquire(terms)
        return cached

    def _pack_acquire(self, terms: LockTerms) -> AcquireCommand:
        arguments = bulk(self._request(terms)) + bulk(b"%d" % millis(terms.ttl))
        call = self._script_call("acquire", terms.name, 5)
        command = call + arguments + bulk(b"%d" % millis(self._patience))
        keys = b"".join(map(bulk, self.naming.of(terms.name)[:3]))
        prepared = AcquireCommand(terms, command, keys, arguments)
        _keep_cached(self._acquires, terms.name, prepared)
        return prepared

    def _request(self, terms: LockTerms) -> bytes:
        return request(
            terms.ttl,
            self._claim_window + terms.delay,
            self._patience,
            terms.barge,
            terms.weight,
            terms.capacity,
            terms.kind,
            terms.label,
        )

    def release(self, name: str, owner: str) -> bytes:
        command = self._releases.get(name)
        if command is None:
            command = self._script_call("release", name, 1)
            _keep_cached(self._releases, name, command)
        return b"%b$%d\r\n\x1f%b\x1f\r\n" % (command, len(owner) + 2, owner.encode())

    def release_and_refuse(self, name: str, owner: str) -> bytes:
        """Returns a release that also refuses any request of this owner that arrives later."""
        between = bulk(b"\x1f%b\x1f" % owner.encode())
        return self._script_call("release", name, 2) + between + TOMBSTONE

    def release_all(self, pairs: Sequence[tuple[str, str]]) -> bytes:
        """Returns one command that releases the lock of each name and owner, where it can."""
        parts = [self._scripts["release_all"].command(len(pairs), 2 * len(pairs))]
        for name, _ in pairs:
            key = self._lock_keys.get(name)
            if key is None:
                key = bulk(self.naming.lock_key(name))
                _keep_cached(self._lock_keys, name, key)
            parts.append(key)
        owners = "".join([f"${len(owner) + 2}\r\n\x1f{owner}\x1f\r\n" for _, owner in pairs])
        parts.append(owners.encode())
        return b"".join(parts)

    def renew_many(self, claims: Sequence[Claim]) -> bytes:
        """Returns one command that renews the leases of all `claims`, of locks with one holder each."""
        count = len(claims)
        keys = self.naming.packed([name for name, _, _ in claims])
        owners = [f"${len(owner) + 2}\r\n\x1f{owner}\x1f\r\n" for _, owner, _ in claims]
        times = [ttl for _, _, ttl in claims]
        if times.count(times[0]) == count:
            del times[1:]  # one for all
        limits = [bulk(b"%d" % millis(ttl)) for ttl in times]
        head = self._scripts["keep"].command(count, 2 * count + len(times))
        return b"".join([head, keys, "".join(owners).encode(), *limits])

    def renew_one(self, claim: Claim) -> bytes:
        """Returns the heartbeat of one waiter, or the renewal of one lease of any kind."""
        ttl = bulk(b"%d" % millis(claim.ttl))
        return self._script_call("beat", claim.name, 2) + ttl + bulk(claim.owner.encode())

    def inspect(self, name: str) -> bytes:
        return self._script_call("look", name, 0)

    def force_release(self, name: str, actor: str, above: int) -> bytes:
        record = bulk(f"{actor} released {name}".encode()) + bulk(AUDIT_RECORDS)
        call = self._script_call("force", name, 4, self.naming.audit_of(name))
        return call + record + bulk(self.naming.recalls) + bulk(b"%d" % above)

    def amend(self, name: str, owner: str, weight: int, text: str | None) -> bytes:
        arguments = [owner.encode(), b"%d" % weight]
        if text is not None:
            arguments.append(text.encode())
        call = self._script_call("amend", name, len(arguments))
        return call + b"".join(map(bulk, arguments))

    def detach(self, name: str, owner: str, ttl: float) -> bytes:
        call = self._script_call("detach", name, 2)
        return call + bulk(owner.encode()) + bulk(b"%d" % millis(ttl))

    def adopt(self, terms: LockTerms, giver: str, owner: str) -> bytes:
        asked = bulk(self._request(terms))
        call = self._script_call("adopt", terms.name, 4)
        return call + asked + bulk(giver.encode()) + bulk(owner.encode()) + TOMBSTONE

    def observe(self, name: str, seconds: float, after: int) -> bytes:
        """Returns the beginning of a look at an election; the channel and the owner follow it."""
        call = self._script_call("observe", name, 4)
        return call + bulk(b"%d" % millis(seconds)) + bulk(b"%d" % after)

    def unobserve(self, name: str) -> bytes:
        """Returns the beginning of the end of a look at an election; channel and owner follow it."""
        return self._script_call("unobserve", name, 2)

    def _script_call(self, script: str, name: str, arguments: int, *more: bytes) -> bytes:
        """Returns a call of `script` for one lock, up to its arguments, so many of which follow."""
        lock, queue, counter, guard = self.naming.of(name)
        keys = [lock, queue, counter, *more, *([guard] if guard else ())]
        command = self._scripts[script].command(len(keys), len(keys) + arguments)
        return command + b"".join(map(bulk, keys))


def _keep_cached(cache: dict[str, Any], name: str, command: object) -> None:
    if len(cache) >= CACHED_COMMANDS:
        cache.clear()
    cache[name] = command
