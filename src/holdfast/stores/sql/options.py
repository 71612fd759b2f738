"""The options that all databases have."""

from __future__ import annotations

from typing import Any

from ...errors import ConfigError
from ..timing import TIMING_OPTIONS

CONNECTIONS = 4
"""Connections for steps, if nothing else is said; one more renews, and one more may listen."""
SQL_OPTIONS: dict[str, Any] = {**TIMING_OPTIONS, "connections": CONNECTIONS}


def connections_of(settings: dict[str, Any]) -> int:
    """Returns how many connections steps may have; raises `ConfigError` if that makes no sense."""
    value = settings["connections"]
    if isinstance(value, bool) or not isinstance(value, int | float) or value != int(value):
        raise ConfigError(f"connections must be a whole number, not {value!r:.40}")
    if not 1 <= value <= 100:
        raise ConfigError(f"connections must be from 1 to 100, not {value:g}")
    return int(value)
