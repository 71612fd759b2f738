"""One Redis server, which writes everything to its disk before it answers."""

from __future__ import annotations

from collections.abc import Sequence

from ...guarantees import Guarantees
from ...stores.redis.guarantees import REDIS
from ..servers.proxy import Place
from ..servers.redis import RedisServer
from ..servers.rooms import Rooms
from ..servers.sites import HERE, Site
from .nodes import Node, NodeLab, clock_for_node, environment_of

DURABLE = ("--appendonly", "yes", "--appendfsync", "always")
"""A restart forgets nothing: the loss of data is another fault."""


def redis_node(name: str, *options: str, site: Site = HERE) -> tuple[Node, RedisServer]:
    """Starts a server; returns it, and the node that it is."""
    clock = clock_for_node()
    try:
        server = RedisServer(*options, environment=environment_of(clock), site=site)
    except BaseException:
        if clock is not None:
            clock.remove()
        raise
    node = Node(
        name,
        pid=lambda: server.pid,
        start=server.start,
        kill=server.kill,
        wipe=server.wipe,
        clock=clock,
    )
    return node, server


class RedisLab(NodeLab):
    name = "redis"
    title = "Redis"
    programs = ("redis-server:redis-server",)
    modules = ("hiredis",)
    extra = "redis"

    def __init__(self, rooms: Rooms | None = None) -> None:
        super().__init__(rooms)
        self._node, self._server = redis_node("redis", *DURABLE, site=self.site("redis"))

    @property
    def guarantees(self) -> Guarantees:
        return REDIS

    @property
    def servers(self) -> list[Node]:
        return [self._node]

    def places(self) -> dict[str, Place]:
        return {"redis": self._server.address}

    def url_of(self, addresses: Sequence[str]) -> str:
        return f"redis://{addresses[0]}/0"

    @property
    def direct_url(self) -> str:
        return self._server.url

    def time(self) -> float:
        """Returns the time by the server's clock."""
        return float(self._server("TIME")[0])

    def wait_ready(self) -> None:
        self._server.wait_ready()

    def stop(self) -> None:
        self.close_links()
        self._server.stop()
        self.stop_clocks()
