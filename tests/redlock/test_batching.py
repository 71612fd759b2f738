"""Requests of many tasks that go to a node in one command: each is as if it had gone alone."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from holdfast import aio
from holdfast.chaos.servers.redlock import RedlockNodes
from worlds.aio import eventually

TTL = 30.0
MANY = 64


@pytest.fixture(scope="module")
def servers() -> Iterator[RedlockNodes]:
    nodes = RedlockNodes(3)
    try:
        yield nodes
    finally:
        nodes.stop()


@pytest.fixture
def nodes(servers: RedlockNodes) -> RedlockNodes:
    servers.flush()
    return servers


def connect(nodes: RedlockNodes) -> aio.Locks:
    return aio.connect(nodes.url, max_ttl=60.0, node_timeout=10.0)


def scripts_run(node: Any) -> int:
    for line in bytes(node("INFO", "commandstats")).splitlines():
        if line.startswith(b"cmdstat_evalsha:calls="):
            return int(line.partition(b"=")[2].partition(b",")[0])
    return 0


def held(nodes: RedlockNodes) -> list[int]:
    return [len(node("KEYS", "holdfast:{many:*}")) for node in nodes.nodes]


async def test_many_at_once_take_few_commands(nodes: RedlockNodes) -> None:
    async with connect(nodes) as locks:
        locks_of = [locks.lock(f"many:{number}", ttl=TTL) for number in range(MANY)]
        before: list[int] = []
        for _ in range(2):  # again: the first of them opens the connection
            before = [scripts_run(node) for node in nodes.nodes]
            leases = await asyncio.gather(*(lock.acquire() for lock in locks_of))
            assert all(lease.held for lease in leases)
            assert await asyncio.gather(*(lease.release() for lease in leases)) == [True] * MANY
        for node, was in zip(nodes.nodes, before, strict=True):
            assert scripts_run(node) - was < MANY  # and not twice as many
        await eventually(lambda: held(nodes) == [0, 0, 0])


async def test_of_several_who_want_the_same_one_has_it(nodes: RedlockNodes) -> None:
    async with connect(nodes) as locks:
        holders: list[int] = []
        tokens: list[int] = []

        async def one(number: int) -> None:
            async with locks.lock("many:same", ttl=TTL, timeout=60.0) as lease:
                holders.append(number)
                tokens.append(lease.token)
                assert holders == [number]
                await asyncio.sleep(0)
                holders.remove(number)

        await asyncio.gather(*(one(number) for number in range(12)))
        assert tokens == sorted(set(tokens))
        assert len(tokens) == 12


async def test_who_is_cancelled_leaves_nothing_and_the_others_are_served(
    nodes: RedlockNodes,
) -> None:
    async with connect(nodes) as locks:
        await (await locks.lock("many:first", ttl=TTL).acquire()).release()
        for turns in range(4):
            tasks = [
                asyncio.ensure_future(locks.lock(f"many:{number}", ttl=TTL).acquire())
                for number in range(MANY)
            ]
            for _ in range(turns):
                await asyncio.sleep(0)
            for task in tasks[::2]:
                task.cancel()
            done = await asyncio.gather(*tasks, return_exceptions=True)
            leases = [one for one in done if isinstance(one, aio.Lease)]
            assert len(leases) >= MANY // 2
            assert all(isinstance(one, aio.Lease | asyncio.CancelledError) for one in done)
            assert all(isinstance(one, aio.Lease) for one in done[1::2])
            assert await asyncio.gather(*(one.release() for one in leases)) == [True] * len(leases)
            await eventually(lambda: held(nodes) == [0, 0, 0])


async def test_a_node_that_stands_still_gets_all_of_it_later(nodes: RedlockNodes) -> None:
    async with connect(nodes) as locks:
        await (await locks.lock("many:first", ttl=TTL).acquire()).release()
        nodes.nodes[2].pause()
        try:
            wanted = [locks.lock(f"many:{number}", ttl=TTL).acquire() for number in range(MANY)]
            leases = await asyncio.gather(*wanted)
            assert await asyncio.gather(*(one.release() for one in leases)) == [True] * MANY
        finally:
            nodes.nodes[2].resume()
        await eventually(lambda: held(nodes) == [0, 0, 0])


async def test_a_node_that_forgot_refuses_all_of_them(nodes: RedlockNodes) -> None:
    async with connect(nodes) as locks:
        await (await locks.lock("many:first", ttl=TTL).acquire()).release()
        nodes.nodes[0]("DEL", "holdfast:redlock:marker")
        wanted = [locks.lock(f"many:{number}", ttl=TTL).acquire() for number in range(MANY)]
        leases = await asyncio.gather(*wanted)
        assert all(one.held for one in leases)
        await eventually(lambda: held(nodes) == [0, MANY, MANY])
        assert await asyncio.gather(*(one.release() for one in leases)) == [True] * MANY
