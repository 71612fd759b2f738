"""`holdfast ls`: the locks that are held or waited for."""

from __future__ import annotations

import sys
import time

from . import encoding
from .arguments import STORE_OPTIONS, read
from .drawing import DIM, Pen, clip, visible
from .lock_rows import counts, lock_table
from .report import say
from .store import open_store

OPTIONS = {**STORE_OPTIONS, "--json": ""}


def main(words: list[str]) -> int:
    """Lists the locks, and returns the exit status."""
    given = read(words, OPTIONS, "[PREFIX]")
    prefix = given.operands[0] if given.operands else ""
    locks = open_store(given.options)
    with locks:
        states = sorted(locks.list(prefix), key=lambda state: state.name)
    pen = Pen(sys.stdout)
    if "--json" in given.options:
        pen.write(encoding.dumps([encoding.lock(state) for state in states]) + "\n")
        return 0
    if not states:
        if pen.terminal:
            starting = f" whose names start with {prefix!r}" if prefix else ""
            say(f"there are no locks held or waited for{starting} on {locks.url}")
        return 0
    lines = pen.table(*lock_table(pen, states, time.time()))
    if pen.terminal and len(states) > 1:
        footer = clip(f"{counts(states)} · {visible(locks.url)}", pen.columns)
        lines += ["", pen.paint(footer, DIM)]
    pen.write("\n".join(lines) + "\n")
    return 0
