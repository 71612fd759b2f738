"""The doctor of etcd: members, majority, versions, users, alarms, and a lock on it."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from email.utils import parsedate_to_datetime
from http.client import HTTPConnection, HTTPException
from typing import Any, NamedTuple

from ...clock import system_clock
from ...errors import BackendUnavailable, LockError
from ...findings import Findings
from ..measures import (
    SAMPLES,
    connected,
    judge_clocks,
    judge_round_trips,
    read_clock,
    slow_trip,
    trial_namespace,
    try_out,
)
from ..tls import TLS_OPTIONS, context_of
from ..urls import Target, merge_options
from ._sync.backend import OPTIONS, prepare
from .address import Address, address_of, host_and_port
from .wire import messages
from .wire.codec import as_bytes, as_number, fields
from .wire.failures import Failure
from .wire.http2.headers import require_hpack
from .wire.threads import Wire

STATUS = "/etcdserverpb.Maintenance/Status"
MEMBER_LIST = "/etcdserverpb.Cluster/MemberList"
ALARM = "/etcdserverpb.Maintenance/Alarm"
EACH_LIMIT = 2.0
"""Seconds that one member has to answer a question."""
MENDED = {(3, 4): 31, (3, 5): 13}
"""By minor version: the patch with which etcd#15247 was mended. Later ones never had it."""
ALARMS = {1: "NOSPACE", 2: "CORRUPT"}
NO_LEADER = "no leader"
PROBE = b"/holdfast/"
WHY_CLOCK = (
    "leases do not depend on what a clock shows; but people are shown wrong times, and logs of several "
    "machines cannot be compared"
)


class Member(NamedTuple):
    """A member, as the cluster lists it."""

    id: int
    name: str
    endpoints: tuple[str, ...]
    learner: bool


class Status(NamedTuple):
    """A member, as it says itself."""

    endpoint: str
    cluster: int
    id: int
    version: str
    leader: int
    learner: bool


def examine(target: Target, namespace: str, options: dict[str, Any], deadline: float) -> Findings:
    """Returns the findings about the cluster that a URL names."""
    settings = merge_options(target, options, OPTIONS)
    address = address_of(target, settings)
    require_hpack()
    findings = Findings()
    wires = {
        endpoint: Wire(address._replace(endpoints=(endpoint,))) for endpoint in address.endpoints
    }
    try:
        leading = _examine(findings, address, wires, deadline)
    finally:
        for wire in wires.values():
            wire.close()
    if not leading:
        return findings  # whatever else was asked would be refused
    _judge_clocks(findings, leading, settings, deadline)
    _, make = prepare(target, trial_namespace(namespace), options)
    try:
        try_out(make(), deadline)
    except LockError as error:
        findings.wrong(
            "steps",
            f"a lock cannot be taken: {error}",
            "every step of a lock is a transaction on the cluster",
            "see the findings above; a user needs: etcdctl role grant-permission ROLE --prefix=true "
            "readwrite /holdfast/",
        )
    else:
        findings.ok("steps", "this user may work on our keys: a lock was taken and handed over")
    return findings


def _examine(
    findings: Findings, address: Address, wires: dict[str, Wire], deadline: float
) -> list[str]:
    """Adds what the members say; returns those that know a leader."""
    reached: list[Status] = []
    failures: dict[str, Failure] = {}
    for endpoint, wire in wires.items():
        try:
            _log_in(wire, address, deadline)
            reached.append(_status(endpoint, wire.call(STATUS, b"", _limit(deadline))))
        except Failure as failure:
            failures[endpoint] = failure
    leaderless = [one for one in failures.values() if NO_LEADER in one.details]
    if not reached and not leaderless:
        raise next(iter(failures.values())).in_words(str(address))
    for endpoint in [one.endpoint for one in leaderless]:
        _judge_leader(findings, endpoint)
        del failures[endpoint]
    _judge_reachable(findings, failures)
    if not reached:
        return []
    wire = wires[reached[0].endpoint]
    _judge_versions(findings, reached)
    members = _members(wire, deadline)
    _judge_members(findings, members, reached, len(wires))
    _judge_alarms(findings, wire, members, deadline)
    _judge_users(findings, wire, address, deadline)
    _judge_reads(findings, wire, deadline)
    return [status.endpoint for status in reached]


def _limit(deadline: float) -> float:
    return max(0.001, min(EACH_LIMIT, deadline - system_clock().now()))


def _log_in(wire: Wire, address: Address, deadline: float) -> None:
    if address.user:
        request = messages.authenticate(address.user, address.password)
        reply = wire.call(messages.AUTHENTICATE, request, _limit(deadline))
        wire.log_in(messages.parse_token(reply))


def _status(endpoint: str, message: bytes) -> Status:
    cluster = own = leader = learner = 0
    version = ""
    for field, value in fields(message):
        if field == 1:
            header = dict(fields(as_bytes(value)))
            cluster, own = as_number(header.get(1, 0)), as_number(header.get(2, 0))
        elif field == 2:
            version = as_bytes(value).decode()
        elif field == 4:
            leader = as_number(value)
        elif field == 10:
            learner = as_number(value)
    return Status(endpoint, cluster, own, version, leader, bool(learner))


def _members(wire: Wire, deadline: float) -> list[Member]:
    """Returns all members; none if we may not ask."""
    try:
        reply = wire.call(MEMBER_LIST, b"", _limit(deadline))
    except Failure:
        return []
    members = []
    for field, value in fields(reply):
        if field != 2:
            continue
        own, name, urls, learner = 0, "", [], False
        for inner, content in fields(as_bytes(value)):
            if inner == 1:
                own = as_number(content)
            elif inner == 2:
                name = as_bytes(content).decode(errors="replace")
            elif inner == 4:
                urls.append(as_bytes(content).decode().rpartition("//")[2])
            elif inner == 5:
                learner = bool(as_number(content))
        members.append(Member(own, name, tuple(urls), learner))
    return members


def _judge_versions(findings: Findings, reached: Sequence[Status]) -> None:
    for version in sorted({status.version for status in reached}):
        numbers = re.match(r"(\d+)\.(\d+)\.(\d+)", version)
        old = False
        if numbers is not None:
            major, minor, patch = map(int, numbers.groups())
            old = (major, minor) < (3, 4) or patch < MENDED.get((major, minor), 0)
        if old:
            findings.warning(
                "version",
                f"it is etcd {version}, which has the fault etcd#15247",
                "a leader that stood still for longer than a TTL (a slow disk) may end leases that are "
                "alive, and let a second holder in; the first is told at once, but not before; a fence "
                "makes up for it",
                "update to 3.4.31, 3.5.13 or newer; use a fence",
            )
        else:
            findings.ok("version", f"it is etcd {version}")


def _judge_leader(findings: Findings, endpoint: str) -> None:
    findings.wrong(
        "quorum",
        "this member knows no leader",
        "without a leader, which a majority elects, no lock can be taken or renewed",
        "start the members that are down: etcdctl endpoint status",
        server=endpoint,
    )


def _judge_reachable(findings: Findings, failures: dict[str, Failure]) -> None:
    for endpoint, failure in failures.items():
        findings.warning(
            "reachable",
            f"this member cannot be used: {failure.details or failure.code.lower()}",
            "one more that fails may be one too many; and clients that try it first lose time",
            "start it, or find out what is between it and this machine",
            server=endpoint,
        )


def _judge_members(
    findings: Findings, members: Sequence[Member], reached: Sequence[Status], named: int
) -> None:
    if len({status.cluster for status in reached}) > 1:
        findings.wrong(
            "members",
            "the URL names members of different clusters",
            "each cluster has locks of its own: two holders, one in each, exclude nobody",
            "name the members of one cluster: etcdctl member list",
        )
    for status in reached:
        if not status.leader:
            _judge_leader(findings, status.endpoint)
        if status.learner:
            findings.warning(
                "members",
                "this member is a learner",
                "it has no vote, and refuses most requests",
                "leave it out of the URL, or etcdctl member promote it",
                server=status.endpoint,
            )
    voters = [member for member in members if not member.learner]
    _judge_size(findings, len(voters))
    if named < len(voters):
        findings.note(
            "members",
            f"the URL names {named} of {len(voters)} members",
            "while those are down, locks cannot be reached, although the cluster may be well",
            "name all of them: etcdctl member list",
        )


def _judge_size(findings: Findings, voters: int) -> None:
    if not voters:
        return
    spare = (voters - 1) // 2
    if voters == 1:
        findings.note(
            "members",
            "the cluster has one member",
            "no lock can be taken while it is down; if its disk is lost, tokens begin anew",
            "run three members on three machines",
        )
    elif voters % 2 == 0:
        findings.note(
            "members",
            f"the cluster has {voters} members",
            f"an even number survives no more failures than {voters - 1} members would: {spare}",
            "add one, or remove one",
        )
    else:
        findings.ok("members", f"the cluster has {voters} members, of which {spare} may fail")


def _judge_alarms(
    findings: Findings, wire: Wire, members: Sequence[Member], deadline: float
) -> None:
    try:
        reply = wire.call(ALARM, b"", _limit(deadline))
    except Failure:
        return  # we may not ask
    names = {member.id: member.name for member in members}
    for field, value in fields(reply):
        if field != 2:
            continue
        alarm = dict(fields(as_bytes(value)))
        kind = ALARMS.get(as_number(alarm.get(2, 0)), "another")
        who = names.get(as_number(alarm.get(1, 0)), "a member")
        findings.wrong(
            "alarm",
            f"{who} has raised the alarm {kind}",
            "the cluster refuses writes until the alarm is disarmed, so no lock can be taken",
            "etcdctl compact and defrag, then etcdctl alarm disarm"
            if kind == "NOSPACE"
            else "replace the member whose data is corrupt, then etcdctl alarm disarm",
        )


def _judge_users(findings: Findings, wire: Wire, address: Address, deadline: float) -> None:
    """Adds whether anybody may do anything. A cluster with users has refused us if we are none."""
    wire.log_in("")
    try:
        wire.call(messages.RANGE, messages.range_of(PROBE, stale=True), _limit(deadline))
    except Failure as failure:
        if failure.wants_login or failure.code in ("INVALID_ARGUMENT", "PERMISSION_DENIED"):
            findings.ok("users", "the cluster asks for a user and a password")
    else:
        if address.tls is None:
            findings.note(
                "users",
                "anybody who reaches the cluster may do anything with it",
                "a stranger, or a mistake, can take or delete locks that are held",
                "etcdctl auth enable, with a role for /holdfast/; or TLS with client certificates",
            )
    finally:
        if address.user:
            _log_in(wire, address, deadline)


def _judge_reads(findings: Findings, wire: Wire, deadline: float) -> None:
    """Adds whether a majority answers, how quickly, and what TTLs there are."""
    trips = []
    try:
        for _ in range(SAMPLES):
            began = time.monotonic()
            wire.call(messages.RANGE, messages.range_of(PROBE), _limit(deadline))
            trips.append(time.monotonic() - began)
        shortest = _shortest_lease(wire, deadline)
    except Failure as failure:
        if failure.code == "PERMISSION_DENIED" or failure.wants_login:
            return  # the trial of a lock says so
        findings.wrong(
            "quorum",
            f"the cluster does not answer by a majority: {failure.details or 'not in time'}",
            "each lock is decided by a majority, so none can be taken or renewed",
            "start the members that are down: etcdctl endpoint status",
        )
    else:
        findings.ok("quorum", "a majority answers")
        judge_round_trips(findings, slow_trip(trips), shortest)


def _shortest_lease(wire: Wire, deadline: float) -> float:
    """Returns the shortest TTL that the cluster gives, by asking for one and giving it back."""
    reply = wire.call(messages.LEASE_GRANT, messages.lease_grant(0, 1), _limit(deadline))
    lease, ttl = messages.parse_lease(reply)
    wire.call(messages.LEASE_REVOKE, messages.lease_id(lease), _limit(deadline))
    return float(ttl)


def _judge_clocks(
    findings: Findings, endpoints: Sequence[str], settings: dict[str, Any], deadline: float
) -> None:
    """Adds what the clocks of the members show, as far as their replies over HTTP/1 tell."""
    readings = []
    for endpoint in endpoints:
        try:
            readings.append(read_clock(endpoint, _date_of(endpoint, settings, deadline), 0.5))
        except (OSError, HTTPException, BackendUnavailable, TypeError, ValueError):
            continue  # it serves HTTP/1 elsewhere, or not at all
    judge_clocks(findings, readings, WHY_CLOCK)


def _date_of(endpoint: str, settings: dict[str, Any], deadline: float) -> Callable[[], float]:
    host, port = host_and_port(endpoint)
    context = context_of(
        {name: settings[name] for name in TLS_OPTIONS}
    )  # without the choice of HTTP/2

    def ask() -> float:
        connection = HTTPConnection(host, port)
        sock = connected(host, port, system_clock().now() + _limit(deadline))
        try:
            # Put into its place by hand, since it would resolve names without any limit.
            connection.sock = (
                sock if context is None else context.wrap_socket(sock, server_hostname=host)
            )
            connection.request("GET", "/version")
            shown = connection.getresponse().getheader("Date")
        finally:
            connection.close()
            sock.close()
        return parsedate_to_datetime(shown or "").timestamp() + 0.5  # whole seconds are shown

    return ask
