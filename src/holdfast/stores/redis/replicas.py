"""The replicas of a Redis server, for its doctor: how many follow, and what their clocks show."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...errors import BackendUnavailable, ConfigError
from ...findings import Findings
from ..measures import TOLERATED, Reading
from .address import Address
from .cluster import Endpoint
from .questions import LOSES_LOCKS, Server, asked

MEASURABLE = 0.01
"""Seconds by which a clock has to be behind to be worth a word."""
WHY_REPLICA_CLOCK = (
    "tokens start at the clock of the primary: after a failover to a replica whose clock is "
    "behind, and "
    "which had not received the latest grants, a token may be lower than one before"
)


def judge_replicas(
    findings: Findings, server: Server, settings: dict[str, Any], failover: bool, shown: str = ""
) -> list[Endpoint]:
    """Adds what replicas there are; returns them."""
    info = server.info(b"replication")
    if not info:
        return []
    if info.get("role") != "master":
        findings.wrong(
            "replicas",
            "it is a replica",
            "a replica refuses writes, so no lock can be taken here",
            "name the primary, or its sentinels: redis+sentinel://HOST:26379/NAME",
            server=shown,
        )
        return []
    replicas = []
    for number in range(int(info.get("connected_slaves", 0))):
        pairs = info.get(f"slave{number}", "").split(",")
        parts = dict(pair.split("=", 1) for pair in pairs if "=" in pair)
        if parts.get("state") == "online":
            replicas.append(Endpoint(parts["ip"], int(parts["port"])))
    wanted = int(settings["min_replicas"])
    count = len(replicas)
    words = "no replica" if not count else "1 replica" if count == 1 else f"{count} replicas"
    if wanted > count:
        findings.wrong(
            "replicas",
            f"it has {words}, and the option min_replicas asks for {wanted}",
            "a lock counts as taken only when so many replicas have it, so none can be taken",
            "start the replicas, or ask for fewer",
            server=shown,
        )
    elif wanted:
        findings.ok(
            "replicas", f"it has {words}, and min_replicas={wanted} waits for them", server=shown
        )
    elif count:
        findings.note(
            "replicas",
            f"it has {words}, and no lock waits for {'it' if count == 1 else 'them'}",
            f"a failover forgets the locks that had not arrived there: {LOSES_LOCKS}",
            "use the option min_replicas=1, which costs a round trip more, or a fence",
            server=shown,
        )
    elif failover:
        findings.warning(
            "replicas",
            "it has no replica",
            "if it fails, nothing can take its place, and no lock can be taken",
            "start a replica, and see by INFO replication that it is online",
            server=shown,
        )
    else:
        findings.ok("replicas", "it has no replica, so no failover can forget locks", server=shown)
    return replicas


def judge_replica_clocks(
    findings: Findings,
    address: Address,
    replicas: Sequence[Endpoint],
    primary: Reading,
    deadline: float,
) -> None:
    """Adds by how much the clocks of replicas are behind that of their primary."""
    expects = "cluster" if address.expects == "cluster" else "standalone"
    for replica in replicas:
        place = address._replace(host=replica.host, port=replica.port, path="", expects=expects)
        try:
            with asked(place, deadline) as server:
                reading = server.read_clock()
        except (BackendUnavailable, ConfigError):
            findings.note(
                "replica-clock",
                "this replica cannot be asked from here, so its clock is not known",
                WHY_REPLICA_CLOCK,
                "run this where the replicas can be reached",
                server=str(place),
            )
            continue
        if reading is None:
            continue
        behind, unsure = primary.ahead - reading.ahead, primary.unsure + reading.unsure
        if behind - unsure > MEASURABLE:
            level = findings.warning if behind > TOLERATED else findings.note
            level(
                "replica-clock",
                f"the clock of this replica is {behind:.2f} s behind that of its primary",
                WHY_REPLICA_CLOCK,
                "let NTP set both clocks",
                server=str(place),
            )
        else:
            findings.ok(
                "replica-clock",
                "the clock of this replica is not behind that of its primary, "
                f"as far as can be measured ({unsure * 1000:.1f} ms)",
                server=str(place),
            )
