"""What the doctor finds, in a form that tests can compare."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import holdfast
from holdfast.findings import LEVELS

LIMIT = 60.0
"""Seconds after which something that should happen counts as not happening."""


class Look:
    """The findings about a store."""

    def __init__(self, findings: Sequence[holdfast.Finding]) -> None:
        self.findings = findings
        for one in findings:
            assert one.level in LEVELS
            assert one.check
            assert one.what
            assert one.level == "ok" or one.why, one
            assert one.level in ("ok", "note") or one.mend, one
            for text in (one.what, one.why, one.mend):
                assert text == text.strip()
                assert "\n" not in text

    def levels(self, check: str, server: str | None = None) -> list[str]:
        """Returns the levels of all findings of that check."""
        return [
            one.level
            for one in self.findings
            if one.check == check and server in (None, one.server)
        ]

    def one(self, check: str, level: str, said: str = "") -> holdfast.Finding:
        """Returns the finding of that check and level whose text has these words."""
        found = [
            one
            for one in self.findings
            if (one.check, one.level) == (check, level) and said in one.what
        ]
        assert found, f"no {level} of {check} with {said!r} in:\n{self}"
        return found[0]

    def bad(self) -> list[str]:
        """Returns the checks that are worse than a note."""
        return [one.check for one in self.findings if one.level in ("warning", "wrong")]

    def __str__(self) -> str:
        return "\n".join(map(str, self.findings))


def until(happened: Callable[[], object], tell: Callable[[], str] = str) -> None:
    """Waits until `happened` returns something true; `tell` says how it stands if it does not."""
    limit = time.monotonic() + LIMIT
    while not happened():
        assert time.monotonic() < limit, f"it did not happen: {tell()}"
        time.sleep(0.01)


def look(url: Any, **options: Any) -> Look:
    """Examines a store."""
    return Look(holdfast.doctor(url, **options))
