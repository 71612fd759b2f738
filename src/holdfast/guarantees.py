"""What each store promises, as data: shown to people, and asked by the code that must refuse."""

from __future__ import annotations

from typing import NamedTuple


class Guarantees(NamedTuple):
    """What a lock on one kind of store can and cannot promise."""

    store: str
    consistency: str
    """What agreement stands behind a grant."""
    survives: str
    """Which failures of the store leave its locks and its tokens as they were."""
    auto_release: str
    """What frees the lock of a holder that died, and how soon."""
    clock_dependence: str
    """Which clocks have to behave for two holders never to overlap."""
    token_source: str
    """Where the fencing token comes from, and what could make it go back."""
    fair: bool
    """First come, first served; without it `fair=True` is refused."""
    wakeup: str
    """How a waiter learns that it is its turn."""
    safe_for: tuple[str, ...]
    """`efficiency`, and `correctness` where a fenced lock may stand on this store."""
    barging: bool = True
    """Whether `fair=False` lets newcomers overtake; where not, that permission is ignored."""
    renew_ttl: bool = True
    """Whether `lease.renew(ttl)` can change the TTL."""
    slots: bool = False
    """Whether a semaphore's lease has a `slot` that no other holder has meanwhile, to be fenced by."""


MEMORY = Guarantees(
    store="memory",
    consistency="one process: a dictionary behind a mutex",
    survives="nothing; it ends with the process",
    auto_release="at the end of the TTL",
    clock_dependence="the process's own clock, which a test may move by hand",
    token_source="max(last + 1, wall clock in µs), kept in memory",
    fair=True,
    wakeup="a signal within the process",
    safe_for=("efficiency",),
    slots=True,
)

SQLITE = Guarantees(
    store="sqlite",
    consistency="one machine: SQLite transactions on a local file",
    survives="the crash of any process, and a power cut (locks end, tokens go on rising); "
    "not the loss of the file",
    auto_release="at once when the holder's process dies, otherwise at the end of the TTL",
    clock_dependence="the machine's boot-time clock, which does not step and counts suspended time",
    token_source="microseconds: the wall clock when the machine booted, and from there the boot clock, "
    "minted in the grant's own transaction; a ceiling is kept on the disk ahead of it, so that neither "
    "a power cut nor a clock set back lowers it",
    fair=True,
    wakeup="handed over by the release, with a datagram to the next waiter's process",
    safe_for=("efficiency", "correctness"),
    slots=True,
)

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
    "younger than the new primary's clock lags",
    fair=True,
    wakeup="handed over by the release, with a message to the next waiter's connection",
    safe_for=("efficiency", "correctness"),
    slots=True,
)

REDIS_SENTINEL = REDIS._replace(
    store="redis+sentinel",
    consistency="one server at a time, the primary that the sentinels name: every step is one script "
    "on it; its replicas follow later, so a failover may forget the latest grants, and a primary cut "
    "off from the sentinels goes on granting to those it can still reach",
    survives="the crash of any client; a failover, with all that the new primary had received (tokens "
    "go on rising even if it had received nothing)",
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
    clock_dependence="the wall clock of the server that has the lock, by which it expires keys: a step "
    "of it, or another server whose clock differs, ends leases early or late",
)

ZOOKEEPER = Guarantees(
    store="zookeeper",
    consistency="an ensemble: every step is a write that a majority agreed to",
    survives="the crash or the cut-off of any minority of its nodes, a change of leader, and a restart "
    "of all of them; not a restored snapshot, which sets the tokens back",
    auto_release="at the end of the session: the TTL, a fifth of it and at most four ticks after the "
    "ensemble last heard of the holder",
    clock_dependence="no wall clock; the leader's and the holder's clocks must run at the same speed, "
    "within 1 %",
    token_source="a zxid: of its creation, or of the change in the queue that made it the holder",
    fair=True,
    wakeup="a watch on the one before it in the queue",
    safe_for=("efficiency", "correctness"),
    barging=False,
    renew_ttl=False,
)

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

ETCD = Guarantees(
    store="etcd",
    consistency="linearizable: every grant is one transaction that a majority of the members agreed on",
    survives="the crash of any client, and of any minority of the members; the restart of all of them; "
    "not a snapshot that was restored",
    auto_release="when its lease ends, at most a second after the TTL, which counts whole seconds",
    clock_dependence="how fast the leader's clock runs, never what it shows; a leader whose disk is "
    "stuck may end living leases (etcd#15247, mended in 3.5.8), which holders are told of",
    token_source="the revision of the write that made it the holder; it could go back only with a "
    "snapshot that was restored",
    fair=True,
    wakeup="handed over by the release, seen by a watch of the waiter's manager",
    safe_for=("efficiency", "correctness"),
    barging=False,
)
