"""`holdfast chaos`: real stores, broken on purpose, and what was seen of their locks."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from ..arguments import UsageError, read
from ..drawing import Pen
from .listing import listing
from .request import OPTIONS, Request
from .show import Show

__all__ = ["OPTIONS", "main"]


def main(words: list[str]) -> int:
    """Makes the runs, prints what was seen, and returns the exit status."""
    _refuse_namespace(words)
    options = read(words, OPTIONS).options
    if "--list" in options:
        return _list(list(options))
    return Show(Request(options)).run()


def _refuse_namespace(words: Sequence[str]) -> None:
    """Says why chaos lacks an option that all other commands have."""
    if any(word.partition("=")[0] == "--namespace" for word in words):
        raise UsageError(
            "chaos takes no --namespace: each run has one of its own, chaos-…, so that it touches "
            "nothing else; leave it out"
        )


def _list(options: Sequence[str]) -> int:
    others = [name for name in options if name != "--list"]
    if others:
        raise UsageError(f"--list stands alone; leave out {', '.join(others)}")
    pen = Pen(sys.stdout)
    pen.write("\n".join(listing(pen)) + "\n")
    return 0
