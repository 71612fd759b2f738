"""The guarantees of an etcd cluster, as data."""

from __future__ import annotations

from ...guarantees import Guarantees

ETCD = Guarantees(
    store="etcd",
    consistency="linearizable: every grant is one transaction that a majority of the members agreed on",
    survives="the crash of any client, and of any minority of the members; the restart of all of them; "
    "not a snapshot that was restored",
    auto_release="when its lease ends, at most a second after the TTL, which counts whole seconds",
    clock_dependence="how fast the leader's clock runs, never what it shows; a leader whose disk is "
    "stuck may end living leases (etcd#15247, mended in 3.4.31 and 3.5.13), which holders are told of",
    token_source="the revision of the write that made it the holder; it could go back only with a "
    "snapshot that was restored",
    fair=True,
    wakeup="handed over by the release, seen by a watch of the waiter's manager",
    safe_for=("efficiency", "correctness"),
    barging=False,
    slots=True,
    recall=True,
    every_change=True,
)
