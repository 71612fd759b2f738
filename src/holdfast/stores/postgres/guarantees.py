"""The guarantees of a PostgreSQL database, as data."""

from __future__ import annotations

from ...guarantees import Guarantees

POSTGRES = Guarantees(
    store="postgresql",
    consistency="one primary: every step is one transaction on it, under the lock's row; its standbys "
    "follow later, so a failover may forget the latest grants, unless replication is synchronous",
    survives="the crash of any client; a crash of the server (a grant is on its disk before it is "
    "answered, whatever synchronous_commit says); a failover, with all that the new primary had "
    "received (tokens go on rising even if that was nothing)",
    auto_release="at the end of the TTL",
    clock_dependence="the server's wall clock: a step of it, or a new primary whose clock differs, "
    "ends leases early or late",
    token_source="max(the lock's last + 1, server's clock in µs), under the lock's row in the grant's "
    "own transaction; it could go back only if a failover forgot grants younger than the new primary's "
    "clock lags, or if the data is lost and the clock is set back. A semaphore's may be ahead of the "
    "clock, by up to its permits in µs for each grant while it is full",
    fair=True,
    wakeup="handed over by the release, with NOTIFY to the next waiter's connection; where a pooler "
    "swallows that, waiters are looked after, by one query for all of a manager, every 10 to 250 ms, "
    "and holders learn of a forced release at their next renewal",
    safe_for=("efficiency", "correctness"),
    slots=True,
    recall=True,
    every_change=True,
)
