"""A long campaign: the same runs again and again, each time with another seed, until there were so many
grants. Each run that is done is kept in a folder, so that a campaign which was ended goes on there.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Sequence
from itertools import count
from pathlib import Path
from typing import Any

from .campaign import Campaign, Tell
from .setup import Setup

WORST = ("overlap_seconds", "slept_seconds", "recovery_seconds")
"""The figures of which the highest counts; of `told_before` it is the lowest, of the others the sum."""


class LongCampaign:
    """A campaign of `grants` grants in all. Its runs are kept in `folder`, if there is one."""

    def __init__(
        self, setups: Sequence[Setup], tell: Tell, grants: int, folder: Path | None, jobs: int = 2
    ) -> None:
        self._setups = setups
        self._tell = tell
        self._aim = grants
        self._folder = folder
        self._jobs = jobs
        self.grants = 0
        self._present: Campaign | None = None

    @property
    def late(self) -> list[dict[str, Any]]:
        """The runs that were under way when `run` was left early: what was seen of them."""
        return [] if self._present is None else self._present.late

    def run(self) -> Generator[dict[str, Any]]:
        """Yields each run that is done, those of earlier times first."""
        for number in count():
            todo = []
            for setup in self._setups:
                if number and setup.control:
                    continue
                chunk = setup._replace(seed=setup.seed + number)
                if not setup.control:
                    # Holders that do little, so that there are many grants.
                    chunk = chunk._replace(hold=0.003, rest=0.001, long=0.002, locks=6)
                kept = self._kept(chunk)
                if kept is None:
                    todo.append(chunk)
                else:
                    self.grants += kept["figures"].get("grants", 0)
                    yield kept
            self._present = Campaign(todo, self._tell, jobs=self._jobs)
            for run in self._present.run() if todo else ():
                self.grants += run["figures"].get("grants", 0)
                yield self._keep(run)
            if self.grants >= self._aim:
                return

    def _path(self, id: str, seed: int) -> Path | None:
        return None if self._folder is None else self._folder / f"{seed}-{id}.json"

    def _kept(self, setup: Setup) -> dict[str, Any] | None:
        """Returns the run that is kept for `setup`; None if there is none, or not of this setup."""
        path = self._path(setup.id, setup.seed)
        if path is None or not path.exists():
            return None
        try:
            kept = json.loads(path.read_text(encoding="utf-8"))
        except ValueError:
            return None  # a machine that went down may leave an empty file
        same = {"id": setup.id, "duration": setup.duration, "workers": setup.workers}
        return kept if isinstance(kept, dict) and same.items() <= kept.items() else None

    def _keep(self, run: dict[str, Any]) -> dict[str, Any]:
        """Keeps a run, and returns it: with all that happened in it if it has failed, else without."""
        kept = {**run, "events": []} if run["passed"] else run
        path = self._path(run["id"], run["seed"])
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            half = path.with_suffix(".part")
            half.write_text(json.dumps(kept), encoding="utf-8")
            half.rename(path)
        return kept


def merged(runs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns one run for all that were of the same library, store and fault."""
    found: dict[tuple[str, bool], list[dict[str, Any]]] = {}
    for run in runs:
        found.setdefault((run["id"], bool(run["control"])), []).append(run)
    return [_merge(same) for same in found.values()]


def _merge(runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    results = [run["passed"] for run in runs]
    passed = False if False in results else any(results) or None  # None: none of them was judged
    shown = runs[results.index(passed)]
    good = [run for run in runs if run["figures"]]
    if len(good) < 2:
        return shown
    figures: dict[str, Any] = {}
    for name in good[0]["figures"]:
        values = [value for run in good if (value := run["figures"].get(name)) is not None]
        if not values:
            figures[name] = None
        elif name == "told_before":
            figures[name] = min(values)
        else:
            figures[name] = max(values) if name in WORST else sum(values)
    rules: dict[str, dict[str, Any]] = {}
    for run in good:
        for verdict in run["verdicts"]:
            known = rules.get(verdict["rule"])
            if known is None or (known["held"] and not verdict["held"]):
                rules[verdict["rule"]] = verdict
    return {**shown, "figures": figures, "verdicts": list(rules.values()), "passed": passed}
