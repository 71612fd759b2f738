"""The server of the resource goes down and comes back: what the fence has seen stays seen."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest
import redis

import holdfast
from holdfast.chaos.servers.mariadb import MariaServer
from holdfast.chaos.servers.postgres import PostgresServer
from holdfast.chaos.servers.redis import RedisServer
from holdfast.fences import ObjectFence, RedisFence, SqlFence
from servers.azure import AzureServer
from servers.s3 import S3Server


def test_redis_that_saves_each_write() -> None:
    server = RedisServer("--appendonly", "yes", "--appendfsync", "always")
    try:
        with redis.Redis(port=server.port) as client:
            RedisFence(client).set("x", "a", 34)
        server.kill()
        server.start()
        with redis.Redis(port=server.port) as client:
            with pytest.raises(holdfast.StaleToken):
                RedisFence(client).set("x", "b", 33)
            assert client.get("x") == b"a"
    finally:
        server.stop()


@pytest.mark.parametrize("make", [PostgresServer, MariaServer])
def test_sql(make: Callable[[], Any]) -> None:
    server = make()
    try:
        connection = server.connect()
        fence, cursor = SqlFence(connection), connection.cursor()
        cursor.execute("CREATE TABLE written (value VARCHAR(50))")
        fence.guard(connection, "x", 34)
        cursor.execute("INSERT INTO written VALUES ('a')")
        connection.commit()
        fence.guard(connection, "x", 35)
        cursor.execute("INSERT INTO written VALUES ('never committed')")
        server.kill()
        connection.close()
        server.start()
        with closing(server.connect()) as connection, closing(connection.cursor()) as cursor:
            cursor.execute("SELECT value FROM written")
            assert [value for (value,) in cursor.fetchall()] == ["a"]
            connection.commit()
            assert SqlFence(connection).highest(connection, "x") == 34
            with pytest.raises(holdfast.StaleToken):
                SqlFence(connection).guard(connection, "x", 33)
    finally:
        server.stop()


def test_s3() -> None:
    server = S3Server()
    try:
        store = server.bucket("restarts")
        ObjectFence(store).put("x", b"a", 34)
        server.kill()
        server.start()
        with pytest.raises(holdfast.StaleToken):
            ObjectFence(store).put("x", b"b", 33)
        assert ObjectFence(store).get("x") == b"a"
    finally:
        server.stop()


def test_azure() -> None:
    server = AzureServer()
    try:
        ObjectFence(server.bucket("restarts")).put("x", b"a", 34)
        server.end()
        server.start()
        fence = ObjectFence(server.store("restarts"))
        with pytest.raises(holdfast.StaleToken):
            fence.put("x", b"b", 33)
        assert fence.get("x") == b"a"
    finally:
        server.stop()
