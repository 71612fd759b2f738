"""What a lock service promises: all that the store behind it does, which it says when it is reached."""

from __future__ import annotations

from typing import Any

from ...guarantees import MAX_DETACHED, Guarantees, Provisional

_BEHIND = "as the store behind the service, which says so when it is reached"

HTTP = Provisional(
    store="http",
    consistency=_BEHIND,
    survives="the loss of a service, if others are named beside it; else " + _BEHIND,
    auto_release=_BEHIND,
    clock_dependence=_BEHIND,
    token_source=_BEHIND,
    fair=True,
    wakeup="told by the service, over one stream for each manager",
    safe_for=("efficiency", "correctness"),
    slots=True,
    recall=True,
    every_change=True,
)
"""The promises before the service was asked. Nothing is refused by them: its own decide then."""

_TEXTS = ("consistency", "survives", "auto_release", "clock_dependence", "token_source")
_SWITCHES = ("fair", "barging", "renew_ttl", "slots", "recall", "every_change")


def guarantees_of(data: dict[str, Any]) -> Guarantees:
    """Returns the promises that a service told; raises `ValueError` if they are not complete."""
    texts = {name: data[name] for name in ("store", *_TEXTS)}
    switches = {name: data[name] for name in _SWITCHES}
    safe_for = data["safe_for"]
    longest = data.get("longest_detached", MAX_DETACHED)
    if (
        not all(isinstance(text, str) for text in texts.values())
        or not all(isinstance(switch, bool) for switch in switches.values())
        or not isinstance(safe_for, list)
        or not all(isinstance(text, str) for text in safe_for)
        or isinstance(longest, bool)
        or not isinstance(longest, int | float)
    ):
        raise ValueError("the guarantees of the service are not complete")
    store = texts.pop("store")
    return Guarantees(
        store=f"http ({store})",
        **texts,
        **switches,
        wakeup=HTTP.wakeup,
        safe_for=tuple(safe_for),
        longest_detached=float(longest),
    )
