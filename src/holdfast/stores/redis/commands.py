"""The commands of one connection, packed: all but the owner is kept ready for the next time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from ...entries import MISSED_HEARTBEATS, Claim
from ...model import Label
from .answers import millis, request
from .keys import Naming
from .lua import scripts
from .wire.protocol import bulk

CACHED = 4096
AUDIT_RECORDS = b"1000"
TOMBSTONE = bulk(b"60000")
"""Milliseconds for which a request that arrives after its owner has left is refused."""


class Asked(Protocol):
    """The terms of a ticket, as far as they matter here."""

    name: str
    ttl: float
    label: Label
    weight: int
    capacity: int
    kind: str
    barge: bool


class Prepared:
    """The beginning of a request for one lock; the channel and the owner follow it."""

    __slots__ = ("barge", "capacity", "command", "kind", "label", "ttl", "weight")

    def __init__(self, terms: Asked, command: bytes) -> None:
        self.ttl = terms.ttl
        self.kind = terms.kind
        self.weight = terms.weight
        self.capacity = terms.capacity
        self.barge = terms.barge
        self.label = terms.label
        self.command = command


class Commands:
    def __init__(self, naming: Naming, heartbeat: float, claim_window: float) -> None:
        self.naming = naming
        self._patience = heartbeat * MISSED_HEARTBEATS
        self._claim_window = claim_window
        self._scripts = scripts()
        self._asks: dict[str, Prepared] = {}
        self._releases: dict[str, bytes] = {}

    @property
    def loads(self) -> list[bytes]:
        """They bring every script to the server."""
        return [script.load for script in self._scripts.values()]

    def ask(self, terms: Asked) -> bytes:
        kept = self._asks.get(terms.name)
        if (
            kept is None
            or kept.ttl != terms.ttl
            or kept.kind != terms.kind
            or kept.weight != terms.weight
            or kept.capacity != terms.capacity
            or kept.barge != terms.barge
            or kept.label is not terms.label
        ):
            kept = self._prepare(terms)
        return kept.command

    def _prepare(self, terms: Asked) -> Prepared:
        asked = request(
            terms.ttl,
            self._claim_window,
            self._patience,
            terms.barge,
            terms.weight,
            terms.capacity,
            terms.kind,
            terms.label,
        )
        command = (
            self._start("acquire", terms.name, 5)
            + bulk(asked)
            + bulk(b"%d" % millis(terms.ttl))
            + bulk(b"%d" % millis(self._patience))
        )
        made = Prepared(terms, command)
        _keep(self._asks, terms.name, made)
        return made

    def release(self, name: str, owner: str) -> bytes:
        command = self._releases.get(name)
        if command is None:
            command = self._start("release", name, 1)
            _keep(self._releases, name, command)
        return b"%b$%d\r\n\x1f%b\x1f\r\n" % (command, len(owner) + 2, owner.encode())

    def release_doubtful(self, name: str, owner: str) -> bytes:
        """Also refuses whatever of this owner may still arrive."""
        between = bulk(b"\x1f%b\x1f" % owner.encode())
        return self._start("release", name, 2) + between + TOMBSTONE

    def keep(self, claims: Sequence[Claim]) -> bytes:
        """One command for all of them."""
        count = len(claims)
        keys = self.naming.packed([name for name, _, _ in claims])
        owners = [f"${len(owner) + 2}\r\n\x1f{owner}\x1f\r\n" for _, owner, _ in claims]
        times = [ttl for _, _, ttl in claims]
        if times.count(times[0]) == count:
            del times[1:]  # one for all
        limits = [bulk(b"%d" % millis(ttl)) for ttl in times]
        head = self._scripts["keep"].command(count, 2 * count + len(times))
        return b"".join([head, keys, "".join(owners).encode(), *limits])

    def beat(self, claim: Claim) -> bytes:
        ttl = bulk(b"%d" % millis(claim.ttl))
        return self._start("beat", claim.name, 2) + ttl + bulk(claim.owner.encode())

    def look(self, name: str) -> bytes:
        return self._start("look", name, 0)

    def force(self, name: str, actor: str) -> bytes:
        record = bulk(f"{actor} released {name}".encode()) + bulk(AUDIT_RECORDS)
        return self._start("force", name, 2, self.naming.audit_of(name)) + record

    def _start(self, script: str, name: str, arguments: int, *more: bytes) -> bytes:
        """A call of a script for one lock, up to its arguments, so many of which follow."""
        lock, queue, counter, guard = self.naming.of(name)
        keys = [lock, queue, counter, *more, *([guard] if guard else ())]
        command = self._scripts[script].command(len(keys), len(keys) + arguments)
        return command + b"".join(map(bulk, keys))


def _keep(cache: dict[str, Any], name: str, command: object) -> None:
    if len(cache) >= CACHED:
        cache.clear()
    cache[name] = command
