"""How each node stands: whether it votes, in which life, or since when and why it does not.

A node's *marker* is a key on it that says in which incarnation it votes. The incarnation starts with
the server's `run_id`, which is new whenever the server starts: a marker that came back with a snapshot
is of an earlier life, and does not count.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Lock
from typing import NamedTuple

from ...clock import Clock
from ..redis.wire.protocol import bulk
from .members import Settings

US = b"\x1f"


class Marker(NamedTuple):
    incarnation: bytes
    life: int
    """Counts the times that this node came back; other nodes know it."""
    base: int
    """Where the counters began in this life."""
    max_ttl: int
    members: bytes
    known: bytes
    roster: bytes = b""
    """Of the first start with which it began; empty if it has come back since."""


def read_marker(text: bytes) -> Marker:
    incarnation, life, base, max_ttl, members, roster, known = text.split(US)
    return Marker(incarnation, int(life), int(base), int(max_ttl), members, known, roster)


def read_known(text: bytes) -> dict[str, int]:
    """The number of the life of other nodes, by their names."""
    known: dict[str, int] = {}
    for part in filter(None, text.split(b",")):
        name, _, number = part.rpartition(b"=")
        known[name.decode()] = int(number)
    return known


def merge_known(texts: list[bytes]) -> bytes:
    merged: dict[str, int] = {}
    for text in texts:
        for name, life in read_known(text).items():
            merged[name] = max(life, merged.get(name, 0))
    return ",".join(f"{name}={life}" for name, life in sorted(merged.items())).encode()


class Seat:
    """One node, as this client knows it."""

    __slots__ = (
        "base",
        "board",
        "index",
        "life",
        "name",
        "out",
        "ready",
        "roster",
        "since",
        "until",
        "vote",
    )

    def __init__(self, board: Board, index: int, name: str, since: float) -> None:
        self.board = board
        self.index = index
        self.name = name
        self.vote = b""
        """The incarnation in which it votes, as a part of a command; empty: it does not vote. It may
        change at any moment: a command is made from one look at it."""
        self.life = 0
        self.roster = b""
        """Of a first start that has begun, as this node has shown; it may be out by now."""
        self.base = 0
        self.ready = False
        """It has answered, and is on its way to vote."""
        self.out = "not reached yet"
        self.since = since
        self.until: float | None = None
        """When it may vote again, where that can be said."""

    def votes(self, marker: Marker) -> None:
        self.life = marker.life
        if marker.roster:
            self.roster, self.base = marker.roster, marker.base
        self.vote = bulk(marker.incarnation)
        self.out = ""
        self.until = None
        self.board.changed()

    def is_out(self, reason: str, until: float | None = None) -> None:
        if self.vote or not self.out:
            self.since = self.board.clock.now()
        self.out = reason
        self.until = until
        if self.vote:
            self.vote = b""
            self.board.changed()

    def __str__(self) -> str:
        if not self.out:
            return f"{self.name} votes"
        now = self.board.clock.now()
        text = f"{self.name} is out since {now - self.since:.1f} s: {self.out}"
        if self.until is not None:
            text += f"; for {max(0.0, self.until - now):.1f} s more"
        return text


class Board:
    """All nodes."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self.clock = clock
        self.quorum = settings.quorum
        self.node_timeout = settings.node_timeout
        self.durable = settings.durable
        now = clock.now()
        self.seats = [Seat(self, index, name, now) for index, name in enumerate(settings.members)]
        self.on_out: Callable[[], None] = lambda: None
        """Called when a node has gone out, so that somebody looks after it."""
        self.votes: tuple[bytes, ...] = ()
        """What each seat says, put together anew whenever one changes: a round takes one look at it."""
        self.lives: tuple[int, ...] = ()
        self._mutex = Lock()
        self.changed()
        self._compared: dict[bytes, list[tuple[int, int]]] = {}

    def changed(self) -> None:
        """Nodes may change at the same time, each by a thread of its own."""
        with self._mutex:
            # The lives last, since a round looks at them first: it may then take a vote for an older
            # one than it is, and drop it, but not for a newer one.
            self.votes = tuple([seat.vote for seat in self.seats])
            self.lives = tuple([seat.life for seat in self.seats])

    def voting(self) -> int:
        return len(self.votes) - self.votes.count(b"")

    def had_time(self, seconds: float) -> bool:
        """Whether a node that has not answered in that time is to blame, and not who had so little."""
        return seconds >= self.node_timeout / 2

    def failed(self, index: int, reason: str) -> None:
        """A node did not answer, or not as one that votes."""
        seat = self.seats[index]
        if seat.vote and reason:
            seat.is_out(reason)
            self.on_out()

    def superseded(self, known: bytes, counted: list[int], life_of: Sequence[int]) -> list[int]:
        """Those of the counted nodes of which `known` tells a later life than the one they voted in."""
        lives = self._compared.get(known)
        if lives is None:
            index_of = {seat.name: seat.index for seat in self.seats}
            lives = [(index_of[n], life) for n, life in read_known(known).items() if n in index_of]
            if len(self._compared) > 64:
                self._compared.clear()
            self._compared[known] = lives
        return [i for i, life in lives if i in counted and life > life_of[i]]

    def out(self) -> tuple[str, ...]:
        """The nodes that do not vote, in words."""
        return tuple(str(seat) for seat in self.seats if not seat.vote)


def why(error: Exception) -> str:
    """Why a node is out that answered so; empty: it is not out, only the request was refused."""
    text = str(error)
    if text.startswith("HFLEFT"):
        return ""
    if text.startswith("NOSCRIPT"):
        return "it has forgotten our scripts"
    if text.startswith("HFOUT"):
        return "it does not vote any more, or in another life"
    return text[:200]


def run_id_in(vote: bytes) -> bytes:
    """Of the server that votes so."""
    return vote.split(b"\r\n")[1].partition(b".")[0]


def run_id_of(info: object) -> bytes:
    """From the answer to INFO; empty if it does not say."""
    if isinstance(info, str):
        info = info.encode()
    if isinstance(info, bytes):
        _, _, rest = info.partition(b"\nrun_id:")
        return rest.partition(b"\n")[0].strip()
    return b""
