"""A ZooKeeper ensemble of three servers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...guarantees import Guarantees
from ...stores.zookeeper.guarantees import ZOOKEEPER
from ..servers.proxy import Place
from ..servers.rooms import Rooms
from ..servers.sites import LOOPBACK
from ..servers.zookeeper import TICK, ZooKeeperEnsemble
from ..servers.zookeeper import Node as Server
from .lab import Chance
from .nodes import Node, NodeLab, clock_for_node, environment_of

NAMES = ("server 1", "server 2", "server 3")


class ZooKeeperLab(NodeLab):
    name = "zookeeper"
    title = "ZooKeeper"
    programs = ("java:default-jre-headless", "/usr/share/zookeeper/bin/zkServer.sh:zookeeper")
    modules = ("kazoo",)
    extra = "zookeeper"

    related = True

    def __init__(self, rooms: Rooms | None = None) -> None:
        super().__init__(rooms)
        clocks = [clock_for_node() for _ in NAMES]
        sites = [self.site(name) for name in NAMES]
        try:
            self._ensemble = ZooKeeperEnsemble(
                [(site.host, site.inside) for site in sites],
                environments=[environment_of(clock) for clock in clocks],
                syncs=True,
                door=self._open_door,
            )
        except BaseException:
            for clock in clocks:
                if clock is not None:
                    clock.remove()
            raise
        self._nodes = [
            self._node(server, clock)
            for server, clock in zip(self._ensemble.nodes, clocks, strict=True)
        ]

    def _open_door(self, server: Server) -> Place:
        self.site(NAMES[server.number - 1]).open(server.port)
        return server.port

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
        return {f"server {node.number}": (node.host, node.port) for node in nodes}

    def url_of(self, addresses: Sequence[str]) -> str:
        return "zookeeper://" + ",".join(addresses)

    @property
    def direct_url(self) -> str:
        return self.url_of([f"{LOOPBACK}:{node.port}" for node in self._ensemble.nodes])

    def serves(self, name: str) -> bool:
        """Tells whether the server of this name is in a majority, as it sees it itself."""
        return self._ensemble.nodes[self.nodes.index(name)].serves()

    def wait_ready(self) -> None:
        self._ensemble.ready()

    def stop(self) -> None:
        self.close_links()
        self._ensemble.stop()
        self.stop_clocks()
