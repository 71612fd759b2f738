"""The outcome of a run, as the report has it: what was seen, judged by what the store promises."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from . import judge, verdicts
from .history import Event, in_order
from .labs import Lab
from .promises import Promise, promised
from .registers import FENCED, UNFENCED
from .setup import OURS, Setup

NOTHING_PROMISED = Promise(False, False, "")


def outline(setup: Setup, began: float) -> dict[str, Any]:
    """Returns a run of which nothing was seen; `began` is by the wall clock."""
    return {
        "id": setup.id,
        "library": setup.library,
        "store": setup.store,
        "fault": setup.fault,
        "control": setup.control or None,
        "title": setup.title,
        "seed": setup.seed,
        "duration": setup.duration,
        "workers": setup.workers,
        "stopped": False,
        "not_judged": None,
        "began": began,
        "ended": time.time(),
        "lanes": [],
        "events": [],
        "verdicts": [],
        "figures": {},
        "passed": False,
    }


def failure(setup: Setup, began: float, text: str) -> dict[str, Any]:
    """Returns a run that could not be made; `text` says why."""
    return {**outline(setup, began), "error": text}


def outcome(
    setup: Setup,
    began: float,
    lab: Lab,
    workers: Sequence[str],
    events: Sequence[Event],
    ending: verdicts.Ending,
    *,
    stopped: bool,
    refusal: str,
) -> dict[str, Any]:
    """Returns a run that was made. `refusal` says why the lab could not do a fault, if it could not.

    A run without any fault that hit something has shown nothing: unless a promise was broken even so,
    it is not judged.
    """
    ours = setup.library == OURS
    events = in_order(events)
    seen = judge.Findings(events, tokens=ours)
    guarantees = lab.guarantees if ours else None
    promise = promised(guarantees, setup.fault) if guarantees is not None else NOTHING_PROMISED
    found = verdicts.verdicts_of(seen, ending, guarantees, promise)
    kept = not any(one.failed for one in found)
    passed: bool | None = _broken(setup.control, found) if setup.control else kept
    not_judged = None
    if passed and not seen.faults and not stopped:
        passed, not_judged = None, _nothing_shown(seen, refusal)
    return {
        **outline(setup, began),
        "stopped": stopped,
        "not_judged": not_judged,
        "lanes": _lanes(lab, workers),
        "events": events,
        "verdicts": [one.as_json() for one in found],
        "figures": verdicts.figures_of(seen, ending),
        "passed": passed,
    }


def caught(setup: Setup, events: Sequence[Event]) -> bool:
    """Tells whether the lock of a control was seen to be bad by now."""
    seen = judge.Findings(in_order(events), tokens=setup.library == OURS)
    found = verdicts.verdicts_of(seen, verdicts.Ending(), None, NOTHING_PROMISED)
    return _broken(setup.control, found)


def _nothing_shown(seen: judge.Findings, refusal: str) -> str:
    if seen.misses:
        return f"no fault hit anything: {seen.misses[-1]['text']}"
    return f"no fault could be done: {refusal}"


def _broken(rule: str, found: Sequence[verdicts.Verdict]) -> bool:
    return any(one.rule == rule and not one.held for one in found)


def _lanes(lab: Lab, workers: Sequence[str]) -> list[dict[str, str]]:
    processes = [{"id": name, "kind": "worker", "name": f"worker {name[1:]}"} for name in workers]
    nodes = [{"id": name, "kind": "node", "name": name} for name in lab.nodes]
    kinds = ((FENCED, "with a fence"), (UNFENCED, "without a fence"))
    registers = [{"id": name, "kind": "register", "name": text} for name, text in kinds]
    return processes + nodes + registers
