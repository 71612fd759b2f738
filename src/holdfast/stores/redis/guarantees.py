"""The guarantees of one Redis, a Redis with sentinels and a cluster of them, as data."""

from __future__ import annotations

from ...guarantees import Guarantees

REDIS = Guarantees(
    store="redis",
    consistency="one server: every step is one script on it; its replicas follow later, so a failover "
    "may forget the latest grants",
    survives="the crash of any client; a restart of the server as far as it saved its data (tokens go "
    "on rising even if all of it is lost)",
    auto_release="at the end of the TTL",
    clock_dependence="the server's wall clock, by which it expires keys: a step of it ends leases "
    "early or late",
    token_source="max(last + 1, server's clock in µs) inside the grant's script; it could go back only "
    "if the data is lost and the clock is set back, or by a failover that forgot grants "
    "younger than the new primary's clock lags. A semaphore's may be ahead of the clock, by up to its "
    "permits in µs for each grant while it is full, and go back by that much if the data is lost",
    fair=True,
    wakeup="handed over by the release, with a message to the next waiter's connection",
    safe_for=("efficiency", "correctness"),
    slots=True,
    recall=True,
    every_change=True,
)

TWO_PRIMARIES = (
    ". While a primary that was cut off, or has come back before anybody told it, still grants beside "
    "the new one, each counts by its own clock: a token may be told a moment after a higher one"
)

REDIS_SENTINEL = REDIS._replace(
    store="redis+sentinel",
    consistency="one server at a time, the primary that the sentinels name: every step is one script "
    "on it; its replicas follow later, so a failover may forget the latest grants, and a primary cut "
    "off from the sentinels goes on granting to those it can still reach",
    survives="the crash of any client; a failover, with all that the new primary had received (tokens "
    "go on rising even if it had received nothing)",
    token_source=REDIS.token_source + TWO_PRIMARIES,
    clock_dependence="the wall clock of the primary, by which it expires keys: a step of it, or a new "
    "primary whose clock differs, ends leases early or late",
)

REDIS_CLUSTER = REDIS._replace(
    store="redis+cluster",
    consistency="one server for each lock: every step is one script on it; its replicas follow later, "
    "so a failover may forget the latest grants, and a server cut off from the others goes on granting "
    "for as long as cluster-node-timeout says",
    survives="the crash of any client; the failover of a server, with all that its replica had "
    "received (tokens go on rising even if that was nothing); the move of a lock to another server",
    token_source=REDIS.token_source + TWO_PRIMARIES,
    clock_dependence="the wall clock of the server that has the lock, by which it expires keys: a step "
    "of it, or another server whose clock differs, ends leases early or late",
)
