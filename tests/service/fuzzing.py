"""How the requests that a fuzzer thinks of are chosen."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

FEW = settings(
    max_examples=6,
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
"""Few requests of each operation, the same ones in each run: a decorator."""
