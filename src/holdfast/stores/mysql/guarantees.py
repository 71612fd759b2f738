"""The guarantees of a MySQL or MariaDB database, as data."""

from __future__ import annotations

from ...guarantees import Guarantees

MYSQL = Guarantees(
    store="mysql",
    consistency="one primary: every step is one transaction on it, under the lock's row; its replicas "
    "follow later, so a failover may forget the latest grants, unless replication waits for them",
    survives="the crash of any client; a crash of the server, if innodb_flush_log_at_trx_commit is 1, "
    "which is the default; a failover, with all that the new primary had received (tokens go on rising "
    "even if that was nothing)",
    auto_release="at the end of the TTL",
    clock_dependence="the server's wall clock: a step of it, or a new primary whose clock differs, "
    "ends leases early or late",
    token_source="max(the lock's last + 1, server's clock in µs), under the lock's row in the grant's "
    "own transaction; it could go back only if a failover forgot grants younger than the new primary's "
    "clock lags, or if the data is lost and the clock is set back. A semaphore's may be ahead of the "
    "clock, by up to its permits in µs for each grant while it is full",
    fair=True,
    wakeup="handed over by the release; these databases send no messages, so waiters are looked after, "
    "by one query for all of a manager, every 10 to 250 ms",
    safe_for=("efficiency", "correctness"),
    slots=True,
    every_change=True,
)
