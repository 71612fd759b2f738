"""The guarantees of a majority of independent Redis nodes, as data."""

from __future__ import annotations

from ...guarantees import Guarantees
from .address import MAX_TTL, Settings

REDLOCK = Guarantees(
    store="redlock",
    consistency="a majority of independent Redis nodes: two majorities share a node, on which one hold "
    "ends before the other begins",
    survives="the loss of any minority of the nodes, and the restart of any node, with or without its "
    "data: it votes again only when all that it may have forgotten is over",
    auto_release="at the end of the TTL",
    clock_dependence="exclusion: the nodes' wall clocks, by which they expire keys, for a majority of "
    "them; the order of tokens: none",
    token_source="the highest counter of a majority, to which that majority is raised while held; "
    "no clock, no pause and no restart of nodes lowers it while a majority remembers. At a first "
    "start, and where a majority restarts within max_ttl, counters start at the nodes' wall clocks: "
    "if those were set back, tokens may go back. Those who share a lock at the same time may have "
    "equal tokens, or in any order; of each slot of a semaphore they rise",
    fair=False,
    wakeup="by a message from a node on which the lock was given back; nothing is handed over",
    safe_for=("efficiency", "correctness"),
    slots=True,
    longest_detached=MAX_TTL,
)

STOPPING = REDLOCK._replace(
    survives="the loss of any minority of the nodes, and the restart of any node, with or without its "
    "data, while a majority remembers; where a majority restarts within max_ttl, the nodes stay out "
    "(majority_lost='stop')",
    token_source="the highest counter of a majority, to which that majority is raised while held; "
    "no clock, no pause and no restart of nodes lowers it. At a first start counters start at the "
    "nodes' wall clocks. Those who share a lock at the same time may have equal tokens, or in any "
    "order; of each slot of a semaphore they rise",
)


def promised_by(settings: Settings) -> Guarantees:
    """Returns the guarantees of nodes that are used with `settings`."""
    promised = STOPPING if settings.stop_when_lost else REDLOCK
    return promised._replace(longest_detached=settings.max_ttl)
