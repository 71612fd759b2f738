"""Requests and answers of a lock service as values of the library. No I/O.

Answers are checked: one that is not about the lock and the owner that was asked for, or in which a
number is missing, is no answer at all.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from math import isfinite
from typing import Any

from ...entries import Claim
from ...model import (
    GONE,
    UNKNOWN,
    Busy,
    Change,
    Granted,
    Label,
    LockState,
    Observation,
    Outcome,
    Participant,
    Queued,
    Renewed,
    Waiting,
)

encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode
"""Returns a value as JSON, in ASCII."""


class Nonsense(ValueError):
    """Raised when an answer is not what was asked for."""


def path_part(name: str) -> str:
    """Returns a name as a part of a path that no software on the way changes."""
    if name.isascii() and name.replace("-", "").replace("_", "").isalnum():
        return name
    return "~" + name.encode().hex()


def fields_of(terms: Any) -> dict[str, Any]:
    """Returns what an acquire says of the lock, of the `Terms` of either world; without the owner."""
    label = terms.label
    fields: dict[str, Any] = {
        "ttl": terms.ttl,
        "weight": terms.weight,
        "capacity": terms.capacity,
        "kind": terms.kind,
        "label": {"host": label.host, "pid": label.pid, "text": label.text},
    }
    if terms.barge:
        fields["fair"] = False
    if not terms.renew:
        fields["renew"] = False
    if terms.delay:
        fields["delay"] = terms.delay
    return fields


def claims_body(claims: Sequence[Claim]) -> bytes:
    """Returns the body of a renewal."""
    listed = [{"name": name, "owner": owner, "ttl": ttl} for name, owner, ttl in claims]
    return encode({"claims": listed}).encode()


# Answers.


def _number(data: dict[str, Any], field: str, default: float | None = None) -> float:
    value = data.get(field, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
        raise Nonsense(f"it did not tell {field!r}")
    return float(value)


def _whole(data: dict[str, Any], field: str, default: int | None = None) -> int:
    value = data.get(field, default)
    if isinstance(value, bool) or not isinstance(value, int):
        raise Nonsense(f"it did not tell {field!r}")
    return value


def _text(data: dict[str, Any], field: str) -> str:
    value = data.get(field)
    if not isinstance(value, str):
        raise Nonsense(f"it did not tell {field!r}")
    return value


def object_of(value: Any) -> dict[str, Any]:
    """Returns `value`, if it is an object of JSON."""
    if not isinstance(value, dict):
        raise Nonsense("it did not answer with an object")
    return value


def list_of(data: dict[str, Any], field: str, length: int | None = None) -> list[Any]:
    """Returns a list in an answer; `length` is that which it must have."""
    value = data.get(field)
    if not isinstance(value, list) or (length is not None and len(value) != length):
        raise Nonsense(f"it did not tell {field!r} in full")
    return value


def since_of(data: dict[str, Any], sent: float) -> float:
    """Returns when, on our clock, that was sent from which the lease counts; 0: the request itself.

    The service tells how long before it received the request that was. It received it after `sent`.
    """
    age = _number(data, "age", 0.0)
    if age < 0:
        raise Nonsense("it told an age below zero")
    return sent - age if age else 0.0


def _check_subject(data: dict[str, Any], name: str, owner: str) -> None:
    if data.get("owner") != owner or data.get("name", name) != name:
        raise Nonsense("its answer is about another lock, or another owner")


def _token_of(data: dict[str, Any]) -> int:
    token = _whole(data, "token")
    if token <= 0:
        raise Nonsense("it told a token that is none")
    return token


def _slot_of(data: dict[str, Any]) -> int | None:
    return None if data.get("slot") is None else _whole(data, "slot")


def _ttl_of(data: dict[str, Any]) -> float:
    ttl = _number(data, "ttl")
    if ttl <= 0:
        raise Nonsense("it told a TTL that is none")
    return ttl


def granted(value: Any, name: str, owner: str, sent: float) -> Granted:
    """Returns a grant."""
    data = object_of(value)
    _check_subject(data, name, owner)
    if data.get("state", "held") != "held":
        raise Nonsense("it told of a grant that is none")
    handed = data.get("handed", False) is True
    return Granted(_token_of(data), _ttl_of(data), handed, since_of(data, sent), _slot_of(data))


def queued(value: Any, name: str, owner: str, sent: float) -> Queued:
    """Returns a place in the queue."""
    data = object_of(value)
    _check_subject(data, name, owner)
    if data.get("state") != "waiting":
        raise Nonsense("it told of a place in the queue that is none")
    return Queued(max(_number(data, "remaining"), 0.0), since_of(data, sent))


def busy(value: Any) -> Busy:
    """Returns what a refusal says of how long the others may go on."""
    data = object_of(value)
    if "remaining" in data:
        return Busy(max(_number(data, "remaining"), 0.0))
    holders = [object_of(one) for one in data.get("holders") or ()]
    return Busy(max((_number(one, "remaining") for one in holders), default=0.0))


def outcome(value: Any, claim: Claim, sent: float) -> Outcome:
    """Returns what became of one claim."""
    data = object_of(value)
    state = data.get("state")
    if data.get("owner", claim.owner) != claim.owner or data.get("name", claim.name) != claim.name:
        raise Nonsense("its answer is about another lock, or another owner")
    if state == "held":
        return Renewed(_token_of(data), _ttl_of(data), since_of(data, sent), _slot_of(data))
    if state == "waiting":
        return Waiting(max(_number(data, "remaining"), 0.0), since_of(data, sent))
    if state == "gone":
        return GONE
    if state == "unknown":
        return UNKNOWN
    raise Nonsense("it told a state that there is not")


def _label(value: Any) -> Label:
    data = object_of(value)
    return Label(_text(data, "host"), _whole(data, "pid"), _text(data, "text"))


def _participant(value: Any) -> Participant:
    data = object_of(value)
    return Participant(
        _text(data, "owner"),
        _label(data.get("label")),
        _whole(data, "token", 0),
        _number(data, "since"),
        _number(data, "remaining"),
        _whole(data, "weight", 1),
        _slot_of(data),
        _number(data, "ttl") if "ttl" in data else None,
    )


def lock_state(value: Any) -> LockState:
    """Returns a lock as it stands."""
    data = object_of(value)
    out = list_of(data, "out") if "out" in data else []
    return LockState(
        _text(data, "name"),
        tuple(_participant(one) for one in list_of(data, "holders")),
        tuple(_participant(one) for one in list_of(data, "waiters")),
        _whole(data, "token"),
        _text(data, "kind"),
        _whole(data, "capacity"),
        tuple(str(one) for one in out),
    )


def observation(value: Any) -> Observation:
    """Returns the changes of an election."""
    data = object_of(value)
    changes = []
    for one in list_of(data, "changes"):
        change = object_of(one)
        changes.append(
            Change(
                _whole(change, "number"),
                _whole(change, "token"),
                _text(change, "owner"),
                _label(change.get("label")),
                _number(change, "since"),
            )
        )
    return Observation(tuple(changes), max(_number(data, "remaining"), 0.0))
