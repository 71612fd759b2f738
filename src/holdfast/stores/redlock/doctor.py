"""The doctor of Redlock: are its nodes independent, which of them vote, and how do others come back?

It asks each node by itself and opens no session: that would bring back nodes that are out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from ...clock import system_clock
from ...errors import BackendUnavailable, ConfigError, LockError
from ...findings import Findings
from ..measures import Reading, judge_clocks, judge_round_trips, trial_namespace
from ..redis.address import Address
from ..redis.keys import Naming
from ..redis.questions import Server, judge_memory, judge_version
from ..redis.wire.protocol import require_hiredis
from ..redis.wire.refusals import DENIED, code_of, reason_of
from ..resolving import resolve
from ..urls import Target
from ._sync.rejoin import DRIFT
from .address import Settings, parse_settings
from .commands import members_text
from .membership import US, Marker, read_marker

WHY_CLOCK = (
    "a node ends locks by its wall clock; and at a first start, or after a majority was lost, "
    "tokens start "
    "at the nodes' clocks: if those went back, tokens may"
)
PROBE = (
    b"redis.call('SET', KEYS[1], '1', 'PX', 1000) redis.call('TIME') return "
    b"redis.call('DEL', KEYS[1])"
)
RIGHTS = (
    "ACL SETUSER NAME ~NAMESPACE:* &NAMESPACE:* +@connection +@read +@write +@scripting "
    "+@pubsub +time +info"
)


LIVES = "the clients have to know whether a node votes, and whether it has restarted"


class Node:
    """One node, as it was found."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self.name = str(address)
        self.failure = ""
        """The reason why it could not be asked; empty if it could."""
        self.run_id = ""
        self.uptime = 0
        self.replication: dict[str, str] = {}
        self.reading: Reading | None = None
        self.is_closed = False
        """True if we are not let in, or may not see whether it votes."""
        self.marker: Marker | None = None
        self.began: float | None = None
        """Seconds since it began to come back, by its own clock, in its present run."""

    def votes(self, durable: bool) -> bool:
        """Returns whether it takes part in decisions."""
        if self.failure or self.is_closed or self.marker is None:
            return False
        return durable or self.marker.incarnation.startswith(self.run_id.encode())


def examine(target: Target, namespace: str, options: dict[str, Any], deadline: float) -> Findings:
    """Returns the findings about the nodes that a URL names."""
    settings = parse_settings(target, options)
    require_hiredis()
    findings = Findings()
    nodes = [Node(address) for address in settings.addresses]
    refusals: list[ConfigError] = []
    for node in nodes:
        try:
            _ask(findings, node, settings, namespace, deadline)
        except (BackendUnavailable, ConfigError) as error:
            node.failure = str(error)
            if isinstance(error, ConfigError):
                refusals.append(error)
                node.is_closed = True
    if len(refusals) == len(nodes):
        raise refusals[0]
    if all(node.failure for node in nodes):
        raise BackendUnavailable(f"no node answers: {nodes[0].failure}")
    _judge_reachable(findings, nodes, settings)
    _judge_independence(findings, nodes, settings, deadline)
    _judge_votes(findings, nodes, settings)
    readings = [node.reading for node in nodes if node.reading is not None]
    judge_clocks(findings, readings, WHY_CLOCK)
    if readings:
        _judge_round_trips(findings, max(one.trip for one in readings), settings)
    return findings


def _ask(
    findings: Findings, node: Node, settings: Settings, namespace: str, deadline: float
) -> None:
    """Asks one node for all that is needed of it."""
    server = Server(node.address, deadline)
    try:
        judge_version(findings, server, node.name)
        judge_memory(findings, server, node.name)
        info = server.info(b"server")
        node.run_id = info.get("run_id", "")
        node.uptime = int(info.get("uptime_in_seconds", 0))
        node.replication = server.info(b"replication")
        node.reading = server.read_clock()
        naming = Naming(namespace, None)
        marker = server.ask(b"GET", naming.space + b":redlock:marker")
        node.marker = _marker(marker)
        node.is_closed = not node.run_id or isinstance(marker, Exception)
        node.began = _beginning(server.ask(b"GET", naming.space + b":redlock:beginning"), node)
        if settings.durable:
            _judge_durable(findings, server, node)
        _judge_rights(findings, server, node, namespace, marker)
    finally:
        server.close()


def _judge_rights(
    findings: Findings, server: Server, node: Node, namespace: str, marker: Any
) -> None:
    """Adds what the node refuses: for want of a right, or because it cannot write."""
    key = Naming(trial_namespace(namespace), None).space
    probe = server.ask(b"EVAL", PROBE, b"1", key)
    scripts = "every step of a lock is a script on each node"
    if isinstance(probe, Exception) and code_of(probe) not in DENIED:
        findings.wrong(
            "writes",
            f"it {reason_of(probe)}",
            "a node that cannot write grants nothing, as if it were down",
            "find out why: INFO memory, INFO replication, INFO persistence",
            server=node.name,
        )
    channel = Naming(namespace, None).channels + b"doctor"
    for what, reply, why in (
        ("run scripts that write", probe, scripts),
        ("see the node's run_id: INFO server", not node.run_id and Exception("NOPERM"), LIVES),
        ("read its keys", marker, LIVES),
        ("listen on channels", server.ask(b"SUBSCRIBE", channel), "waiters are woken on channels"),
    ):
        if isinstance(reply, Exception) and code_of(reply) in DENIED:
            findings.wrong(
                "scripts",
                f"this user may not {what}: {reply!s:.120}",
                why,
                RIGHTS,
                server=node.name,
            )


def _marker(reply: Any) -> Marker | None:
    try:
        return read_marker(reply) if isinstance(reply, bytes) else None
    except ValueError:
        return None


def _beginning(reply: Any, node: Node) -> float | None:
    """Returns for how long the node has been coming back; None if it is not, in its present run."""
    if not isinstance(reply, bytes) or not node.run_id or node.reading is None:
        return None
    incarnation, _, rest = reply.partition(US)
    started = rest.partition(US)[0]
    if not incarnation.startswith(node.run_id.encode()) or not started.isdigit():
        return None
    there = system_clock().wall() + node.reading.ahead
    return max(0.0, there - int(started) / 1000)


def _judge_durable(findings: Findings, server: Server, node: Node) -> None:
    """Adds whether the node is as the option appendfsync says, for which nodes do not wait."""
    log, mode = server.setting(b"appendonly"), server.setting(b"appendfsync")
    if log is None or mode is None:
        findings.note(
            "persistence",
            "CONFIG GET is not allowed, so appendfsync could not be looked at",
            "with the option appendfsync='always' a node votes at once after a restart, which is only "
            "right if it has forgotten nothing",
            "let somebody look who may: CONFIG GET append*",
            server=node.name,
        )
    elif (log, mode) != ("yes", "always"):
        findings.wrong(
            "persistence",
            f"it has appendonly {log} and appendfsync {mode}, and the option says appendfsync='always'",
            "with that option a node votes at once after a restart: one that has forgotten locks "
            "lets a "
            "second holder in",
            "CONFIG SET appendonly yes and appendfsync always, and write both into redis.conf; "
            "or leave "
            "the option out",
            server=node.name,
        )
    else:
        findings.ok(
            "persistence", "it saves each lock at once (appendfsync always)", server=node.name
        )


def _judge_reachable(findings: Findings, nodes: Sequence[Node], settings: Settings) -> None:
    out = [node for node in nodes if node.failure]
    reached = len(nodes) - len(out)
    few = reached < settings.quorum
    for node in out:
        (findings.wrong if few else findings.warning)(
            "reachable",
            node.failure,
            f"{settings.quorum} of {len(nodes)} nodes have to vote for each lock, and {reached} answer"
            + ("" if few else f": {_more(reached - settings.quorum)} may fail"),
            RIGHTS
            if node.is_closed
            else "start it, or find out what is between it and this machine",
            server=node.name,
        )
    if not out:
        findings.ok("reachable", f"all {len(nodes)} nodes answer")


def _more(count: int) -> str:
    return "no other one" if not count else "one more" if count == 1 else f"{count} more"


def _judge_independence(
    findings: Findings, nodes: Sequence[Node], settings: Settings, deadline: float
) -> None:
    """Adds whether each node can only fail, or forget, by itself."""
    before = len(findings)
    known = [node for node in nodes if node.run_id]
    for run_id, count in Counter(node.run_id for node in known).items():
        if count > 1:
            same = [node.name for node in known if node.run_id == run_id]
            findings.wrong(
                "independence",
                f"{' and '.join(same)} are the same server",
                "it would have several votes: a majority could be fewer servers than it has to be, so "
                "two holders could each have one; locks are refused on these nodes",
                "name each server once, by one address",
            )
    for node in known:
        role = node.replication.get("role", "master")
        if role != "master":
            where = f"{node.replication.get('master_host')}:{node.replication.get('master_port')}"
            findings.wrong(
                "independence",
                f"it is a replica of {where}",
                "a node decides for itself; a replica repeats what another server decides, and refuses "
                "our writes",
                "REPLICAOF NO ONE, and take it out of redis.conf",
                server=node.name,
            )
        elif int(node.replication.get("connected_slaves", 0)):
            findings.warning(
                "independence",
                "it has a replica",
                "if the replica takes its place it may have forgotten locks, and a second holder "
                "gets a "
                "majority",
                "nodes of Redlock have no replicas: remove it, and let no sentinel watch the node",
                server=node.name,
            )
    hosts = Counter(_host(node.address, deadline) for node in nodes)
    host, count = hosts.most_common(1)[0]
    if count > len(nodes) - settings.quorum:
        findings.warning(
            "independence",
            f"{count} of {len(nodes)} nodes are on one machine ({host})",
            "if that machine fails, restarts or is cut off, no majority is left, and no lock can "
            "be taken",
            "run the nodes on as many machines, with power and network of their own",
        )
    if len(findings) == before:
        findings.ok(
            "independence", f"the {len(nodes)} nodes are {len(nodes)} servers on different hosts"
        )


def _host(address: Address, deadline: float) -> str:
    """Returns the machine that the node is on, as far as its address tells."""
    if address.path:
        return "this one"
    try:
        places = resolve(address.host, address.port, deadline, system_clock().now)
    except (OSError, LockError):
        return address.host
    where = str(places[0].where[0]) if places else address.host
    return "this one" if where.startswith("127.") or where == "::1" else where


def _judge_votes(findings: Findings, nodes: Sequence[Node], settings: Settings) -> None:
    """Adds which nodes vote, for how long others have been out, and how they come back."""
    reached = [node for node in nodes if not node.failure and not node.is_closed]
    if len(reached) == len(nodes) and not any(node.marker for node in nodes):
        findings.note(
            "votes",
            "these nodes have not been used yet",
            "the first client starts them: tokens begin at their clocks",
        )
        return
    voters = [node for node in nodes if node.votes(settings.durable)]
    closed = sum(node.is_closed for node in nodes if not node.failure)
    if len(voters) < settings.quorum <= len(voters) + closed:
        return  # nobody knows, and that is wrong already
    for node in reached:
        if node.marker is not None:
            _judge_marker(findings, node, settings)
    lost = len(voters) < settings.quorum
    for node in reached:
        if node not in voters:
            (findings.wrong if lost else findings.warning)(
                "votes",
                _out(node, settings),
                "a node that restarts may have forgotten locks that are held, so it does not "
                "vote until "
                f"all of them are over: max_ttl, {settings.max_ttl:g} s",
                _way_back(lost, settings),
                server=node.name,
            )
    if lost:
        findings.wrong(
            "majority",
            f"{len(voters)} of {len(nodes)} nodes vote, and {settings.quorum} are needed",
            "no lock can be taken or renewed",
            _way_back(True, settings),
        )
    else:
        findings.ok(
            "votes", f"{len(voters)} of {len(nodes)} nodes vote, {settings.quorum} are needed"
        )


def _out(node: Node, settings: Settings) -> str:
    if node.began is None:
        return (
            f"it does not vote since it started, {node.uptime} s ago, and no client has begun to bring "
            "it back"
        )
    rest = settings.max_ttl * DRIFT - node.began
    when = f"it may vote in {rest:.0f} s" if rest > 0 else "its wait is over"
    return f"it has been out for {node.began:.0f} s; {when}"


def _way_back(lost: bool, settings: Settings) -> str:
    if not lost:
        return (
            "nothing, as long as a client is connected: it brings the node back when the wait "
            "is over"
        )
    if settings.stop_when_lost:
        return (
            "majority_lost='stop' leaves it to you: when the nodes' clocks are right, connect once "
            "without that option, and wait max_ttl"
        )
    return (
        "see that the nodes' clocks are right, start those that are down, and leave a client "
        "connected: "
        f"the nodes come back {settings.max_ttl:g} s after the last restart, or twice that if some "
        "cannot be reached; restart nodes one at a time, each when the one before votes again"
    )


def _judge_marker(findings: Findings, node: Node, settings: Settings) -> None:
    assert node.marker is not None
    mine, theirs = members_text(settings.members), node.marker.members
    if mine != theirs:
        findings.wrong(
            "members",
            f"it was set up as one of {theirs.decode(errors='replace')}",
            "clients that name other nodes, or name them otherwise, have other majorities; it "
            "refuses us",
            "name the same nodes by the same addresses in all clients",
            server=node.name,
        )
    if abs(node.marker.max_ttl / 1000 - settings.max_ttl) > 0.01:
        findings.wrong(
            "members",
            f"it was set up with max_ttl={node.marker.max_ttl / 1000:g}, and we have "
            f"{settings.max_ttl:g}",
            "a node that restarts waits for the longest TTL that there may be; it refuses us",
            "give all clients the same max_ttl",
            server=node.name,
        )


def _judge_round_trips(findings: Findings, trip: float, settings: Settings) -> None:
    if trip > settings.node_timeout / 2:
        findings.warning(
            "round-trip",
            f"a round trip took {trip * 1000:.0f} ms, and node_timeout is "
            f"{settings.node_timeout * 1000:.0f} ms",
            "a node that answers later than that is left out, and has to be brought back",
            f"use node_timeout={max(1.0, trip * 4):.1f}",
        )
    else:
        judge_round_trips(findings, trip)
