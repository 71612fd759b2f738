"""Breadth-first search of every state that can be reached."""

from __future__ import annotations

import gc
from collections.abc import Hashable, Iterable, Iterator
from itertools import pairwise
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from .packing import Order, Packed

S = TypeVar("S")


class Event(NamedTuple):
    """An event, for the trace. Attempts and nodes are called by their places in the state."""

    kind: str
    attempt: int = -1
    node: int = -1
    other: int = -1
    """Another node, where one is concerned."""
    previous: int = -1
    """The attempt whose hold ended."""
    value: int = 0
    note: str = ""
    token: int = 0
    begins: tuple[int, ...] = ()
    """The replies that were counted when the token was chosen, by node; 0: none."""
    granted: bool = False


class Step(NamedTuple, Generic[S]):
    event: Event
    state: S
    wrong: str
    """The promise that the event broke, if any."""


class World(Protocol[S]):
    """The rules by which one state follows another."""

    def steps(self, state: S) -> Iterator[Step[S]]: ...


class Keys(Protocol[S]):
    """The way in which states are told apart, and kept."""

    def pack(self, state: S) -> Packed: ...

    def unpack(self, key: Any) -> S: ...


class TraceStep(NamedTuple):
    """One step of a trace."""

    event: Event
    wrong: str
    attempts: Order
    """The names, from the beginning of the trace, of the attempts that the event calls 0, 1, ..."""
    nodes: Order


class Found(NamedTuple):
    states: int
    steps: int
    depth: int
    start: Any
    trace: list[TraceStep]
    """The steps of the shortest way from `start` to a broken promise, if there is one."""
    seen: dict[str, int]
    """The number of times that each kind of event was taken: what never happened was not checked."""


def search(world: World[S], packing: Keys[S], starts: Iterable[S]) -> Found:
    """Searches all states, or up to the first broken promise, which has the fewest steps then."""
    parents: dict[Hashable, Hashable] = {packing.pack(state).key: None for state in starts}
    layer = list(parents)
    seen: dict[str, int] = {}
    taken = depth = 0
    gc.disable()  # millions of tuples, and no cycle among them
    try:
        while layer:
            depth += 1
            following: list[Hashable] = []
            for key in layer:
                for event, reached, wrong in world.steps(packing.unpack(key)):
                    taken += 1
                    kind = f"{event.kind}, granted" if event.granted else event.kind
                    seen[kind] = seen.get(kind, 0) + 1
                    after = packing.pack(reached).key
                    if wrong:
                        path = [after, key]
                        while parents[path[-1]] is not None:
                            path.append(parents[path[-1]])
                        path.reverse()
                        trace = list(trace_of(world, packing, path))
                        start = packing.unpack(path[0])
                        return Found(len(parents), taken, depth, start, trace, seen)
                    if after not in parents:
                        parents[after] = key
                        following.append(after)
            layer = following
    finally:
        gc.enable()
    return Found(len(parents), taken, depth - 1, None, [], seen)


def trace_of(world: World[S], packing: Keys[S], path: list[Hashable]) -> Iterator[TraceStep]:
    """Yields the steps of a path, in which every node and attempt keeps its first name."""
    first = packing.pack(packing.unpack(path[0]))
    attempts, nodes = tuple(sorted(first.rows)), tuple(sorted(first.columns))
    for key, following in pairwise(path):
        for event, reached, wrong in world.steps(packing.unpack(key)):
            packed = packing.pack(reached)
            if packed.key == following and bool(wrong) == (following is path[-1]):
                yield TraceStep(event, wrong, attempts, nodes)
                attempts = tuple(attempts[a] for a in packed.rows)
                nodes = tuple(nodes[n] for n in packed.columns)
                break
