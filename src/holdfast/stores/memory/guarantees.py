"""The guarantees of a lock of one process, as data."""

from __future__ import annotations

from ...guarantees import Guarantees

MEMORY = Guarantees(
    store="memory",
    consistency="one process: a dictionary behind a mutex",
    survives="nothing; it ends with the process",
    auto_release="at the end of the TTL",
    clock_dependence="the process's own clock, which a test may move by hand",
    token_source="max(last + 1, wall clock in µs), kept in memory; it may go back with the process, if "
    "a burst or a semaphore of thousands was ahead of the clock",
    fair=True,
    wakeup="a signal within the process",
    safe_for=("efficiency",),
    slots=True,
    recall=True,
    every_change=True,
)
