"""The server of the resource is killed and started again: what the fence has seen stays seen."""

from __future__ import annotations

import pytest
import redis

import holdfast
from holdfast.fences import RedisFence, SqlFence
from servers.postgres import PostgresServer
from servers.redis import RedisServer


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


def test_postgres() -> None:
    server = PostgresServer()
    try:
        connection = server.connect()
        fence = SqlFence(connection)
        connection.execute("CREATE TABLE written (value TEXT)")
        fence.guard(connection, "x", 34)
        connection.execute("INSERT INTO written VALUES ('a')")
        connection.commit()
        fence.guard(connection, "x", 35)
        connection.execute("INSERT INTO written VALUES ('never committed')")
        server.kill()
        connection.close()
        server.start()
        with server.connect() as connection:
            assert connection.execute("SELECT value FROM written").fetchall() == [("a",)]
            connection.commit()
            assert SqlFence(connection).highest(connection, "x") == 34
            with pytest.raises(holdfast.StaleToken):
                SqlFence(connection).guard(connection, "x", 33)
    finally:
        server.stop()
