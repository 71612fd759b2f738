"""The searches: the shipped variant in several sizes, every broken one where it breaks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import combinations_with_replacement

from . import recovery
from .packing import Packing, Plain
from .rules import BY_THE_CLOCK, SHIPPED, Rules
from .search import Found, World, search
from .state import State, start
from .with_clocks import WithClocks
from .without_clocks import WithoutClocks


@dataclass(frozen=True, slots=True)
class Size:
    """The number of everything in a search. Nothing else is bounded."""

    nodes: int = 3
    attempts: int = 2
    """The number of rounds, of any number of clients."""
    repeats: int = 0
    """The number of times that an acquire arrives again where it has arrived before."""
    restarts: int = 0
    snapshots: int = 0
    ttl: int = 0
    """The TTL in ticks; 0: without clocks."""
    tombstones: bool = False
    counters: tuple[int, ...] | None = None
    """The counters at the beginning; None: all counters up to `spread` apart."""
    spread: int = 1

    def starts(self) -> list[State]:
        counters = [self.counters] if self.counters else self._counters()
        return [
            start(
                values,
                self.attempts,
                repeats=self.repeats,
                restarts=self.restarts,
                snapshots=self.snapshots,
            )
            for values in counters
        ]

    def _counters(self) -> list[tuple[int, ...]]:
        """Returns the first states. Rounds that were given up leave counters apart."""
        ways = combinations_with_replacement(range(self.spread + 1), self.nodes)
        return [way for way in ways if way[0] == 0]

    def packing(self) -> Packing:
        return Packing(self.nodes, self.attempts)

    def world(self, rules: Rules) -> World[State]:
        if self.ttl:
            return WithClocks(rules, self.nodes, self.ttl, tombstones=self.tombstones)
        return WithoutClocks(rules, self.nodes)

    def __str__(self) -> str:
        parts = [f"{self.nodes} nodes", f"{self.attempts} attempts"]
        for count, word in (
            (self.repeats, "repetition"),
            (self.restarts, "restart"),
            (self.snapshots, "snapshot"),
        ):
            if count:
                parts.append(f"{count} {word}{'s' if count > 1 else ''}")
        parts.append(f"ttl {self.ttl}" if self.ttl else "no clocks")
        if self.tombstones:
            parts.append("tombstones")
        if self.counters:
            parts.append("counters " + " ".join(map(str, self.counters)))
        else:
            parts.append(f"counters up to {self.spread} apart")
        return ", ".join(parts)


@dataclass(frozen=True, slots=True)
class Return:
    """The size of a search in which nodes start and come back, and nothing else happens."""

    nodes: int = 3
    clients: int = 2
    restarts: int = 1
    fresh: bool = False

    def starts(self) -> list[recovery.State]:
        return [recovery.beginning(self.nodes, self.clients, self.restarts, fresh=self.fresh)]

    def packing(self) -> Plain:
        return Plain(self.nodes, self.clients)

    def world(self, rules: Rules) -> World[recovery.State]:
        return recovery.RecoveryWorld(rules, self.nodes)

    def __str__(self) -> str:
        start = "never used before" if self.fresh else "in use"
        plural = "s" if self.restarts > 1 else ""
        return (
            f"{self.nodes} nodes {start}, {self.clients} clients, {self.restarts} restart{plural}"
        )


@dataclass(frozen=True, slots=True)
class Broken:
    name: str
    rules: Rules
    size: Size | Return
    small: bool = True
    """True if it is quick enough for every run of the tests."""


def run(rules: Rules, size: Size | Return) -> Found:
    if isinstance(size, Return):
        return search(size.world(rules), size.packing(), size.starts())
    return search(size.world(rules), size.packing(), size.starts())


SMALL: tuple[Size | Return, ...] = (
    Size(repeats=1),
    Size(restarts=1, counters=(0, 0, 0)),
    Size(ttl=1, tombstones=True, counters=(0, 0, 1)),
    Size(ttl=1, restarts=1, counters=(0, 0, 0)),
    Return(),
)
"""The sizes for every run of the tests."""

LARGE: tuple[Size | Return, ...] = (
    Size(repeats=2, spread=2),
    Size(attempts=3, spread=2),
    Size(attempts=3, repeats=1),
    Size(restarts=1, snapshots=1, spread=2),
    Size(restarts=1, snapshots=1, repeats=1, counters=(0, 1, 1)),
    Size(restarts=2),
    Size(attempts=3, restarts=1, counters=(0, 0, 1)),
    Size(nodes=5, counters=(0, 0, 0, 0, 1)),
    Size(nodes=5, restarts=1, counters=(0, 0, 0, 0, 0)),
    Size(ttl=2, repeats=1, tombstones=True),
    Size(ttl=2, restarts=1),
    Size(ttl=1, restarts=2, counters=(0, 0, 1)),
    Return(fresh=True),
)
"""The sizes for `python -m model`."""

SMALL_LOST: tuple[Size | Return, ...] = (
    Size(restarts=1, counters=(0, 0, 0)),
    Size(ttl=1, restarts=1, counters=(0, 0, 0)),
    Return(),
)
"""The sizes in which nodes come back by the clock, for every run of the tests."""

LARGE_LOST: tuple[Size | Return, ...] = (
    Size(restarts=1, snapshots=1),
    Size(restarts=2, counters=(0, 0, 0)),
    Size(attempts=3, restarts=1, counters=(0, 0, 1)),
    Size(nodes=5, restarts=1, counters=(0, 0, 0, 0, 0)),
    Size(ttl=1, restarts=2, counters=(0, 0, 1)),
    Return(restarts=2, clients=1),
    Return(fresh=True),
)
"""The sizes in which nodes come back by the clock, for `python -m model`."""

LEVEL, APART = (0, 0, 0), (0, 1, 1)

BROKEN = (
    Broken("unconditional phase 2", replace(SHIPPED, phase2="always"), Size(counters=APART)),
    Broken("owner-only phase 2", replace(SHIPPED, phase2="owner"), Size(repeats=1, counters=APART)),
    Broken("a late reply counted", replace(SHIPPED, late_reply_counted=True), Size(counters=APART)),
    Broken(
        "an owner id used again",
        replace(SHIPPED, owner_used_again=True),
        Size(repeats=1, counters=LEVEL),
    ),
    Broken(
        "voting at once after a restart",
        replace(SHIPPED, restart="votes"),
        Size(restarts=1, counters=LEVEL),
    ),
    Broken("waiting only", replace(SHIPPED, reads=0), Size(restarts=1, ttl=1, counters=LEVEL)),
    Broken("reading only", replace(SHIPPED, wait="none"), Size(restarts=1, ttl=1, counters=LEVEL)),
    Broken(
        "reading before the wait, without a seal",
        replace(SHIPPED, wait="after reading", seals=False),
        Size(restarts=1, ttl=1, counters=LEVEL),
    ),
    Broken("q - 1 reads", replace(SHIPPED, reads=1), Size(restarts=1, counters=LEVEL)),
    Broken(
        "reading from nodes that are out",
        replace(SHIPPED, reads_voting_only=False),
        Size(restarts=2, counters=LEVEL),
    ),
    Broken(
        "a rejoin not tied to the incarnation",
        replace(SHIPPED, rejoin_tied=False),
        Size(restarts=2, counters=LEVEL),
    ),
    Broken(
        "a snapshot restart taken for none",
        replace(SHIPPED, restart="votes with data"),
        Size(restarts=1, snapshots=1, counters=LEVEL),
    ),
    # Not in the usual list, and needed as well.
    Broken(
        "reading without a seal",
        replace(SHIPPED, seals=False),
        Size(restarts=1, counters=LEVEL),
    ),
    Broken(
        "seals that clients ignore",
        replace(SHIPPED, drops_votes=False),
        Size(restarts=1, counters=LEVEL),
    ),
    Broken(
        "a deadline counted from the reply",
        replace(SHIPPED, deadline_from="reply"),
        Size(ttl=2, counters=LEVEL),
    ),
    Broken(
        "each client numbers the new life",
        replace(SHIPPED, number_noted=False),
        Return(),
    ),
    Broken(
        "a node noted for a first start starts at once",
        replace(SHIPPED, noted_may_start=True),
        Return(fresh=True),
    ),
    Broken(
        "a rejoin that forgets seals",
        replace(SHIPPED, passes_seals_on=False),
        Size(restarts=2, counters=LEVEL),
        small=False,
    ),
    Broken(
        "a rejoin that does not note whom it read",
        replace(SHIPPED, notes_whom_it_read=False),
        Size(restarts=2, counters=LEVEL),
        small=False,
    ),
    Broken(
        "a hold that a snapshot brought back, asked for again",
        replace(SHIPPED, take_tied=False),
        Size(restarts=1, snapshots=1, repeats=1, counters=APART),
        small=False,
    ),
    Broken(
        "a hold that a snapshot brought back, met by a phase 2 of an earlier incarnation",
        replace(SHIPPED, phase2_tied=False),
        Size(restarts=1, snapshots=1, counters=APART),
        small=False,
    ),
    Broken(
        "a hold that a snapshot brought back, met by a phase 2 before the node votes",
        replace(SHIPPED, phase2_same_run=False),
        Size(restarts=1, snapshots=1, counters=APART),
    ),
    Broken(
        "a majority lost, counters from what is left",
        replace(BY_THE_CLOCK, majority_lost="seen"),
        Size(restarts=2, counters=LEVEL),
    ),
    Broken(
        "a majority lost, and no wait",
        replace(BY_THE_CLOCK, wait="none"),
        Size(restarts=1, ttl=1, counters=LEVEL),
    ),
    Broken(
        "a majority lost, and lives numbered by what others know",
        replace(BY_THE_CLOCK, numbers_from_clock=False),
        Return(restarts=2, clients=1),
    ),
)

HARMLESS = (
    Broken(
        "reading before the wait, with a seal",
        replace(SHIPPED, wait="after reading"),
        Size(restarts=1, ttl=1),
    ),
    Broken(
        "phase 2 of an earlier incarnation, where holds end with it",
        replace(SHIPPED, phase2_tied=False, holds_end_with_incarnation=True),
        Size(restarts=1, snapshots=1, counters=APART),
    ),
    Broken(
        "holds that end with their incarnation",
        replace(SHIPPED, holds_end_with_incarnation=True),
        Size(restarts=1, snapshots=1, counters=APART),
    ),
    Broken(
        "a rejoin that only raises the counter",
        replace(SHIPPED, rejoin_counter="raised"),
        Size(restarts=1, snapshots=1, counters=APART),
    ),
)
"""The variants with one rule less in which no harm was found."""
