"""Redlock on three or five simulated nodes, which crash and come back with or without their data."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from ...stores.redlock.commands import members_text
from ...stores.redlock.lua import NAMES, text_of
from ...stores.redlock.membership import US, read_marker
from .. import faults
from ..calm import HEARTBEATS, Calm
from ..chances import Chances
from ..process import Process
from ..redis.plan import Described, held_or_awaited, residue
from ..redis.server import RedisNode

if TYPE_CHECKING:
    from ..world import World


MARKER, COUNTERS = b"holdfast:redlock:marker", b"holdfast:redlock:counters"


class RedlockPlan:
    calm = False
    faults: Sequence[str] = faults.KINDS
    all_at_once = False
    memories: Sequence[str] = ("nothing", "snapshot", "all")
    crashes = 4
    breaks_exclusion = frozenset({"clock"})
    breaks_tokens: frozenset[str] = frozenset()
    recovery = 0.0
    settle = 66.0  # a tombstone lasts a minute, and a request may arrive, or again, 3 s late
    heedless = False
    sizes: Sequence[int] = (3, 3, 5)
    scales: Sequence[float] = (0.2, 1.0)
    fresh = 0.25
    """The share of runs that begin with nodes that were never used; others begin with nodes in use."""
    trouble = 4.0
    unsettled = 6
    clients: Sequence[int] = (2, 3)
    turns = 2
    pace = 1.0
    ttls = (0.4, 2.4)
    url = ""
    options: dict[str, Any]

    def __init__(self) -> None:
        self.options = {"node_timeout": 0.05}

    def start(self, world: World) -> list[Any]:
        world.checker.sharers_unique = False
        world.passes_on = True
        draw = world.loop.random
        scale = draw.choice(self.scales)
        self.ttls = (0.4 * scale, 2.4 * scale)
        self.options["max_ttl"] = 2.5 * scale
        # A node waits max_ttl before it comes back; what was held meanwhile ends with its TTL; a call
        # without an answer ends after 5 s, and is followed by another.
        self.recovery = (2.5 + 2.4) * scale + 10.0
        count = draw.choice(self.sizes)
        names = [f"n{number}" for number in range(1, count + 1)]
        self.url = "redlock://" + ",".join(f"{name}:6379" for name in names)
        nodes = [self.node(Process(world.loop, name)) for name in names]
        for node in nodes:
            world.network.listen(f"{node.process.name}:6379", node)
        if draw.random() >= self.fresh:
            self._used_before(nodes)
        elif draw.random() < 0.5:  # clients do not get through with the first start at once
            world.network.chances = Chances(slow=0.1, slowest=0.1, lost=0.03, overtaken=0.06)
        return nodes

    def node(self, process: Process) -> RedisNode:
        return RedisNode(process, self.scripts())

    def _used_before(self, nodes: Sequence[RedisNode]) -> None:
        """Sets the nodes up as a first start leaves them. Faults begin after it in any case."""
        members = members_text([f"{node.process.name}:6379" for node in nodes])
        base = b"%d" % (nodes[0].process.clock.wall() * 1_000_000)
        longest = b"%d" % round(self.options["max_ttl"] * 1000)
        for node in nodes:
            parts = (node.run_id + b".used", b"1", base, longest, members, b"ed", b"")
            node.ask(b"SET", MARKER, US.join(parts))
            for name in NAMES:
                node.load(text_of(name))

    def unsettle(self, world: World) -> None:
        """Raises the counters of one node alone, as a failed round does: they get out of step."""
        self.advance(world, world.loop.random.choice(world.servers))

    def advance(self, world: World, server: Any) -> None:
        for counter in server.ask(b"LRANGE", COUNTERS, b"0", b"-1"):
            server.ask(b"INCRBY", counter, b"%d" % world.loop.random.randrange(1, 4))

    def may_crash(self, servers: Sequence[RedisNode], server: RedisNode) -> bool:
        """Returns whether a majority of the others votes: without one, no node could come back."""
        voting = 0
        for other in servers:
            text = other.ask(b"GET", MARKER)
            if other is not server and other.up and text is not None:
                voting += read_marker(text).incarnation.startswith(other.run_id)
        return voting > len(servers) // 2

    def scripts(self) -> dict[bytes, bytes]:
        return {}

    def altered(self) -> AbstractContextManager[object]:
        return nullcontext()

    def residue(self, servers: Sequence[RedisNode]) -> list[str]:
        return residue(servers)

    def describe(self, data: bytes) -> object:
        return Described(data)


class Hammer(RedlockPlan):
    """Many short leases, which end on the nodes long before their holders know."""

    faults: Sequence[str] = (faults.NETWORK, faults.PAUSE, faults.RACE)
    all_at_once = True
    sizes = (3,)
    scales = (0.2,)
    trouble = 0.5
    unsettled = 40
    clients = (3,)
    turns = 8
    pace = 0.01


class LostMajority(RedlockPlan):
    """Nodes that crash whatever the others do, so that mostly no majority is left that remembers.

    No clock is stepped: those that come back by the clock rely on it. If all forget at once, they wait.
    """

    faults: Sequence[str] = tuple(
        kind for kind in faults.KINDS if kind not in (faults.STEP, faults.RACE)
    )
    crashes = 8
    fresh = 0.0

    def __init__(self) -> None:
        super().__init__()
        self.options["fresh"] = "wait"

    def may_crash(self, servers: Sequence[RedisNode], server: RedisNode) -> bool:
        return True


class CalmRedlock(Calm, RedlockPlan):
    fresh = 0.0
    scales = (12.0,)  # TTLs of 5 to 29 s
    at_once = 2.5  # the first waiter may fail with others, and heed its heartbeat next

    def __init__(self) -> None:
        self.options = {"node_timeout": 0.5}  # all nodes answer in time

    def start(self, world: World) -> list[Any]:
        self.options["heartbeat"] = world.loop.random.choice(HEARTBEATS)
        return super().start(world)

    def residue(self, servers: Sequence[RedisNode]) -> list[str]:
        return held_or_awaited(servers)
