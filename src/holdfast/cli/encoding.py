"""Locks as JSON, for programs. What is written is ASCII, without a control character."""

from __future__ import annotations

import json
from typing import Any

from .. import Deadlock, LockState, Participant


def dumps(value: object) -> str:
    """Returns the value as JSON in one line."""
    return json.dumps(value).replace("\x7f", "\\u007f")


def participant(one: Participant, kind: str) -> dict[str, Any]:
    """Returns a holder or waiter of a lock of that kind as an object."""
    # The slot of a `once` is renewed while the work is done, and then kept for the rest of its period:
    # which of the two it is, not every store tells.
    ttl = None if kind == "once" else one.ttl
    found: dict[str, Any] = {
        "owner": one.owner,
        "host": one.label.host,
        "pid": one.label.pid,
        "label": one.label.text,
        "token": one.token,
        "since": round(one.since, 3),
        "remaining": round(one.remaining, 3),
        "ttl": None if ttl is None else round(ttl, 3),
        "weight": one.weight,
    }
    if kind == "semaphore" and one.token:
        found["slot"] = one.slot
    return found


def lock(state: LockState) -> dict[str, Any]:
    """Returns a lock as an object."""
    found = {
        "name": state.name,
        "kind": state.kind,
        "capacity": state.capacity,
        "token": state.token,
        "held": state.held,
        "holders": [participant(one, state.kind) for one in state.holders],
        "waiters": [participant(one, state.kind) for one in state.waiters],
    }
    if state.out:
        found["out"] = list(state.out)
    return found


def deadlock(found: Deadlock) -> dict[str, Any]:
    """Returns a circle of those who wait for each other as an object."""
    circle = []
    for wait, inner in found.steps():
        kind = "lock" if wait.blocker.slot is None else "semaphore"
        step = {"name": wait.name, "waiter": participant(wait.waiter, kind)}
        step["blocker"] = participant(wait.blocker, kind)
        if inner is not None:
            step["runs"] = participant(inner, "lock")
        circle.append(step)
    return {"since": round(found.since, 3), "cycle": circle, "locks": list(found.locks)}
