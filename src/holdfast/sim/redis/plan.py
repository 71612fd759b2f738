"""Runs on a single Redis: the queue, hand-over, tokens and tombstones of `redis://`, simulated."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, ClassVar

from .. import faults
from ..calm import HEARTBEATS, Calm, Unclean
from ..process import Process
from .server import RedisNode

if TYPE_CHECKING:
    from ..world import World


_HERE = f"\x1f{os.uname().nodename}\x1f{os.getpid()}\x1f"
"""The only part of a request that differs from run to run."""


class RedisPlan:
    """Two or three clients and one server, with all faults."""

    calm = False
    url = "redis://sim:6379/0"
    options: ClassVar[dict[str, Any]] = {}
    faults: Sequence[str] = faults.KINDS
    all_at_once = False
    memories: Sequence[str] = ("all", "snapshot", "nothing")
    crashes = 2
    breaks_exclusion = frozenset({"clock", "snapshot", "nothing"})
    # With the data lost *and* the clock set back, tokens may go back: docs/redis.md says so.
    breaks_tokens = frozenset({"clock"})
    recovery = (
        15.0  # the longest TTL, 2.4 s; a call without an answer, 5 s, on a dead connection 1 s more
    )
    settle = 66.0  # a tombstone lasts a minute, and a request may arrive, or again, 3 s late
    trouble = 4.0
    unsettled = 0
    clients: Sequence[int] = (2, 3)
    turns = 3
    pace = 1.0
    ttls = (0.4, 2.4)
    heedless = False

    def start(self, world: World) -> list[Any]:
        node = RedisNode(Process(world.loop, "redis"))
        world.network.listen("sim:6379", node)
        world.passes_on = True
        return [node]

    def unsettle(self, world: World) -> None:
        return None

    def may_crash(self, servers: Sequence[RedisNode], server: RedisNode) -> bool:
        return True

    def altered(self) -> AbstractContextManager[object]:
        return nullcontext()

    def residue(self, servers: Sequence[RedisNode]) -> list[str]:
        return residue(servers)

    def describe(self, data: bytes) -> object:
        return Described(data)


def residue(servers: Sequence[RedisNode]) -> list[str]:
    left: list[str] = []
    for server in servers:
        keys = server.all_keys()
        for key in keys:
            # The list of a queue without waiters ends by itself, after an hour; so does the key :b
            # beside it on Redlock; and the changes of an election, after a day.
            if key.endswith(b":b") and key[:-1] + b"q" in keys:
                continue
            if b"{" in key and not key.endswith((b":q", b":c")):
                left.append(f"{key.decode()} on {server.process.name}")
    return left


class Heedless(RedisPlan):
    """A plan without checks: holders do not look if the lock is still held, and there is no fence."""

    faults = (faults.PAUSE,)
    heedless = True


class CalmRedis(Calm, RedisPlan):
    def start(self, world: World) -> list[Any]:
        self.options = {"heartbeat": world.loop.random.choice(HEARTBEATS)}  # type: ignore[misc]
        return super().start(world)

    def residue(self, servers: Sequence[RedisNode]) -> list[str]:
        return held_or_awaited(servers)


class UncleanRedis(Unclean, CalmRedis):
    pass


def held_or_awaited(servers: Sequence[RedisNode]) -> list[str]:
    """Returns the keys of locks that are held or awaited: all but tombstones."""
    left: list[str] = []
    for server in servers:
        for key in server.all_keys():
            value = server.ask(b"GET", key)
            tombstone = b"}:x:" in key or value in (b"x", b"left")
            if b"{" in key and not tombstone and not key.endswith(b":c"):
                left.append(f"{key.decode()} on {server.process.name}: {value}")
    return left


class Described:
    """The words of a request, for the trace; taken apart only if the trace is printed."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def __str__(self) -> str:
        from hiredis import Reader

        reader = Reader(notEnoughData=...)
        reader.feed(self._data)
        shown: list[str] = []
        while (words := reader.gets()) is not ...:
            keep = words[3:] if words[0] == b"EVALSHA" else words[:2]
            text = (
                b" ".join(keep).decode("utf-8", "replace").replace(_HERE, "|").replace("\x1f", "|")
            )
            shown.append(f"{words[0].decode()} {text[:160]}")
        return "; ".join(shown)


def plan(seed: int) -> RedisPlan:
    return RedisPlan()


def calm(seed: int) -> RedisPlan:
    return CalmRedis()


VARIANTS: dict[str, type[RedisPlan]] = {"heedless": Heedless, "unclean": UncleanRedis}
"""Plans in which one rule is broken. Each must be caught, or the checker proves nothing."""
