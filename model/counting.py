"""The counting of votes by a client: which replies, for which token, and when they are a majority."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, product
from typing import NamedTuple

from .rules import Rules
from .state import Attempt, Cell, Node, State, Vote, newest


class Choice(NamedTuple):
    token: int
    cells: tuple[Cell, ...]
    begins: tuple[int, ...]


def choices(cells: list[Cell], n: int, majority: int) -> Iterator[Choice]:
    """Yields every way to close phase 1 with the last reply of node `n` as the last that is counted.

    The client counts what has arrived by then: of each other node one of its answers, or none.
    """
    answers: list[list[Vote | None]] = [[None, *cell.votes] for cell in cells]
    answers[n] = [cells[n].votes[-1]]
    for chosen in product(*answers):
        begins = [vote.begin if vote else 0 for vote in chosen]
        if len(begins) - begins.count(0) < majority:
            continue
        token = max(begins)
        row = [
            Cell(cell[0], (Vote(*vote[:3], vote.begin == token),) if vote else (), cell[2])
            for cell, vote in zip(cells, chosen, strict=True)
        ]
        yield Choice(token, tuple(row), tuple(begins))


def confirmed(attempt: Attempt, n: int, node: Node) -> Attempt:
    """Returns the votes after node `n` has confirmed phase 2: its vote counts, with all it knew."""
    (vote,) = attempt.cells[n].votes
    knows = newest(vote.knows, node.knows)
    return with_votes(attempt, n, (Vote(vote.begin, vote.incarnation, knows, True),))


def is_majority(rules: Rules, attempt: Attempt, majority: int) -> bool:
    """Returns whether enough votes count, and no counted node knows another's vote to be outdated."""
    counted = [
        (n, vote) for n, cell in enumerate(attempt.cells) for vote in cell.votes if vote.counted
    ]
    return len(counted) >= majority and any(
        not rules.drops_votes
        or all(mine.knows[n] <= vote.incarnation for n, vote in some for _, mine in some)
        for some in combinations(counted, majority)
    )


def with_votes(attempt: Attempt, n: int, votes: tuple[Vote, ...]) -> Attempt:
    cells = attempt.cells
    cell = Cell(cells[n].landed, votes, cells[n].tombstone)
    return Attempt(*attempt[:4], (*cells[:n], cell, *cells[n + 1 :]))


def with_node(state: State, n: int, node: Node) -> State:
    nodes = state.nodes
    return State((*nodes[:n], node, *nodes[n + 1 :]), *state[1:])


def with_attempt(state: State, a: int, attempt: Attempt) -> State:
    attempts = state.attempts
    return State(state[0], (*attempts[:a], attempt, *attempts[a + 1 :]), *state[2:])
