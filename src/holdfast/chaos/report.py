"""The report of a campaign: one object, for `--json`, the picture and the tables."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from typing import Any

from .. import __version__
from .tiers import tiers

VERSION = 1
MOST_EVENTS = 20_000
"""The events of a run that a report has; of a longer run it has the figures alone."""


def report_of(
    runs: Sequence[dict[str, Any]],
    command: str,
    seed: int,
    duration: float,
    skipped: Sequence[dict[str, str]] = (),
    stopped: bool = False,
) -> dict[str, Any]:
    """Returns the report, with the controls behind the runs, and what was left out.

    A campaign that was stopped early has not passed, whatever was seen of it.
    """
    ordered = sorted(runs, key=lambda run: run["control"] is not None)
    return {
        "version": VERSION,
        "holdfast": __version__,
        "command": command,
        "seed": seed,
        "duration": duration,
        "machine": machine(),
        "tiers": [tier._asdict() for tier in tiers()],
        "skipped": list(skipped),
        "runs": [_bounded(run) for run in ordered],
        "stopped": stopped,
        "passed": not stopped and bool(runs) and all(run["passed"] for run in runs),
    }


def _bounded(run: dict[str, Any]) -> dict[str, Any]:
    return run if len(run["events"]) <= MOST_EVENTS else {**run, "events": []}


def machine() -> str:
    """Returns what the figures were seen on."""
    system = f"{platform.system()} {platform.release()}, {platform.machine()}"
    return f"{system}, {os.cpu_count()} processors, Python {platform.python_version()}"
