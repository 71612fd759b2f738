"""One Redis server, which writes everything to its disk before it answers."""

from __future__ import annotations

from collections.abc import Sequence

from ...guarantees import Guarantees
from ...stores.redis.guarantees import REDIS
from ..servers.proxy import Place
from ..servers.redis import RedisServer
from .leftovers import left_on
from .nodes import Node, NodeLab, clock_for_node, environment_of

DURABLE = ("--appendonly", "yes", "--appendfsync", "always")
"""A restart forgets nothing: the loss of data is another fault."""


def redis_node(name: str, *options: str) -> tuple[Node, RedisServer]:
    """Starts a server; returns it, and the node that it is."""
    clock = clock_for_node()
    try:
        server = RedisServer(*options, environment=environment_of(clock), quick=True)
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

    def __init__(self) -> None:
        super().__init__()
        self._node, self._server = redis_node("redis", *DURABLE)

    @property
    def guarantees(self) -> Guarantees:
        return REDIS

    @property
    def servers(self) -> list[Node]:
        return [self._node]

    def places(self) -> dict[str, Place]:
        return {"redis": self._server.port}

    def url_of(self, ports: Sequence[int]) -> str:
        return f"redis://127.0.0.1:{ports[0]}/0"

    @property
    def direct_url(self) -> str:
        return self._server.url

    def time(self) -> float:
        """Returns the time by the server's clock."""
        return float(self._server("TIME")[0])

    def wait_ready(self) -> None:
        self._server.wait_ready()

    def ghosts(self, namespace: str) -> list[str]:
        return left_on(self.direct_url, namespace, self.options)

    def stop(self) -> None:
        self.close_links()
        self._server.stop()
        self.stop_clocks()
