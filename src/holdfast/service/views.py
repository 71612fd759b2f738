"""Views: locks, grants and outcomes as the JSON of the service."""

from __future__ import annotations

from json.encoder import encode_basestring_ascii as quote
from typing import Any

from ..model import (
    Change,
    Gone,
    LockState,
    Outcome,
    Participant,
    Renewed,
    Waiting,
)
from .answers import dumps
from .waiter import Grant

View = dict[str, Any]


def grant_view(name: str, owner: str, grant: Grant, received: float, now: float) -> View:
    """Returns a grant. `received` is when its request was received, on the store's clock."""
    token, ttl, sent, slot, handed = grant
    view: View = {
        "name": name,
        "owner": owner,
        "state": "held",
        "token": token,
        "ttl": ttl,
        "remaining": round(max(ttl - (now - sent), 0.0), 6),
        "waited": max(sent - received, 0.0),
        "age": max(received - sent, 0.0),
    }
    if slot is not None:
        view["slot"] = slot
    if handed:
        view["handed"] = True
    return view


def grant_text(name: str, owner: str, grant: Grant, received: float, now: float) -> bytes:
    """Returns what `grant_view` does, as JSON: the answer that most requests get."""
    token, ttl, sent, slot, handed = grant
    if slot is not None or handed:
        return dumps(grant_view(name, owner, grant, received, now)).encode()
    if sent == received:
        waited_and_age = '"waited":0.0,"age":0.0'  # nearly always
    else:
        waited, age = max(sent - received, 0.0), max(received - sent, 0.0)
        waited_and_age = f'"waited":{waited!r},"age":{age!r}'
    return (
        f'{{"name":{quote(name)},"owner":{quote(owner)},"state":"held","token":{token},"ttl":{ttl!r},'
        f'"remaining":{max(ttl - (now - sent), 0.0):.6f},{waited_and_age}}}'
    ).encode()


def waiting_view(name: str, owner: str, remaining: float, since: float, received: float) -> View:
    """Returns a place in the queue; the holders have `remaining` seconds at the most."""
    age = max(received - since, 0.0) if since else 0.0
    return {
        "name": name,
        "owner": owner,
        "state": "waiting",
        "remaining": max(remaining, 0.0),
        "age": age,
    }


def outcome_view(name: str, owner: str, outcome: Outcome, sent: float, now: float) -> View:
    """Returns what became of one claim of a renewal that was received, and sent, at `sent`."""
    if isinstance(outcome, Renewed):
        grant = Grant(outcome.token, outcome.ttl, outcome.since or sent, outcome.slot)
        return grant_view(name, owner, grant, sent, now)
    if isinstance(outcome, Waiting):
        return waiting_view(name, owner, outcome.remaining, outcome.since, sent)
    state = "gone" if isinstance(outcome, Gone) else "unknown"
    return {"name": name, "owner": owner, "state": state}


def participant_view(one: Participant) -> View:
    """Returns a holder or waiter."""
    host, pid, text = one.label
    view: View = {
        "owner": one.owner,
        "label": {"host": host, "pid": pid, "text": text},
        "token": one.token,
        "since": one.since,
        "remaining": max(one.remaining, 0.0),
        "weight": one.weight,
    }
    if one.slot is not None:
        view["slot"] = one.slot
    if one.ttl is not None:
        view["ttl"] = one.ttl
    return view


def state_view(state: LockState) -> View:
    """Returns a lock as it stands."""
    view: View = {
        "name": state.name,
        "kind": state.kind,
        "capacity": state.capacity,
        "token": state.token,
        "holders": [participant_view(one) for one in state.holders],
        "waiters": [participant_view(one) for one in state.waiters],
        "out": list(state.out),
    }
    return view


def change_view(change: Change) -> View:
    """Returns a change of an election."""
    host, pid, text = change.label
    return {
        "number": change.number,
        "token": change.token,
        "owner": change.owner,
        "label": {"host": host, "pid": pid, "text": text},
        "since": change.since,
    }
