"""Five independent Redis nodes. All clients name the same addresses: those of a switchboard each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...guarantees import Guarantees
from ...stores.redlock.guarantees import REDLOCK
from ..faults import Fault
from ..servers.proxy import Place, Proxy
from ..servers.redis import RedisServer
from ..servers.rooms import Rooms
from ..servers.sites import LOOPBACK
from ..servers.switchboard import Callers, Switchboard
from .lab import Chance, Injury
from .nodes import Node, NodeLab
from .redis import DURABLE, redis_node

NODES = 5
MAX_TTL = 8.0
"""Seconds. A node that restarted stays out for that long."""


class RedlockLab(NodeLab):
    name = "redlock"
    title = "Redlock"
    programs = ("redis-server:redis-server",)
    modules = ("hiredis",)
    extra = "redis"

    def __init__(self, rooms: Rooms | None = None) -> None:
        super().__init__(rooms)
        self._nodes: list[Node] = []
        self._servers: list[RedisServer] = []
        self._doors: list[Switchboard] = []
        callers = Callers()
        try:
            for number in range(1, NODES + 1):
                name = f"node {number}"
                node, server = redis_node(name, *DURABLE, site=self.site(name))
                self._nodes.append(node)
                self._servers.append(server)
                if rooms is None:
                    self._doors.append(Switchboard(server.port, callers))
        except BaseException:
            self.stop()
            raise

    @property
    def guarantees(self) -> Guarantees:
        return REDLOCK

    @property
    def options(self) -> dict[str, Any]:
        return {"max_ttl": MAX_TTL, "node_timeout": 0.5}

    @property
    def servers(self) -> list[Node]:
        return self._nodes

    def places(self) -> dict[str, Place]:
        servers = zip(self._nodes, self._servers, strict=True)
        return {node.name: server.address for node, server in servers}

    def links_of(self, worker: str) -> dict[str, Proxy]:
        return {
            node.name: door.line(worker)
            for node, door in zip(self._nodes, self._doors, strict=True)
        }

    def url_of(self, addresses: Sequence[str]) -> str:
        return "redlock://" + ",".join(addresses)

    def url_for(self, worker: str) -> str:
        return self.direct_url if self.rooms is None else super().url_for(worker)

    @property
    def direct_url(self) -> str:
        """By way of the switchboards, too, since all clients have to name the same addresses."""
        ways: Sequence[Switchboard | RedisServer] = self._doors or self._servers
        return self.url_of([f"{LOOPBACK}:{way.port}" for way in ways])

    def _partition(self, fault: Fault, chance: Chance) -> Injury:
        """Cuts one worker off from all nodes, or from some; or some nodes off from all workers."""
        kind = chance.random.choice(("all", "some", "nodes"))
        if kind == "all":
            return self.cut_off(fault, chance, chance.victim)
        count = chance.random.randint(1, NODES - 1)
        doors = sorted(chance.random.sample(range(NODES), count))
        names = [self._nodes[number].name for number in doors]
        if kind == "some":
            worker = chance.victim
            lines = [self._doors[number].line(worker.name) for number in doors]
            lanes, text = [worker.name], f"{worker.name} is cut off from {', '.join(names)}"
        else:
            doors = doors[: NODES // 2]
            names = [self._nodes[number].name for number in doors]
            workers = [worker.name for worker in chance.workers]
            lines = [self._doors[number].line(name) for number in doors for name in workers]
            lanes, text = names, f"{', '.join(names)} can be reached by no worker"
        for line in lines:
            line.hold()

        def mend() -> None:
            for line in lines:
                line.release()

        return Injury(fault.name, lanes, text, mend)

    def wait_ready(self) -> None:
        for server in self._servers:
            server.wait_ready()

    def stop(self) -> None:
        self.close_links()
        for door in self._doors:
            door.close()
        for server in self._servers:
            server.stop()
        self.stop_clocks()
