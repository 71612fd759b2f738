"""One lock between processes: a crew that takes turns without pause, and one that is woken.

Each process is a `Child` that runs the module of a figure with a kind of lock and an address.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from statistics import median
from typing import NamedTuple

from .measure import Child, jain, say

Give = Callable[[], object]
Take = Callable[[], Give]

UNTIL_IT_WAITS = 0.02
"""Seconds after which a process that was told to take a lock waits for it."""


class Shares(NamedTuple):
    """What the processes of each kind got."""

    rates: dict[str, list[float]]
    """Turns a second of all processes together, in each round."""
    counts: dict[str, list[int]]
    """Turns of each process, in all rounds."""

    def shown(self, kind: str) -> str:
        return f"{median(self.rates[kind]):,.0f}/s, Jain {self.jain(kind):.3f}"

    def jain(self, kind: str) -> float:
        return jain(self.counts[kind])


def contend(
    module: str,
    kinds: Sequence[str],
    address: object,
    processes: int,
    seconds: float,
    rounds: int,
) -> Shares:
    """Has `processes` processes of each kind take turns for `seconds`, one kind after the other."""
    shares = Shares({kind: [] for kind in kinds}, {kind: [0] * processes for kind in kinds})
    with ExitStack() as stack:
        crews = {
            kind: [stack.enter_context(Child(module, kind, address)) for _ in range(processes)]
            for kind in kinds
        }
        for crew in crews.values():
            for child in crew:
                child.receive()
        for index in range(rounds):
            start = index % len(kinds)
            for kind in (*kinds[start:], *kinds[:start]):
                for child in crews[kind]:
                    child.send(seconds)
                counts = [child.receive() for child in crews[kind]]
                shares.rates[kind].append(sum(counts) / seconds)
                before = shares.counts[kind]
                shares.counts[kind] = [a + b for a, b in zip(before, counts, strict=True)]
    return shares


def serve_turns(turns: Callable[[float], int]) -> None:
    """In a child of `contend`: `turns` takes turns for some seconds, and returns their number."""
    turns(0.0)
    say("ready")
    for line in sys.stdin:
        say(turns(float(line)))


def turns_of(take: Take) -> Callable[[float], int]:
    def turns(seconds: float) -> int:
        end = time.monotonic() + seconds
        count = 0
        while count == 0 or time.monotonic() < end:
            take()()
            count += 1
        return count

    return turns


def wake(
    module: str, takes: Mapping[str, Take], address: object, rounds: int
) -> dict[str, list[float]]:
    """Returns the seconds from a release here to the grant in a process that waits for the lock."""
    kinds = tuple(takes)
    found: dict[str, list[float]] = {kind: [] for kind in kinds}
    with ExitStack() as stack:
        children = {kind: stack.enter_context(Child(module, kind, address)) for kind in kinds}
        for child in children.values():
            child.receive()
        for index in range(rounds):
            start = index % len(kinds)
            for kind in kinds[start:] + kinds[:start]:
                give = takes[kind]()
                children[kind].send("go")
                time.sleep(UNTIL_IT_WAITS)
                began = time.monotonic()
                give()
                found[kind].append(children[kind].receive() - began)
                children[kind].receive()
    return found


def serve_wakeups(take: Take) -> None:
    """In a child of `wake`: takes the lock each time it is told to, and says when it was granted."""
    take()()
    say("ready")
    for _ in sys.stdin:
        give = take()
        say(time.monotonic())
        give()
        say("done")
