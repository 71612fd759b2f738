"""The membership: which nodes vote, in which incarnation; or why a node does not, and since when.

A node's *marker* is a key on it that says in which incarnation it votes. The incarnation starts with
the server's `run_id`, which is new whenever the server starts: a marker that came back with a snapshot
names an earlier incarnation, and does not count. The *life* of a node is the number of its incarnation:
it orders them, and other nodes remember the latest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Lock
from typing import NamedTuple

from ...clock import Clock
from ..redis.wire.protocol import bulk
from ..redis.wire.refusals import UNABLE, code_of
from .address import Settings

US = b"\x1f"
REFUSED = UNABLE | {"NOPERM"}
"""Refusals of a node that may grant other requests, such as renewals."""


class Marker(NamedTuple):
    """The contents of the marker key."""

    incarnation: bytes
    life: int
    """The number of the incarnation: one more each time that the node comes back."""
    base: int
    """The number at which the counters began in this incarnation."""
    max_ttl: int
    members: bytes
    known: bytes
    """The lives of other nodes, see `read_known`."""
    roster: bytes = b""
    """The id of the first start with which the node began; empty if it has come back since."""


def read_marker(text: bytes) -> Marker:
    """Returns the marker in `text`; raises ValueError if that is not one."""
    incarnation, life, base, max_ttl, members, roster, known = text.split(US)
    return Marker(incarnation, int(life), int(base), int(max_ttl), members, known, roster)


def read_known(text: bytes) -> dict[str, int]:
    """Returns the lives of nodes that a node knows of, by their names."""
    known: dict[str, int] = {}
    for part in filter(None, text.split(b",")):
        name, _, number = part.rpartition(b"=")
        known[name.decode()] = int(number)
    return known


def merge_known(texts: list[bytes]) -> bytes:
    """Returns the latest life of each node that is known in any of `texts`."""
    merged: dict[str, int] = {}
    for text in texts:
        for name, life in read_known(text).items():
            merged[name] = max(life, merged.get(name, 0))
    return ",".join(f"{name}={life}" for name, life in sorted(merged.items())).encode()


class NodeState:
    """The state of one node, as this client knows it."""

    __slots__ = (
        "base",
        "incarnation",
        "index",
        "life",
        "name",
        "out_reason",
        "out_since",
        "out_until",
        "roster",
        "table",
    )

    def __init__(self, table: NodeTable, index: int, name: str, since: float) -> None:
        self.table = table
        self.index = index
        self.name = name
        self.incarnation = b""
        """The incarnation in which the node votes, as an argument of a command; empty while it does not
        vote. It may change at any moment, so a command is made from one read of it."""
        self.life = 0
        self.roster = b""
        """The id of the first start with which this node once began to vote; it may be out by now."""
        self.base = 0
        self.out_reason = "not reached yet"
        self.out_since = since
        self.out_until: float | None = None
        """The moment at which the node may vote again, where that is known."""

    def let_vote(self, marker: Marker) -> None:
        """Notes that the node votes, as `marker` says."""
        self.life = marker.life
        if marker.roster:
            self.roster, self.base = marker.roster, marker.base
        self.incarnation = bulk(marker.incarnation)
        self.out_reason = ""
        self.out_until = None
        self.table.refresh()

    def put_out(self, reason: str, until: float | None = None) -> None:
        """Notes that the node does not vote, why, and `until` when, where that is known."""
        if self.incarnation or not self.out_reason:
            self.out_since = self.table.clock.now()
        self.out_reason = reason
        self.out_until = until
        if self.incarnation:
            self.incarnation = b""
            self.table.refresh()

    def __str__(self) -> str:
        if not self.out_reason:
            return f"{self.name} votes"
        now = self.table.clock.now()
        text = f"{self.name} has been out for {now - self.out_since:.1f} s: {self.out_reason}"
        if self.out_until is not None:
            text += f"; it may vote again in {max(0.0, self.out_until - now):.1f} s"
        return text


class NodeTable:
    """The states of all nodes."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self.clock = clock
        self.quorum = settings.quorum
        self.node_timeout = settings.node_timeout
        self.durable = settings.durable
        now = clock.now()
        self.nodes = [
            NodeState(self, index, name, now) for index, name in enumerate(settings.members)
        ]
        self.on_out: Callable[[], None] = lambda: None
        """The function to call when a node has gone out, so that it is looked after."""
        self.incarnations: tuple[bytes, ...] = ()
        """The incarnation of each node: a new tuple whenever one changes, for a round to read once."""
        self.lives: tuple[int, ...] = ()
        """The life of each node, likewise."""
        self._mutex = Lock()
        self.refresh()
        self._compared: dict[bytes, list[tuple[int, int]]] = {}

    def refresh(self) -> None:
        """Makes `incarnations` and `lives` anew. Several threads may each have changed a node."""
        with self._mutex:
            # The lives last, since a round reads them first: it may then take a vote for older than it
            # is, and drop it, but never for newer.
            self.incarnations = tuple([node.incarnation for node in self.nodes])
            self.lives = tuple([node.life for node in self.nodes])

    def voting_count(self) -> int:
        """Returns how many nodes vote."""
        return len(self.incarnations) - self.incarnations.count(b"")

    def is_enough_time(self, seconds: float) -> bool:
        """Returns whether a node that has not replied within `seconds` is at fault."""
        return seconds >= self.node_timeout / 2

    def report_failure(self, index: int, reason: str) -> None:
        """Puts a node out that did not reply as a voting node does, unless `reason` is empty."""
        node = self.nodes[index]
        if node.incarnation and reason:
            node.put_out(reason)
            self.on_out()

    def find_superseded(
        self, known: bytes, counted: list[int], life_of: Sequence[int]
    ) -> list[int]:
        """Returns the `counted` nodes of which `known` has a later life than `life_of`."""
        lives = self._compared.get(known)
        if lives is None:
            index_of = {node.name: node.index for node in self.nodes}
            lives = [(index_of[n], life) for n, life in read_known(known).items() if n in index_of]
            if len(self._compared) > 64:
                self._compared.clear()
            self._compared[known] = lives
        return [i for i, life in lives if i in counted and life > life_of[i]]

    def describe_out(self) -> tuple[str, ...]:
        """Returns a line of text for each node that does not vote."""
        return tuple(str(node) for node in self.nodes if not node.incarnation)


def is_refusal(reply: object) -> bool:
    """Returns whether `reply` is that of a node which votes, and cannot write now, or not for us."""
    return isinstance(reply, Exception) and code_of(reply) in REFUSED


def failure_reason(error: Exception) -> str:
    """Returns why a node that replies with `error` is out; empty if only the request was refused."""
    text = str(error)
    if text.startswith("HFLEFT") or is_refusal(error):
        return ""
    if text.startswith("NOSCRIPT"):
        return "it has lost our scripts"
    if text.startswith("HFOUT"):
        return "it does not vote any more, or in another incarnation"
    return text[:200]


def run_id_in(incarnation: bytes) -> bytes:
    """Returns the run_id of the server that votes in `incarnation`, an argument of a command."""
    return incarnation.split(b"\r\n")[1].partition(b".")[0]


def run_id_of(info: object) -> bytes:
    """Returns the run_id in the reply to INFO; empty if there is none."""
    if isinstance(info, str):
        info = info.encode()
    if isinstance(info, bytes):
        _, _, rest = info.partition(b"\nrun_id:")
        return rest.partition(b"\n")[0].strip()
    return b""
