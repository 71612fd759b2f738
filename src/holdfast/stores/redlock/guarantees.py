"""The guarantees of a majority of independent Redis nodes, as data."""

from __future__ import annotations

from ...guarantees import Guarantees

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
    "no clock, no pause and no restart of nodes lowers it, unless a majority of the nodes "
    "loses its data at once and their clocks are set back",
    fair=False,
    wakeup="by a message from a node on which the lock was given back; nothing is handed over",
    safe_for=("efficiency", "correctness"),
)
