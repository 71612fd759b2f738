"""The parts of a state of the model.

A state is a matrix: one column for each node, one row for each attempt, and in the cell what the
attempt knows from the node. Everything is a tuple of small numbers, and nothing is ever changed
in place.
"""

from __future__ import annotations

from typing import NamedTuple

NOBODY = -1

# The stages of an attempt.
IDLE = 0  # nothing has been asked
ASKING = 1  # phase 1: answers come in
CHOSEN = 2  # the token is chosen, phase 2 is on its way
GRANTED = 3
ENDED = 4  # released or given up: the owner id is burned


class Vote(NamedTuple):
    """A node's reply in phase 1, and whether it counts by now."""

    begin: int
    """The value at which the hold began."""
    incarnation: int
    """The incarnation of the node that replied."""
    knows: tuple[int, ...]
    """The incarnations, by node, that the replies carried."""
    counted: bool
    """True if the hold began at the token, or phase 2 has confirmed it."""


class Cell(NamedTuple):
    """The state of one attempt on one node."""

    landed: int
    """The incarnation of this node in which an acquire has arrived; the next one is a repetition."""
    votes: tuple[Vote, ...]
    """Before the token is chosen: every reply. After: the one to be counted, if any."""
    tombstone: bool
    """True if a clean-up has arrived: a late acquire is refused while this lasts."""

    @property
    def without_votes(self) -> Cell:
        return Cell(self[0], (), self[2])


class Attempt(NamedTuple):
    """One round of one client, under an owner id of its own."""

    stage: int
    token: int
    floor: int
    """The largest token that was granted before this attempt had any effect: its own must be above."""
    left: int
    """With clocks: ticks until the client's own deadline."""
    cells: tuple[Cell, ...]


class Image(NamedTuple):
    """The contents of a node's disk."""

    counter: int
    owner: int
    begin: int
    born: int
    left: int
    marker: int
    knows: tuple[int, ...]


class Node(NamedTuple):
    counter: int
    owner: int
    begin: int
    born: int
    """The incarnation in which the hold began."""
    left: int
    """With clocks: ticks until the hold expires."""
    incarnation: int
    marker: int
    """The incarnation that may vote."""
    knows: tuple[int, ...]
    """The newest incarnation of each node that was told here: the seals."""
    image: tuple[Image, ...]
    """The last snapshot, if any."""
    wait: int
    """With clocks: ticks until a node that is out has waited long enough."""
    read: tuple[int, ...]
    """The rejoin under way: 1 for each node that was read."""
    best: int
    """The rejoin under way: the largest counter that was read."""
    learned: tuple[int, ...]
    """The rejoin under way: the newest incarnations that were read."""


class State(NamedTuple):
    nodes: tuple[Node, ...]
    attempts: tuple[Attempt, ...]
    granted: int
    """The set of tokens granted so far, as bits."""
    repeats: int
    """The number of times that an acquire may still arrive again, or (broken) an id be used again."""
    restarts: int
    snapshots: int


def newest(ours: tuple[int, ...], theirs: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(map(max, ours, theirs))


def highest(granted: int) -> int:
    return granted.bit_length() - 1 if granted else 0


def clock_of(state: State) -> int:
    """Returns the lowest number that a clock can show which is above everything handed out so far."""
    counters = [node.counter for node in state.nodes]
    counters += [image.counter for node in state.nodes for image in node.image]
    for attempt in state.attempts:
        counters.append(attempt.token)
        counters += [vote.begin for cell in attempt.cells for vote in cell.votes]
    return max(highest(state.granted), *counters)


def fresh_cell() -> Cell:
    return Cell(0, (), False)


def start(
    counters: tuple[int, ...], attempts: int, *, repeats: int, restarts: int, snapshots: int
) -> State:
    """Returns nodes that vote and hold nothing. Counters differ where rounds were given up before."""
    size = len(counters)
    nobody = (0,) * size
    node = Node(0, NOBODY, 0, 0, 0, 1, 1, nobody, (), 0, nobody, 0, nobody)
    attempt = Attempt(IDLE, 0, 0, 0, (fresh_cell(),) * size)
    return State(
        tuple(node._replace(counter=counter) for counter in counters),
        (attempt,) * attempts,
        0,
        repeats,
        restarts,
        snapshots,
    )
