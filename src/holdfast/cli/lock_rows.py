"""Locks and those who hold or want them, as rows of a table and as words."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

from .. import LockState, Participant
from .drawing import BOLD, DIM, GREEN, RED, USUAL_SCALE, YELLOW, Cell, Column, Pen, visible
from .durations import briefly

LOW, LAST = 3.0, 1.0
"""Seconds below which what remains deserves a look, and below which it is about to end."""

KIND = Column("KIND", spare=2)
COLUMNS = (
    Column("NAME", least=16, side="middle"),
    Column("TOKEN", right=True, least=8, side="start", spare=1),
    Column("HELD", right=True, spare=3),
    Column("REMAINS", spare=4),
    Column("WAIT", right=True, spare=5),
    Column("HOLDER", least=20, side="middle", spare=6),
)


def holder_of(participant: Participant) -> str:
    """Returns a holder or waiter in words: label, host and process."""
    return visible(str(participant.label))


def held_for(participant: Participant, now: float) -> str:
    """Returns how long a holder has held the lock, or a waiter has waited for it."""
    return briefly(max(now - participant.since, 0.0))


def remains(pen: Pen, participant: Participant) -> Cell:
    """Returns what remains of a lease unless it is renewed, as a bar and as a number."""
    left = max(participant.remaining, 0.0)
    share = left / max(participant.ttl or USUAL_SCALE, left, 0.001)
    colour = GREEN if left >= LOW else YELLOW if left >= LAST else RED
    number = briefly(left)
    if not pen.terminal:
        return Cell(number)
    return Cell(f"{pen.bar(share)} {number}", colour)


def kind_of(state: LockState) -> str:
    """Returns what kind of lock it is, and how much of it is taken; empty for a plain one."""
    if state.kind == "semaphore":
        return f"{sum(holder.weight for holder in state.holders)} of {state.capacity}"
    if state.kind == "rwlock":
        if not state.holders:
            return "rwlock"
        writing = any(holder.weight == state.capacity for holder in state.holders)
        return "write" if writing else "read"
    return "" if state.kind == "lock" else visible(state.kind)


def rows_of(state: LockState) -> int:
    """Returns the number of rows that a lock has in a table of locks."""
    return max(len(state.holders), 1)


def lock_table(
    pen: Pen, states: Iterable[LockState], now: float, skipped: int = 0
) -> tuple[Sequence[Column], list[list[Cell]]]:
    """Returns the columns and rows of a table of locks, with a row for each holder.

    So many rows of the first lock are `skipped`.
    """
    states = list(states)
    kinds = any(state.kind != "lock" for state in states)
    columns = [*COLUMNS[:1], KIND, *COLUMNS[1:]] if kinds else list(COLUMNS)
    rows = []
    for state in states:
        head = [Cell(visible(state.name), BOLD)]
        if kinds:
            head.append(Cell(kind_of(state)))
        waiting = str(len(state.waiters)) if state.waiters else ""
        holders, skipped = state.holders[skipped:], 0
        for holder in holders:
            rows.append(
                [
                    *head,
                    Cell(str(holder.token)),
                    Cell(held_for(holder, now)),
                    remains(pen, holder),
                    Cell(waiting, YELLOW),
                    Cell(holder_of(holder)),
                ]
            )
            head = [Cell("") for _ in head]
            waiting = ""
        if not state.holders:
            rows.append([*head, *[Cell("")] * 3, Cell(waiting, YELLOW), Cell("free", DIM)])
    return columns, rows


def moment(since: float, now: float) -> str:
    """Returns a time of today, or a date and a time."""
    today = time.strftime("%Y-%m-%d", time.localtime(now))
    day = time.strftime("%Y-%m-%d", time.localtime(since))
    clock = time.strftime("%H:%M:%S", time.localtime(since))
    return clock if day == today else f"{day} {clock}"


def counts(states: Sequence[LockState]) -> str:
    """Returns how many locks are held and how many wait, in words."""
    held = sum(1 for state in states if state.holders)
    waiting = sum(len(state.waiters) for state in states)
    return f"{held:,} {'lock' if held == 1 else 'locks'} held, {waiting:,} waiting"
