"""Redis: scripts of one's own behind the fence, and what the server may do to it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
import redis

import holdfast
from holdfast.fences import RedisFence
from holdfast.fences.redis_keys import mark_of
from stores import redis_nodes, redis_server


@pytest.fixture
def client() -> Iterator[Any]:
    redis_server()("FLUSHALL")
    with redis.Redis(port=redis_server().port) as made:
        yield made


def test_set_takes_what_redis_takes(client: Any) -> None:
    fence = RedisFence(client)
    for value in ("text", b"\x00\xff", 7, 1.5):
        fence.set("x", value, 33)
    assert client.get("x") == b"1.5"
    fence.set("x", "soon gone", 33, ttl=60.0)
    assert 59_000 < client.pttl("x") <= 60_000
    assert client.ttl(mark_of("x")) == -1  # the mark outlives it
    client.delete("x")
    with pytest.raises(holdfast.StaleToken):
        fence.set("x", "late", 32)
    assert client.get("x") is None


def test_delete_is_a_write(client: Any) -> None:
    fence = RedisFence(client)
    fence.set("x", "a", 33)
    with pytest.raises(holdfast.StaleToken):
        fence.delete("x", 32)
    assert fence.delete("x", 34) == 1
    with pytest.raises(holdfast.StaleToken):
        fence.set("x", "late", 33)


def test_a_script_behind_the_fence(client: Any) -> None:
    fence = RedisFence(client)
    add = """
        redis.call('LPUSH', KEYS[1], ARGV[1])
        return redis.call('INCRBY', KEYS[2], ARGV[2])
    """
    assert fence.run(add, "account", 33, ["log", "sum"], ["first", 5]) == 5
    assert fence.run(add, "account", 33, ["log", "sum"], ["second", 2]) == 7
    with pytest.raises(holdfast.StaleToken):
        fence.run(add, "account", 32, ["log", "sum"], ["late", 100])
    assert client.lrange("log", 0, -1) == [b"second", b"first"]
    assert fence.highest("account") == 33
    # Nothing passes that way either: what answers nothing is no refusal.
    assert fence.run("return nil", "account", 33) is None
    assert fence.run("local x = 1", "account", 34) is None
    assert fence.highest("account") == 34


def test_a_script_that_fails_says_so(client: Any) -> None:
    with pytest.raises(redis.ResponseError, match="my own mistake"):
        RedisFence(client).run("return redis.error_reply('ERR my own mistake')", "x", 33)


def test_a_server_that_forgot_the_scripts(client: Any) -> None:
    fence = RedisFence(client)
    fence.set("x", "a", 33)
    client.script_flush()
    fence.set("x", "b", 34)
    with pytest.raises(holdfast.StaleToken):
        fence.set("x", "c", 33)
    assert client.get("x") == b"b"


def test_the_guard_of_a_lease_has_all_verbs(client: Any) -> None:
    fence = RedisFence(client)
    with holdfast.connect(redis_server().url) as locks:
        lock = locks.lock("x", purpose="correctness", protects=fence)
        first = lock.acquire()
        first.guard.set("x", "by the first", ttl=60)
        first.release()
        with lock as lease:
            lease.guard("x")
            with pytest.raises(holdfast.StaleToken) as caught:
                first.guard.set("x", "late")
            assert (caught.value.name, caught.value.owner) == ("x", first.owner)
            lease.guard.run("return redis.call('SET', KEYS[1], 'by the second')", "x", keys=["x"])
            assert client.get("x") == b"by the second"
            with pytest.raises(AttributeError, match="RedisFence has no frob"):
                lease.guard.frob("x")


@pytest.mark.parametrize(
    "key", ["x", "a:b", "{tag}x", "a{tag}b{c}", "{}x", "x{", "}x", "x}y", "{a", "ключ"]
)
def test_the_mark_is_in_the_slot_of_its_key(key: str) -> None:
    from redis.crc import key_slot

    slots = [key_slot(name.encode()) for name in (key, mark_of(key))]
    if key not in ("{}x", "}x", "x}y"):  # no tag can name these; only a cluster would mind
        assert slots[0] == slots[1]


def test_verify(client: Any) -> None:
    fence = RedisFence(client)
    fence.verify()
    assert client.keys("*probe*") == []
    client.config_set("maxmemory-policy", "allkeys-lru")
    try:
        with pytest.raises(holdfast.GuaranteeError, match="allkeys-lru"):
            fence.verify()
    finally:
        client.config_set("maxmemory-policy", "noeviction")


def test_resets_are_kept(client: Any) -> None:
    fence = RedisFence(client)
    fence.set("x", "a", 33)
    fence.reset("x", by="ada")
    (entry,) = client.lrange("holdfast-fence-resets", 0, -1)
    assert b'"by": "ada"' in entry
    assert b'"token": 33' in entry


def test_what_is_no_client_is_refused(client: Any) -> None:
    for other in (object(), client.pipeline()):
        with pytest.raises(holdfast.ConfigError, match="client of redis-py"):
            RedisFence(other)


async def test_a_cluster_in_asyncio() -> None:
    """Marks are forgotten on each of its servers, and each slot remembers what they were."""
    from redis.asyncio.cluster import RedisCluster

    redis_nodes().flush()
    async with RedisCluster("127.0.0.1", redis_nodes().nodes[0].port) as client:
        fence = RedisFence(client)
        await fence.verify()
        keys = [f"x{number}" for number in range(40)]
        for key in keys:
            await fence.set(key, "a", 34)
        assert await fence.prune(3600.0) == 0
        await asyncio.sleep(0.005)  # older than a millisecond
        assert await fence.prune(1e-3) == len(keys)
        for key in keys:
            assert await fence.highest(key) == 0
            with pytest.raises(holdfast.StaleToken):
                await fence.set(key, "late", 33)
        await fence.set(keys[0], "b", 34)
        assert await client.get(keys[0]) == b"b"
        for node in redis_nodes().primaries:
            node("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
        try:
            with pytest.raises(holdfast.GuaranteeError, match="allkeys-lru"):
                await fence.verify()
        finally:
            for node in redis_nodes().primaries:
                node("CONFIG", "SET", "maxmemory-policy", "noeviction")
