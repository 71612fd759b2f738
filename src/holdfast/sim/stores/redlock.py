"""Redlock on three or five simulated nodes, which crash and come back with or without their data."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from ...redlock.standing import read_marker
from .. import faults
from ..loop import Process
from ..redis_server import RedisNode
from .redis import Described, leftovers

if TYPE_CHECKING:
    from ..world import World

MAX_TTL = 2.5


class RedlockPlan:
    faults: Sequence[str] = faults.KINDS
    memories: Sequence[str] = ("nothing", "snapshot", "all")
    crashes = 4
    breaks_exclusion = frozenset({"clock"})
    breaks_tokens: frozenset[str] = frozenset()
    recovery = 30.0
    settle = 110.0
    heedless = False
    url = ""
    options: dict[str, Any]

    def __init__(self) -> None:
        self.options = {"max_ttl": MAX_TTL, "node_timeout": 0.05}

    def start(self, world: World) -> list[Any]:
        count = 3 if world.loop.random.random() < 0.7 else 5
        names = [f"n{number}" for number in range(1, count + 1)]
        self.url = "redlock://" + ",".join(f"{name}:6379" for name in names)
        nodes = [RedisNode(Process(world.loop, name), self.scripts()) for name in names]
        for node in nodes:
            world.network.listen(f"{node.process.name}:6379", node)
        return nodes

    def may_crash(self, servers: Sequence[RedisNode], server: RedisNode) -> bool:
        """As long as a majority of others votes: without one nobody could come back. It is declared."""
        voting = 0
        for other in servers:
            text = other.data.values.get(b"holdfast:redlock:marker")
            if other is not server and other.up and text is not None:
                voting += read_marker(text).incarnation.startswith(other.run_id)
        return voting > len(servers) // 2

    def scripts(self) -> dict[bytes, bytes]:
        return {}

    def altered(self) -> AbstractContextManager[object]:
        return nullcontext()

    def leftovers(self, servers: Sequence[RedisNode]) -> list[str]:
        return leftovers(servers)

    def describe(self, data: bytes) -> object:
        return Described(data)


def plan() -> RedlockPlan:
    return RedlockPlan()


VARIANTS: dict[str, Any] = {}
