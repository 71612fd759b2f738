"""Deadlocks: parties that wait for each other in a circle, found in what the store shows of its locks.

A **party** is a manager, with the label of its entries: the first characters of each owner id that a
session makes are its own. Of an owner id that came from outside only the label is known.

**Who is stuck.** A waiter is admitted when all waiters before it have been, and its weight fits beside
the holders. So begin with the parties that wait for nothing: they will give back what they hold. A
waiter that fits once all those have done so waits in vain for nobody; a party all of whose waiters are
such will give back what it holds, too; and so on. The parties that are left are stuck. That holds for
semaphores and readers as well: a waiter for one of two permits is stuck when both holders are.

A stuck waiter waits for the stuck holders of its lock, and for the stuck waiters before it. Each group
of parties that can all be reached from each other by that is one deadlock, told by its shortest
circle. A party that waits for a lock which it holds does not count as waiting for that: it is another
of its threads, or tasks, and the one that holds the lock may be about to release it.

A party may run **inside** another: a program under `holdfast run`, which may be `holdfast run` again.
The outer one gives back what it holds when the inner one has ended; so it is stuck while the inner one
is, and waits for it.

**Looking twice.** A store may read one lock after another, so that what it shows was never true all at
once. An owner holds or waits for one stretch of time, and never again. So what is in two readings, one
after the other, was all true between the two; and holders and waiters that are missing in a reading
only make fewer parties stuck.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from .model import Label, LockState, Participant, around, party_of

Party = tuple[str, str]
"""The id of a session, empty where it is not known; and the label."""
NEAR = 4
"""Stuck waiters before a waiter that count as its blockers: what blocks those blocks it, too."""
STEPS = 300_000
"""Steps in which the shortest circle of a deadlock is looked for; then the shortest so far is told."""


class Wait(NamedTuple):
    """One step of a circle: `waiter` waits for the lock `name`, which `blocker` keeps from it.

    The blocker holds the lock (its `token` is above 0), or is before the waiter in the queue.
    """

    name: str
    waiter: Participant
    blocker: Participant

    def __str__(self) -> str:
        verb = "is held by" if self.blocker.token else "is waited for, before it, by"
        return f"{self.waiter.label} waits for {self.name!r}, which {verb} {self.blocker.label}"


Edges = dict[Party, dict[Party, Wait | None]]
"""Whom each party waits for, and how: None, where that one runs inside it."""


class Deadlock(NamedTuple):
    """Parties that wait for each other: the blocker of each step is the one that waits in the next.

    Or it is `holdfast run`, and the one that waits in the next runs inside it.
    """

    cycle: tuple[Wait, ...]
    locks: tuple[str, ...] = ()
    """The names of all locks for which those wait who are caught in it, in their order; the circle is
    the shortest one among them, and may leave some out."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the locks, in the order of the circle."""
        return tuple(wait.name for wait in self.cycle)

    @property
    def participants(self) -> tuple[Label, ...]:
        """The labels of those who wait, in the order of the circle."""
        return tuple(wait.waiter.label for wait in self.cycle)

    @property
    def since(self) -> float:
        """The time at which the last of them began to wait: seconds since the epoch, by the store's
        clock."""
        return max(wait.waiter.since for wait in self.cycle)

    def steps(self) -> Iterator[tuple[Wait, Participant | None]]:
        """Yields each step, with the one that runs inside its blocker and waits in the next step.

        Or with None: its blocker waits in the next step.
        """
        for wait, following in zip(self.cycle, (*self.cycle[1:], self.cycle[0]), strict=True):
            inside = party_of(wait.blocker) != party_of(following.waiter)
            yield wait, following.waiter if inside else None

    def __str__(self) -> str:
        return "; ".join(
            f"{wait}, which runs {inner.label}" if inner else str(wait)
            for wait, inner in self.steps()
        )


def deadlocks_in(states: Iterable[LockState], fair: bool = True) -> list[Deadlock]:
    """Returns the deadlocks among the holders and waiters of these locks.

    `fair`: waiters are admitted in their order.
    """
    states = list(states)
    contended = [state for state in states if state.waiters]
    inside = _inside(states)
    free = _free(contended, fair, inside)
    edges: Edges = {}
    steps: set[tuple[str, Party, Party]] = set()
    for state in contended:
        holders = [one for one in state.holders if party_of(one) not in free]
        waiters = [one for one in state.waiters if party_of(one) not in free]
        before = _waiters_before(waiters) if fair else {}
        for waiter, full in _blocked(state, fair, free):
            if party_of(waiter) not in free:
                party = party_of(waiter)
                targets = edges.setdefault(party, {})
                for blocker in (*(holders if full else ()), *before.get(waiter.owner, ())):
                    if party_of(blocker) != party:
                        targets.setdefault(party_of(blocker), Wait(state.name, waiter, blocker))
                        steps.add((state.name, party, party_of(blocker)))
    for outer, inner in inside.items():
        edges.setdefault(outer, {}).update(dict.fromkeys(inner - free))
    groups = _groups(edges)
    names = _names_in(groups, steps)
    cycles = [_shortest_cycle(edges, group) for group in groups]
    return [Deadlock(*pair) for pair in zip(cycles, names, strict=True) if pair[0]]


def _names_in(
    groups: Sequence[Sequence[Party]], steps: Iterable[tuple[str, Party, Party]]
) -> list[tuple[str, ...]]:
    """Returns, for each group, the names of the locks by which one member waits for another."""
    places = {party: place for place, group in enumerate(groups) for party in group}
    names: list[set[str]] = [set() for _ in groups]
    for name, party, blocker in steps:
        place = places.get(party)
        if place is not None and places.get(blocker) == place:
            names[place].add(name)
    return [tuple(sorted(found)) for found in names]


def in_both(first: Sequence[LockState], second: Sequence[LockState]) -> list[LockState]:
    """Returns the holders and waiters that are in both readings: they were all there in between."""
    earlier = {state.name: state for state in first}
    both = []
    for state in second:
        before = earlier.get(state.name)
        if before is not None:
            holders = {holder.owner for holder in before.holders}
            waiters = {waiter.owner for waiter in before.waiters}
            both.append(
                state._replace(
                    holders=tuple(one for one in state.holders if one.owner in holders),
                    waiters=tuple(one for one in state.waiters if one.owner in waiters),
                )
            )
    return both


def _blocked(state: LockState, fair: bool, free: set[Party]) -> Iterator[tuple[Participant, bool]]:
    """Yields the waiters that are not admitted, when the `free` parties have given back all.

    With each, whether the holders leave no room for it; else it is only behind others.
    """
    holding = {party_of(holder) for holder in state.holders}
    used = sum(holder.weight for holder in state.holders if party_of(holder) not in free)
    before: Counter[Party] = Counter()
    waiting = 0
    for waiter in state.waiters:
        party = party_of(waiter)
        full = used + waiter.weight > state.capacity
        if party not in holding and (full or (fair and waiting > before[party])):
            yield waiter, full
        if party not in free:
            before[party] += 1
            waiting += 1


def _waiters_before(waiters: Sequence[Participant]) -> dict[str, list[Participant]]:
    """Returns, by owner, the waiters just before each, and the last one of another party."""
    found: dict[str, list[Participant]] = {}
    last_of_others: Participant | None = None
    for place, waiter in enumerate(waiters):
        if place and party_of(waiters[place - 1]) != party_of(waiter):
            last_of_others = waiters[place - 1]  # and so for all that follow of the same party
        near = list(waiters[max(place - NEAR, 0) : place])
        found[waiter.owner] = near if last_of_others is None else [last_of_others, *near]
    return found


def _inside(states: Iterable[LockState]) -> dict[Party, set[Party]]:
    """Returns the parties that run inside others, by those."""
    parties: dict[str, set[Party]] = {}
    nested: dict[Party, list[str]] = {}
    for state in states:
        for one in (*state.holders, *state.waiters):
            party = party_of(one)
            parties.setdefault(party[0], set()).add(party)
            sessions = around(one.owner)
            if sessions:
                nested[party] = sessions
    inside: dict[Party, set[Party]] = {}
    for party, sessions in nested.items():
        nearest = next(
            (one for one in sessions if one in parties), ""
        )  # others are of other stores
        for outer in parties.get(nearest, ()):
            inside.setdefault(outer, set()).add(party)
    return inside


def _free(
    states: Sequence[LockState], fair: bool, inside: Mapping[Party, set[Party]]
) -> set[Party]:
    """Returns the parties that will give back all that they hold, as far as can be seen."""
    places: dict[Party, set[int]] = {}
    """The locks that a party holds or waits for, by their place in `states`."""
    stuck: dict[Party, set[int | Party]] = {}
    """The locks for which a party may wait in vain, and those inside it that may do so."""
    outers: dict[Party, list[Party]] = {}
    for outer, inner in inside.items():
        stuck[outer] = set(inner)
        for party in inner:
            outers.setdefault(party, []).append(outer)
    for number, state in enumerate(states):
        for one in (*state.holders, *state.waiters):
            places.setdefault(party_of(one), set()).add(number)
        holding = {party_of(holder) for holder in state.holders}
        for party in {party_of(waiter) for waiter in state.waiters} - holding:
            stuck.setdefault(party, set()).add(number)
    free: set[Party] = set()
    unseen = set(range(len(states)))
    fresh = list(set(places).union(outers) - set(stuck))
    while fresh or unseen:
        if fresh:
            party = fresh.pop()
            free.add(party)
            unseen |= places.get(party, set())
            for outer in outers.get(party, ()):
                stuck[outer].discard(party)
                if not stuck[outer]:
                    fresh.append(outer)
            continue
        number = unseen.pop()
        state = states[number]
        blocked = {party_of(waiter) for waiter, _ in _blocked(state, fair, free)}
        for party in {party_of(waiter) for waiter in state.waiters} - blocked - free:
            stuck[party].discard(number)  # where it holds the lock, too, that is not in there
            if not stuck[party]:
                fresh.append(party)
    return free


def _groups(edges: Edges) -> list[list[Party]]:
    """Returns the strongly connected components of more than one party, in the order of `edges`.

    Tarjan's algorithm, without recursion: a circle may be long.
    """
    index: dict[Party, int] = {}
    low: dict[Party, int] = {}
    stack: list[Party] = []
    stacked: set[Party] = set()
    found: list[list[Party]] = []
    for root in edges:
        if root in index:
            continue
        work: list[tuple[Party, Iterator[Party]]] = []
        _visit(root, edges, index, low, stack, stacked, work)
        while work:
            party, rest = work[-1]
            target = next((one for one in rest), None)
            if target is not None:
                if target not in index:
                    _visit(target, edges, index, low, stack, stacked, work)
                elif target in stacked:
                    low[party] = min(low[party], index[target])
                continue
            work.pop()
            if work:
                above = work[-1][0]
                low[above] = min(low[above], low[party])
            if low[party] == index[party]:
                place = stack.index(party)
                group = stack[place:]
                del stack[place:]
                stacked.difference_update(group)
                if len(group) > 1:
                    found.append(group)
    return found


def _visit(
    party: Party,
    edges: Edges,
    index: dict[Party, int],
    low: dict[Party, int],
    stack: list[Party],
    stacked: set[Party],
    work: list[tuple[Party, Iterator[Party]]],
) -> None:
    index[party] = low[party] = len(index)
    stack.append(party)
    stacked.add(party)
    work.append((party, iter(edges.get(party, ()))))


def _shortest_cycle(edges: Edges, group: Sequence[Party]) -> tuple[Wait, ...]:
    """Returns the shortest circle within a component, or a short one of a huge component."""
    members = set(group)
    best: list[Party] = []
    steps = 0
    for start in group:
        if best and steps > STEPS:
            break
        came_from: dict[Party, Party] = {}
        queue = deque([start])
        while queue and start not in came_from:
            party = queue.popleft()
            steps += len(edges.get(party, ()))
            for target in edges.get(party, ()):
                if target in members and target not in came_from:
                    came_from[target] = party
                    queue.append(target)
        path = [start]
        while came_from[path[-1]] != start:
            path.append(came_from[path[-1]])
        path.append(start)
        path.reverse()  # from `start` to `start`
        if not best or len(path) < len(best):
            best = path
    steps_of_best = (edges[party][target] for party, target in pairwise(best))
    return tuple(wait for wait in steps_of_best if wait is not None)
