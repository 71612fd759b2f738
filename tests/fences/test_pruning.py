"""Pruning: what is younger than it was told stays; policies that prune behind our back are found."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
import redis

import holdfast
from holdfast.fences import FileFence, MemoryFence, RedisFence, SqlFence
from stores import mariadb_server, postgres_server, redis_server


def test_what_is_young_is_kept(tmp_path: Path) -> None:
    memory, file = MemoryFence(), FileFence()
    memory.guard("x", 34)
    file.write(tmp_path / "x", "a", 34)
    assert (memory.prune(3600), file.prune(tmp_path, 3600)) == (0, 0)
    assert (memory.highest("x"), file.highest(tmp_path / "x")) == (34, 34)
    for connection in (
        sqlite3.connect(tmp_path / "app.db"),
        mariadb_server().connect(),
        postgres_server().connect(),
    ):
        fence = SqlFence(connection, table="fences_kept")
        fence.guard(connection, "x", 34)
        assert fence.prune(connection, 3600) == 0
        assert fence.highest(connection, "x") == 34
        connection.rollback()
        connection.close()
    redis_server()("FLUSHALL")
    with redis.Redis(port=redis_server().port) as client:
        keys = RedisFence(client)
        keys.set("x", "a", 34)
        assert keys.prune(3600) == 0
        assert keys.highest("x") == 34


@pytest.mark.parametrize("policy", ["allkeys-lru", "allkeys-lfu", "allkeys-random"])
def test_a_redis_that_may_drop_any_key_is_refused(policy: str) -> None:
    with redis.Redis(port=redis_server().port) as client:
        client.config_set("maxmemory-policy", policy)
        try:
            with pytest.raises(holdfast.GuaranteeError, match=policy):
                RedisFence(client).verify()
        finally:
            client.config_set("maxmemory-policy", "noeviction")
