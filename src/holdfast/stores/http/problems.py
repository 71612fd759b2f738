"""What a service answers when it refuses, as the errors of the library. No message holds a token."""

from __future__ import annotations

from typing import Any

from ...errors import BackendUnavailable, ConfigError, GuaranteeError, LockError
from .wire.http1 import Answer

LONGEST_DETAIL = 1000
LONGEST_PAUSE = 60.0


def kind_of(data: Any) -> str:
    """Returns the kind of a problem: `busy` for the type `/problems/busy`; empty if it is none."""
    value = data.get("type") if isinstance(data, dict) else None
    return value.rpartition("/")[2] if isinstance(value, str) else ""


def detail_of(data: Any) -> str:
    """Returns what the service says of a problem, in its words."""
    value = (data.get("detail") or data.get("title")) if isinstance(data, dict) else None
    if not isinstance(value, str):
        return ""
    return "".join(sign if sign.isprintable() else "?" for sign in value[:LONGEST_DETAIL])


def pause_of(answer: Answer) -> float:
    """Returns the seconds after which the service wants to be asked again; 0 if it does not say."""
    text = answer.headers.get(b"retry-after", b"")
    return min(float(text), LONGEST_PAUSE) if text.isdigit() and len(text) < 9 else 0.0


def error_of(
    answer: Answer, data: Any, name: str | None = None, owner: str | None = None
) -> LockError:
    """Returns the error that a refusal is."""
    status, where = answer.status, f"the lock service at {answer.endpoint}"
    detail = detail_of(data) or f"it answered {status}"
    if status == 401:
        return ConfigError(
            f"{where} does not know us: {detail}; give a token that it knows to connect(token=…), or "
            "name its file in $HOLDFAST_TOKEN_FILE; `holdfast token` makes one",
            name=name,
            owner=owner,
        )
    if status == 403:
        return ConfigError(
            f"{where} does not let this token do that: {detail}; ask its operator for one with the "
            "role and the name prefix that it takes",
            name=name,
            owner=owner,
        )
    if status in (400, 404, 405, 409, 413, 415, 422):
        if kind_of(data) == "guarantee":
            return GuaranteeError(detail, name=name, owner=owner)
        if kind_of(data) == "bad-input":
            return ConfigError(detail, name=name, owner=owner)
        return ConfigError(f"{where} refused the request: {detail}", name=name, owner=owner)
    return BackendUnavailable(f"{where} cannot be used: {detail}", name=name, owner=owner)
