"""The doctor of the store in memory."""

from __future__ import annotations

from typing import Any

from ...findings import Findings
from ..urls import Target
from ._sync.backend import prepare


def examine(target: Target, namespace: str, options: dict[str, Any], deadline: float) -> Findings:
    """Returns the findings about the store that a URL names."""
    prepare(target, namespace, options)  # refuses what connect() refuses
    findings = Findings()
    findings.warning(
        "purpose",
        "memory:// is for tests: its locks are in one process",
        "no other process sees them, so nobody outside is excluded; and they end with it",
        "name another store, such as sqlite:///var/lib/app/locks.db or redis://HOST",
    )
    return findings
