"""The guarantees of a ZooKeeper ensemble, as data."""

from __future__ import annotations

from ...guarantees import Guarantees

ZOOKEEPER = Guarantees(
    store="zookeeper",
    consistency="an ensemble: every step is a write that a majority agreed to",
    survives="the crash or the cut-off of any minority of its servers, a change of leader, and a "
    "restart of all of them; not a restored snapshot, which sets the tokens back",
    auto_release="at the end of the session: the TTL, a fifth of it and at most four ticks after the "
    "ensemble last heard of the holder",
    clock_dependence="no wall clock, except that the leader's decides when a detached lease has ended; "
    "the leader's and the holder's clocks must run at the same speed, within 1 %",
    token_source="a zxid: of its creation, or of the change in the queue that made it the holder",
    fair=True,
    wakeup="a watch on the entry that is in its way",
    safe_for=("efficiency", "correctness"),
    barging=False,
    renew_ttl=False,
    slots=True,
    recall=True,
    every_change=True,
)
