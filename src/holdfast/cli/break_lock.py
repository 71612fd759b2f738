"""`holdfast break`: takes a lock away from its holders, after asking."""

from __future__ import annotations

import os
import select
import sys
import time

from .. import LockState, checks
from . import encoding
from .arguments import STORE_OPTIONS, UsageError, read
from .drawing import Pen
from .lock_rows import holder_of
from .report import say
from .show import describe
from .store import open_store

OPTIONS = {**STORE_OPTIONS, "--yes": "", "--token-above": "N", "--json": ""}
NOT_BROKEN = 1
_LOOK = 0.25
"""Seconds after which a signal is noticed at the latest while somebody is asked."""


def main(words: list[str]) -> int:
    """Breaks the lock, and returns the exit status."""
    given = read(words, OPTIONS, "NAME")
    name = given.operands[0]
    sure = "--yes" in given.options
    above = _number(given.options.get("--token-above", "0"))
    if not sure and not (os.isatty(0) and os.isatty(2)):
        raise UsageError(f"to break {name!r:.80} where nobody can be asked, give --yes")
    with open_store(given.options) as locks:
        before = locks.inspect(name)
        broken = raised = False
        if not before.held and not above:
            say(f"{name!r} is not held, so there is nothing to break")
        elif not sure and not _agreed(before, above, locks.guarantees.recall):
            say(f"{name!r} was left as it is")
        elif not sure and _owners(locks.inspect(name)) != _owners(before):
            say(f"{name!r} has changed hands meanwhile, so it was left as it is; look again")
        else:
            broken = locks.force_release(name, token_above=above)
            raised = above > 0
            if "--json" not in given.options or not broken:
                _tell(before, broken, above)
    if "--json" in given.options:
        record = {"name": name, "broken": broken, "before": encoding.lock(before)}
        if above:
            record["token_above"] = above if raised else None
        Pen(sys.stdout).write(encoding.dumps(record) + "\n")
    return 0 if broken or raised else NOT_BROKEN


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise UsageError(f"--token-above takes a token, not {text!r:.40}")
    text = text.lstrip("0") or "0"
    if int(text[:40]) > checks.MAX_TOKEN_ABOVE:
        raise UsageError(
            f"--token-above takes a token up to {checks.MAX_TOKEN_ABOVE}, not {text:.40}: no store "
            "hands out such a token in this century"
        )
    return int(text)


def _agreed(state: LockState, above: int, recall: bool) -> bool:
    """Asks the person at the terminal; `recall` says whether the store tells the holder at once."""
    pen = Pen(sys.stderr)
    lines = [*describe(pen, state, time.time()), ""]
    if state.held:
        told = "at once, but may still be at work" if recall else "at its next renewal"
        lines.append(f"The holder is told {told}; only a fence stops its writes.")
    question = "Break it?" if state.held else f"Raise its tokens above {above}?"
    line = ""
    try:
        pen.write("\n".join(lines) + f"\n{question} [y/N] ")
        # For a ^C just before it reads, Python raises only when that returns: so do not read yet.
        while not select.select([sys.stdin], [], [], _LOOK)[0]:
            pass
        line = sys.stdin.readline()
    finally:
        if not line.endswith("\n"):
            pen.write("\n")  # after ^C or ^D, whatever comes next begins a line
    return line.strip().lower() in ("y", "yes")


def _owners(state: LockState) -> set[str]:
    return {holder.owner for holder in state.holders}


def _tell(before: LockState, broken: bool, above: int) -> None:
    people = ", ".join(map(holder_of, before.holders))
    raised = f"; its tokens are above {above} now" if above else ""
    if broken:
        waiting = "; the next in the queue has it" if before.waiters else ""
        say(f"{before.name!r} was taken away from {people}{waiting}{raised}")
    elif before.held:
        say(f"{before.name!r} was released before it could be broken{raised}")
    else:
        say(f"{before.name!r} is not held{raised}")
