"""Findings: what `doctor` has seen at a store, as data."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

OK, NOTE, WARNING, WRONG = LEVELS = ("ok", "note", "warning", "wrong")
"""The levels, from good to bad: a guarantee holds; something to know; a guarantee holds less far than
it could, or soon will not; a guarantee does not hold."""


class Finding(NamedTuple):
    """One thing that was looked at: how it stands, why that matters, and how to mend it."""

    level: str
    """One of `LEVELS`."""
    check: str
    """The name of what was looked at, for programs: `eviction`, `clock`."""
    what: str
    """How it stands, in one sentence."""
    why: str = ""
    mend: str = ""
    server: str = ""
    """The server that it was found on, where a store has several."""


class Findings(list[Finding]):
    """The findings of one examination, in the order in which they were made."""

    def ok(self, check: str, what: str, *, server: str = "") -> None:
        self.append(Finding(OK, check, what, server=server))

    def note(self, check: str, what: str, why: str, mend: str = "", *, server: str = "") -> None:
        self.append(Finding(NOTE, check, what, why, mend, server))

    def warning(self, check: str, what: str, why: str, mend: str, *, server: str = "") -> None:
        self.append(Finding(WARNING, check, what, why, mend, server))

    def wrong(self, check: str, what: str, why: str, mend: str, *, server: str = "") -> None:
        self.append(Finding(WRONG, check, what, why, mend, server))


def worst(findings: Iterable[Finding]) -> str:
    """Returns the worst level among `findings`."""
    return max((finding.level for finding in findings), key=LEVELS.index, default=OK)
