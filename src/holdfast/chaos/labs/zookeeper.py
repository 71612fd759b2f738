"""A ZooKeeper ensemble of three servers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...guarantees import Guarantees
from ...stores.zookeeper.guarantees import ZOOKEEPER
from ..faults import NAMESPACES, Fault
from ..servers.network import Network
from ..servers.processes import make_folder, remove_folder
from ..servers.proxy import Place
from ..servers.zookeeper import TICK, ZooKeeperEnsemble
from ..servers.zookeeper import Node as Server
from ..tiers import tier
from .lab import Chance, Injury
from .leftovers import left_on
from .nodes import Node, NodeLab, clock_for_node, environment_of

ROOMS = ("r1", "r2", "r3")
CUT: dict[str, float] = {"loss": 1.0}
LOSSY: dict[str, float] = {"loss": 0.3, "reorder": 0.3}
FINE: dict[str, float] = {}
DISTURBANCES = (
    (CUT, CUT, "{} is cut off from the other servers; workers still reach it"),
    (CUT, FINE, "nothing of what {} sends arrives at the other servers"),
    (FINE, CUT, "nothing of what the other servers send arrives at {}"),
    (LOSSY, LOSSY, "of all between {} and the other servers a third is lost, a third overtaken"),
)
"""For each cut: what becomes of a server's packets to the others, of theirs to it, and the text."""


class ZooKeeperLab(NodeLab):
    name = "zookeeper"
    title = "ZooKeeper"
    programs = ("java:default-jre-headless", "/usr/share/zookeeper/bin/zkServer.sh:zookeeper")
    modules = ("kazoo",)
    extra = "zookeeper"

    def __init__(self) -> None:
        super().__init__()
        clocks = [clock_for_node() for _ in range(3)]
        self._network = Network() if tier(NAMESPACES).available else None
        self._doors = make_folder("doors")
        try:
            self._ensemble = ZooKeeperEnsemble(
                self._places(),
                environments=[environment_of(clock) for clock in clocks],
                syncs=True,
                door=self._open_door if self._network is not None else None,
            )
        except BaseException:
            self._leave_network()
            for clock in clocks:
                if clock is not None:
                    clock.remove()
            raise
        self._nodes = [
            self._node(server, clock)
            for server, clock in zip(self._ensemble.nodes, clocks, strict=True)
        ]

    def _places(self) -> list[tuple[str, Sequence[str]]]:
        """Returns the address of each server, and the command to run it inside of."""
        if self._network is None:
            return [("127.0.0.1", ())] * 3
        return [(self._network.room(room), self._network.inside(room)) for room in ROOMS]

    def _open_door(self, server: Server) -> Place:
        assert self._network is not None
        path = self._doors / str(server.number)
        self._network.door(ROOMS[server.number - 1], server.port, path)
        return str(path)

    def _leave_network(self) -> None:
        if self._network is not None:
            self._network.stop()
        remove_folder(self._doors)

    def _node(self, server: Server, clock: Any) -> Node:
        def start() -> None:
            server.start()
            self._ensemble.until(server.serves)

        return Node(
            f"server {server.number}",
            pid=lambda: server.pid,
            start=start,
            kill=server.kill,
            wipe=server.wipe,
            clock=clock,
        )

    @property
    def guarantees(self) -> Guarantees:
        return ZOOKEEPER

    @property
    def options(self) -> dict[str, Any]:
        return {"tick": TICK}

    @property
    def shortest_ttl(self) -> float:
        return 2.0

    @property
    def servers(self) -> list[Node]:
        return self._nodes

    def choose(self, chance: Chance) -> Node:
        """Every other time the leader."""
        if chance.random.random() < 0.5:
            return self._nodes[self._ensemble.nodes.index(self._ensemble.leader())]
        return super().choose(chance)

    def places(self) -> dict[str, Place]:
        nodes = self._ensemble.nodes
        return {f"server {node.number}": node.door or node.port for node in nodes}

    def url_of(self, ports: Sequence[int]) -> str:
        return "zookeeper://" + ",".join(f"127.0.0.1:{port}" for port in ports)

    @property
    def direct_url(self) -> str:
        return self._ensemble.url if self._network is None else self.url_for("conductor")

    def _partition(self, fault: Fault, chance: Chance) -> Injury:
        """Cuts a worker off; or disturbs what a server and the others say to each other."""
        network = self._network
        if network is None or chance.random.random() < 0.5:
            return super()._partition(fault, chance)
        node = self.choose(chance)
        room = ROOMS[self._nodes.index(node)]
        others = [other for other in ROOMS if other != room]
        out, back, text = chance.random.choice(DISTURBANCES)
        for other in others:
            network.disturb(room, other, **out)
            network.disturb(other, room, **back)

        def mend() -> None:
            network.mend()
            self._ensemble.ready()

        return Injury(fault.name, [node.name], text.format(node.name), mend)

    def serves(self, name: str) -> bool:
        """Tells whether the server of this name is in a majority, as it sees it itself."""
        return self._ensemble.nodes[self.nodes.index(name)].serves()

    def wait_ready(self) -> None:
        self._ensemble.ready()

    def ghosts(self, namespace: str) -> list[str]:
        return left_on(self.direct_url, namespace, self.options)

    def stop(self) -> None:
        self.close_links()
        self._ensemble.stop()
        self._leave_network()
        self.stop_clocks()
