"""`holdfast show`: one lock, who holds it, and who waits for it."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator

from .. import Deadlock, LockState
from . import encoding
from .arguments import STORE_OPTIONS, read
from .drawing import BOLD, DIM, RED, YELLOW, Cell, Column, Pen, clip, visible
from .lock_rows import held_for, holder_of, kind_of, moment, remains
from .store import open_store

OPTIONS = {**STORE_OPTIONS, "--json": ""}


def main(words: list[str]) -> int:
    """Shows the lock, and returns the exit status."""
    given = read(words, OPTIONS, "NAME")
    with open_store(given.options) as locks:
        state = locks.inspect(given.operands[0])
        # Nobody is stuck where nobody waits; and only then all locks have to be read.
        found = locks.deadlocks() if state.waiters else []
    circles = [one for one in found if state.name in one.locks]
    pen = Pen(sys.stdout)
    if "--json" in given.options:
        shown = encoding.lock(state) | {"deadlocks": [encoding.deadlock(one) for one in circles]}
        pen.write(encoding.dumps(shown) + "\n")
        return 0
    now = time.time()
    lines = [*describe(pen, state, now)]
    for circle in circles:
        lines += ["", *describe_deadlock(pen, circle, now)]
    pen.write("\n".join(lines) + "\n")
    return 0


def describe_deadlock(pen: Pen, deadlock: Deadlock, now: float) -> Iterator[str]:
    """Yields the lines that show who waits for whom in a circle."""
    yield pen.paint(f"DEADLOCK since {moment(deadlock.since, now)}: each waits for the next", RED)
    for wait, inner in deadlock.steps():
        blocker = "held by" if wait.blocker.token else "waited for before it by"
        name = _cut(pen, visible(wait.name), f"    waits for , {blocker}")
        yield f"  {_cut(pen, holder_of(wait.waiter), '  ')}"
        yield f"    waits for {pen.paint(name, BOLD)}, {blocker}"
        if inner is not None:
            yield f"  {_cut(pen, holder_of(wait.blocker), '  ')}"
            yield "    runs"
    yield f"  {_cut(pen, holder_of(deadlock.cycle[0].waiter), '  ')}"


def _cut(pen: Pen, text: str, beside: str) -> str:
    """Returns as much of a name as there is room for, on a terminal, beside the rest of its line."""
    return clip(text, max(pen.columns - len(beside), 8), "middle") if pen.columns else text


def describe(pen: Pen, state: LockState, now: float) -> Iterator[str]:
    """Yields the lines that show one lock."""
    kind = {"lock": "", "rwlock": "rwlock, "}.get(state.kind, f"{visible(state.kind)}, ")
    if state.kind == "semaphore" or (state.kind == "rwlock" and state.holders):
        kind += f"{kind_of(state)} "
    waiting = f", {len(state.waiters)} waiting" if state.waiters else ""
    status = f"{kind}{'held' if state.held else 'free'}"
    name = _cut(pen, visible(state.name), f"  {status}{waiting}")
    colour = BOLD if state.held else DIM
    yield f"{pen.paint(name, BOLD)}  {pen.paint(status, colour)}{pen.paint(waiting, YELLOW)}"
    yield f"token {state.token}"
    for line in state.out:
        yield pen.paint(f"out: {visible(line)}", RED)
    if state.holders:
        slots = any(holder.slot is not None for holder in state.holders)
        columns = [
            Column("HELD BY", least=20, side="middle"),
            Column("SINCE", spare=1),
            Column("FOR", right=True, spare=5),
        ]
        columns += [Column("REMAINS", spare=4), Column("TOKEN", right=True, spare=2)]
        columns += [Column("SLOT", right=True, spare=3)] if slots else []
        rows = []
        for holder in state.holders:
            row = [Cell(holder_of(holder)), Cell(moment(holder.since, now))]
            row += [Cell(held_for(holder, now)), remains(pen, holder), Cell(str(holder.token))]
            rows.append([*row, Cell(str(holder.slot))] if slots else row)
        yield ""
        yield from pen.table(columns, rows)
    if state.waiters:
        columns = [Column("#", right=True), Column("WAITING", least=20, side="middle")]
        columns += [Column("SINCE", spare=1), Column("FOR", right=True, spare=2)]
        yield ""
        rows = []
        for place, waiter in enumerate(state.waiters, 1):
            row = [Cell(str(place), YELLOW), Cell(holder_of(waiter))]
            rows.append([*row, Cell(moment(waiter.since, now)), Cell(held_for(waiter, now))])
        yield from pen.table(columns, rows)
