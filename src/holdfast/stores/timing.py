"""The timing of a queue on a store: the two options that nearly every store has."""

from __future__ import annotations

from typing import Any, NamedTuple

from .. import checks
from ..entries import CLAIM_WINDOW, HEARTBEAT

TIMING_OPTIONS: dict[str, Any] = {"heartbeat": HEARTBEAT, "claim_window": CLAIM_WINDOW}


class Timing(NamedTuple):
    """How often a waiter shows that it lives, and how long a lock that was handed to it lasts."""

    heartbeat: float
    claim_window: float


def timing_of(settings: dict[str, Any]) -> Timing:
    """Returns the timing that `settings` ask for; raises `ConfigError` if it makes no sense."""
    heartbeat = checks.ttl(settings["heartbeat"], "heartbeat")
    return Timing(heartbeat, checks.ttl(settings["claim_window"], "claim_window"))
