"""A Redis Cluster: three primaries with a replica each, which takes its place when the primary is gone.

The nodes name themselves to clients and to each other by switchboards: one before the port for clients,
one before the bus by which they watch each other. So each node and each worker can be cut off alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

from ...guarantees import Guarantees
from ...stores.redis.guarantees import REDIS_CLUSTER
from ..faults import Fault
from ..servers.cluster import BUS, CALM, Cluster, ClusterNode, port_with_bus, slot_of
from ..servers.errors import ServerError
from ..servers.proxy import Place, Proxy
from ..servers.rooms import Rooms
from ..servers.sites import LOOPBACK
from ..servers.switchboard import Callers, Switchboard
from .lab import Chance, Injury
from .links import Disturbance
from .nodes import Node, NodeLab, clock_for_node, environment_of
from .redis import DURABLE

NAMES = tuple(f"node {number}" for number in range(1, 7))
LOCK = "x"
"""The lock whose primary is hit: the first one of every run."""
QUICK = 800
"""Milliseconds of silence after which a node counts as failed, while one is killed or cut off."""
FAILOVER_LIMIT = 60.0


class ClusterLab(NodeLab):
    name = "redis+cluster"
    title = "Redis Cluster"
    programs = ("redis-server:redis-server",)
    modules = ("hiredis",)
    extra = "redis"
    related = True
    possible = (*(fault for fault in NodeLab.possible if fault != "amnesia"), "failover")

    def __init__(self, rooms: Rooms | None = None) -> None:
        super().__init__(rooms)
        self._callers = Callers()
        self._doors: dict[str, Switchboard] = {}
        """The proxies before the ports for clients, by the name of the node; none in rooms."""
        self._buses: dict[str, Switchboard] = {}
        """The proxies before the ports for the other nodes."""
        self._nodes: list[Node] = []
        try:
            self._cluster = Cluster(replicas=3, make=self._make)
        except BaseException:
            self.close_links()
            self.stop_clocks()
            raise

    def _make(self, number: int) -> ClusterNode:
        """Starts the node of this number, counted from 0."""
        name = NAMES[number]
        clock = clock_for_node()
        port = port_with_bus()
        ports = (0, 0)
        if self.rooms is None:
            self._doors[name] = Switchboard(port, self._callers)
            self._buses[name] = Switchboard(port + BUS, self._callers)
            ports = (self._doors[name].port, self._buses[name].port)
        server = ClusterNode(
            *DURABLE,
            port=port,
            known_at=ports,
            environment=environment_of(clock),
            started=partial(self._callers.name_process, lane=name),
            site=self.site(name),
        )
        self._nodes.append(
            Node(
                name,
                pid=lambda: server.pid,
                start=server.start,
                kill=server.kill,
                wipe=server.wipe,
                clock=clock,
            )
        )
        return server

    @property
    def guarantees(self) -> Guarantees:
        return REDIS_CLUSTER

    @property
    def servers(self) -> list[Node]:
        return self._nodes

    def places(self) -> dict[str, Place]:
        servers = zip(NAMES, self._cluster.nodes, strict=True)
        return {name: server.address for name, server in servers}

    def links_of(self, worker: str) -> dict[str, Proxy]:
        return {name: door.line(worker) for name, door in self._doors.items()}

    def url_of(self, addresses: Sequence[str]) -> str:
        return "redis+cluster://" + ",".join(addresses)

    def url_for(self, worker: str) -> str:
        return self.direct_url if self.rooms is None else super().url_for(worker)

    @property
    def direct_url(self) -> str:
        """By way of the switchboards, too, since the cluster tells clients of no other addresses."""
        ports = [door.port for door in self._doors.values()]
        ports = ports or [server.port for server in self._cluster.nodes]
        return self.url_of([f"{LOOPBACK}:{port}" for port in ports])

    @property
    def primary(self) -> ClusterNode:
        """The node that has the lock, once all agree on that."""
        return self._cluster.owner(slot_of(LOCK))

    def name_of(self, server: ClusterNode) -> str:
        return NAMES[self._cluster.nodes.index(server)]

    def choose(self, chance: Chance) -> Node:
        return self._nodes[self._cluster.nodes.index(self.primary)]

    def some_nodes(self, chance: Chance) -> list[str]:
        return [self.name_of(self.primary)]

    def _store_crash(self, fault: Fault, chance: Chance) -> Injury:
        old = self.primary
        text = f"{self.name_of(old)} was killed; its replica takes its place"
        return self._replace(fault, old, text)

    def _failover(self, fault: Fault, chance: Chance) -> Injury:
        old = self.primary
        replica = self._cluster.replica_of(old)
        name = self.name_of(replica)
        line = self._doors[self.name_of(old)].line(name)
        line.refuse = True
        line.hang_up()
        self._cluster.await_(lambda: b"link_status:down" in replica("INFO", "replication"))
        # All that the replica knows of has ended by then; it misses the renewals, and who came later.
        time.sleep(chance.ttl)
        text = (
            f"{name} was cut off from {self.name_of(old)}, which was then killed; it takes its place, "
            "and knows of no holder"
        )
        return self._replace(fault, old, text, [line])

    def _replace(
        self, fault: Fault, old: ClusterNode, text: str, refusing: Sequence[Proxy] = ()
    ) -> Injury:
        """Kills a primary; mended once the replica has its place, and it follows as the replica."""
        self._cluster.hurry(QUICK)
        old.kill()

        def mend() -> None:
            self._followed(old)
            for line in refusing:
                line.refuse = False
            old.start()
            self._calm()

        return Injury(fault.name, [self.name_of(old)], text, mend)

    def _partition(self, fault: Fault, chance: Chance) -> Injury:
        """Cuts a worker off; or a primary, from the other nodes but not from workers."""
        if chance.random.random() < 0.5:
            return super()._partition(fault, chance)
        old = self.primary
        name = self.name_of(old)
        lines = [self._buses[name].line(other) for other in NAMES if other != name]
        lines += [self._doors[name].line(other) for other in NAMES if other != name]
        lines += [bus.line(name) for other, bus in self._buses.items() if other != name]
        self._cluster.hurry(QUICK)
        for line in lines:
            line.hold()

        def release() -> None:
            for line in lines:
                line.hang_up()
                line.release()

        text = f"{name} is cut off from the other nodes; workers still reach it"
        return Injury(fault.name, [name], text, partial(self._rejoin, old, release))

    def disturb(
        self, fault: Fault, one: str, others: Sequence[str], disturbance: Disturbance
    ) -> Injury:
        """Disturbs packets; the replica takes the place of a primary of which no packet passes."""
        injury = super().disturb(fault, one, others, disturbance)
        if fault.name != "cut" or one not in NAMES:
            return injury
        old = self._cluster.nodes[NAMES.index(one)]
        self._cluster.hurry(QUICK)
        mend = partial(self._rejoin, old, injury.heal)
        return Injury(fault.name, [one], injury.text, mend, count=injury.count)

    def _rejoin(self, old: ClusterNode, release: Callable[[], None]) -> None:
        """Waits until a primary that was cut off is replaced, and has it come back as a replica."""
        try:
            self._followed(old)
        finally:
            release()
            self._calm()

    def _followed(self, old: ClusterNode) -> None:
        """Waits until all other nodes agree that another one has the lock."""
        others = [server for server in self._cluster.nodes if server is not old]
        limit = time.monotonic() + FAILOVER_LIMIT
        while True:
            with suppress(OSError, ServerError):
                owners = {server.owner_of(slot_of(LOCK)) for server in others}
                if len(owners) == 1 and old.known_port not in owners:
                    return
            if time.monotonic() > limit:
                raise ServerError("the replica has not taken the primary's place in time")
            time.sleep(0.02)

    def _calm(self) -> None:
        self.wait_ready()
        self._cluster.hurry(CALM)

    def wait_ready(self) -> None:
        self._cluster.wait_ready()

    def close_links(self) -> None:
        super().close_links()
        for switchboard in (*self._doors.values(), *self._buses.values()):
            switchboard.close()

    def stop(self) -> None:
        self.close_links()
        self._cluster.stop()
        self.stop_clocks()
