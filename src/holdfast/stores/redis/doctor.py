"""The doctor of a single Redis, of a Redis that sentinels watch, and of a cluster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from ...clock import system_clock
from ...errors import BackendUnavailable, ConfigError, LockError
from ...findings import Findings
from .._sync.contract import Backend
from ..measures import (
    OWNERS,
    TRIAL,
    judge_clocks,
    judge_round_trips,
    trial_namespace,
    try_out,
)
from ..urls import Target, merge_options
from ._sync.backend import COMMON_OPTIONS, prepare_server
from ._sync.cluster import prepare_cluster
from ._sync.sentinel import Sentinels, prepare_sentinel
from .address import Address, address_of
from .client import ClientTarget, target_of_client
from .cluster import CLUSTER_OPTIONS, SLOTS, ClusterNaming, Endpoint, read_slots, seeds_of
from .keys import Naming
from .questions import EACH_LIMIT, asked, judge_memory, judge_persistence, judge_version
from .replicas import judge_replica_clocks, judge_replicas
from .sentinel import SENTINEL_OPTIONS, SentinelAddress, sentinel_address_of
from .wire.protocol import pack, require_hiredis
from .wire.threads import Wire

WHY_CLOCK = (
    "tokens start at the server's clock: if that was ahead, and then the data is lost and the "
    "clock set "
    "right, tokens go back; and people are shown wrong times"
)
GRANT_ALL = (
    "ACL SETUSER NAME ~NAMESPACE:* &NAMESPACE:* +@string +@list +@hash +@sortedset +@keyspace "
    "+@scripting +@pubsub +@connection +time (in a cluster also +cluster|slots)"
)


def examine(target: Target, namespace: str, options: dict[str, Any], deadline: float) -> Findings:
    """Returns the findings about the store that a URL names."""
    if target.scheme == "redis+sentinel":
        settings = merge_options(target, options, {**COMMON_OPTIONS, **SENTINEL_OPTIONS})
        place = ClientTarget(sentinel=sentinel_address_of(target, settings))
    elif target.scheme == "redis+cluster":
        settings = merge_options(target, options, {**COMMON_OPTIONS, **CLUSTER_OPTIONS})
        place = ClientTarget(seeds=seeds_of(target, settings))
    else:
        settings = merge_options(target, options, {**COMMON_OPTIONS, "db": 0})
        place = ClientTarget(address=address_of(target, settings))
    require_hiredis()
    return _examine(place, namespace, settings, deadline)


def examine_client(
    client: Any, namespace: str, options: dict[str, Any], deadline: float, *, asynchronous: bool
) -> Findings:
    """Returns the findings about the store that a client of redis-py is connected to."""
    settings = merge_options(Target("redis", "", {}), options, COMMON_OPTIONS)
    place = target_of_client(client, asynchronous=asynchronous)
    return _examine(place, namespace, settings, deadline)


def _examine(
    place: ClientTarget, namespace: str, settings: dict[str, Any], deadline: float
) -> Findings:
    findings = Findings()
    space = trial_namespace(namespace)
    if place.sentinel is not None:
        primary = _examine_sentinels(findings, place.sentinel, deadline)
        _, make = prepare_sentinel(place.sentinel, space, settings)
        _examine_primary(findings, primary, settings, deadline, sentinels=True)
        _try_scripts(findings, make, [primary], Naming(space, settings["key"]), deadline)
    elif place.seeds is not None:
        primaries = _examine_cluster(findings, place.seeds, settings, deadline)
        _, make = prepare_cluster(place.seeds, space, settings)
        _try_scripts(findings, make, primaries, ClusterNaming(space, settings["key"]), deadline)
    else:
        assert place.address is not None
        _examine_primary(findings, place.address, settings, deadline)
        _, make = prepare_server(place.address, space, settings)
        _try_scripts(findings, make, [place.address], Naming(space, settings["key"]), deadline)
    return findings


def _examine_primary(
    findings: Findings,
    address: Address,
    settings: dict[str, Any],
    deadline: float,
    *,
    sentinels: bool = False,
) -> None:
    with asked(address._replace(expects="standalone"), deadline) as server:
        judge_version(findings, server)
        judge_memory(findings, server)
        judge_persistence(findings, server)
        replicas = judge_replicas(findings, server, settings, sentinels)
        reading = server.read_clock()
        if reading is not None:
            judge_clocks(findings, [reading], WHY_CLOCK, named=False)
            judge_replica_clocks(findings, address, replicas, reading, deadline)
            judge_round_trips(findings, reading.trip)


# Sentinels.


def _examine_sentinels(findings: Findings, address: SentinelAddress, deadline: float) -> Address:
    """Adds what the sentinels say; returns the primary that they name."""
    clock = system_clock()
    sentinels = Sentinels(address, clock)
    try:
        primary = sentinels.find(deadline)
    finally:
        sentinels.close()
    said: dict[tuple[str, ...], int] = {}
    known = quorum = 0
    for sentinel in address.sentinels:
        try:
            with asked(sentinel, deadline) as server:
                reply = server.ask(b"SENTINEL", b"MASTER", address.service.encode())
        except (BackendUnavailable, ConfigError) as error:
            findings.warning(
                "sentinels",
                "this sentinel does not answer",
                "while most sentinels are down, no failover happens, and no primary is found "
                f"({error})",
                "start it, or take it out of the URL",
                server=str(sentinel),
            )
            continue
        if isinstance(reply, Exception):
            continue  # it knows no such primary; `find` has others that do
        fields = _fields(reply)
        where = fields.get("ip", ""), fields.get("port", "")
        said[where] = said.get(where, 0) + 1
        known = max(known, int(fields.get("num-other-sentinels", 0)) + 1)
        quorum = int(fields.get("quorum", 0))
    if len(said) > 1:
        findings.warning(
            "sentinels",
            "the sentinels do not agree where the primary is: "
            + ", ".join(f"{host}:{port}" for host, port in sorted(said)),
            "during a failover that is so for a moment; if it stays, some clients use one primary and "
            "some another, and a lock has two holders",
            "run this again in a few seconds; then look at the sentinels' logs",
        )
    elif known < 3 or quorum <= known // 2:
        findings.warning(
            "sentinels",
            f"{known} sentinels watch the primary, and {quorum} of them may call it down",
            "two parts of a network that is split may each have a primary, unless a majority of "
            "at least "
            "three sentinels has to agree",
            f"run three sentinels or more, and SENTINEL SET {address.service} quorum N with N "
            "above half",
        )
    else:
        findings.ok("sentinels", f"{known} sentinels agree that the primary is {primary}")
    return primary


def _fields(reply: Any) -> dict[str, str]:
    """Returns the fields of a reply, which is a map or a flat list."""
    if isinstance(reply, dict):
        pairs = list(reply.items())
    else:
        pairs = list(zip(reply[::2], reply[1::2], strict=True))
    return {name.decode(): value.decode(errors="replace") for name, value in pairs}


# Clusters.


def _examine_cluster(
    findings: Findings, seeds: Sequence[Address], settings: dict[str, Any], deadline: float
) -> list[Address]:
    """Adds what there is to say of a cluster; returns its primaries, which share the slots."""
    reason: LockError | None = None
    slots: list[Endpoint | None] = []
    for seed in seeds:
        try:
            with asked(seed, deadline) as server:
                reply = server.ask(b"CLUSTER", b"SLOTS")
                state = server.cluster_info()
        except LockError as error:
            reason = error
            continue
        if not isinstance(reply, Exception):
            slots = read_slots(reply, seed)
            _judge_slots(findings, slots, state)
            break
        reason = ConfigError(f"the server at {seed} does not let us ask for CLUSTER SLOTS: {reply}")
    else:
        assert reason is not None
        raise reason
    primaries = [
        seeds[0]._replace(host=endpoint.host, port=endpoint.port)
        for endpoint in dict.fromkeys(filter(None, slots))
    ]
    readings = []
    for address in primaries:
        try:
            with asked(address, deadline) as server:
                judge_version(findings, server, server.name)
                judge_memory(findings, server, server.name)
                judge_persistence(findings, server, server.name)
                replicas = judge_replicas(findings, server, settings, True, server.name)
                reading = server.read_clock()
        except LockError as error:
            findings.wrong(
                "reachable",
                f"this primary cannot be used: {error}",
                "the locks that are in its slots cannot be taken or renewed",
                "start it, or let its replica take over: CLUSTER FAILOVER",
                server=str(address),
            )
            continue
        if reading is not None:
            readings.append(reading)
            judge_replica_clocks(findings, address, replicas, reading, deadline)
    if readings:
        judge_clocks(findings, readings, WHY_CLOCK)
        judge_round_trips(findings, max(one.trip for one in readings))
    return primaries


def _judge_slots(
    findings: Findings, slots: Sequence[Endpoint | None], state: dict[str, str]
) -> None:
    missing = slots.count(None)
    failing = int(state.get("cluster_slots_fail", 0)) + int(state.get("cluster_slots_pfail", 0))
    if missing or failing:
        findings.wrong(
            "slots",
            f"of the {SLOTS:,} slots {missing:,} belong to no server, and {failing:,} to one "
            "that is down",
            "the locks in those slots cannot be taken; unless cluster-require-full-coverage is "
            "no, none can",
            "redis-cli --cluster fix HOST:PORT, or start the servers that are down",
        )
    elif state.get("cluster_state", "ok") != "ok":
        findings.wrong(
            "slots",
            "the cluster says of itself that it is down",
            "no lock can be taken while it is",
            "redis-cli --cluster check HOST:PORT says why",
        )
    else:
        findings.ok("slots", f"all {SLOTS:,} slots are served")


# The scripts.


def _try_scripts(
    findings: Findings,
    make: Callable[[], Backend],
    primaries: Sequence[Address],
    naming: Naming,
    deadline: float,
) -> None:
    """Adds whether this user may do all that a lock needs, by taking one in a namespace of its own."""
    try:
        try:
            try_out(make(), deadline)
        finally:
            with suppress(LockError):
                _remove_trial(primaries, naming)
    except LockError as error:
        why, mend = "every step of a lock is a script on the server", GRANT_ALL
        what = f"a lock cannot be taken: {error}"
        if "NOPERM" in str(error):
            what = "this user may not do all that a lock needs (NOPERM)"
        elif "out of memory" in str(error):
            why = "a server that has no room left grants and renews nothing"
            mend = "CONFIG SET maxmemory to more than is used, or remove what need not be there"
        findings.wrong("scripts", what, why, mend)
    else:
        findings.ok("scripts", "this user may run the scripts: a lock was taken and handed over")


def _remove_trial(primaries: Sequence[Address], naming: Naming) -> None:
    """Removes what the trial has left: its counter of tokens, and what else did not end by itself."""
    keys = naming.of(TRIAL)
    base = keys.queue[:-2]
    names = [keys.lock, keys.queue, keys.counter, *(base + end for end in (b":h", b":e", b":f"))]
    names += [keys.queue + b":" + owner.encode() for owner in OWNERS]
    deadline = system_clock().now() + EACH_LIMIT
    for address in primaries:
        wire = Wire(address, system_clock(), b"")
        try:
            reply = wire.call(pack(b"DEL", *names), deadline)
        finally:
            wire.close()
        if not isinstance(reply, Exception):
            return  # in a cluster, others refuse: the slot is not theirs
