"""Compare-and-set on a version: SQL rows, Redis hashes, objects and files, in both worlds."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.versioned import (
    Conflict,
    FileVersioned,
    ObjectVersioned,
    RedisVersioned,
    SqlVersioned,
)
from stores import (
    azure_server,
    gcs_server,
    mariadb_server,
    postgres_server,
    redis_server,
    s3_server,
)

KINDS = ["azure", "file", "gcs", "mariadb", "postgres", "redis", "s3", "sqlite"]
CLOUDS: dict[str, Callable[[], Any]] = {"azure": azure_server, "gcs": gcs_server, "s3": s3_server}


class Stage:
    """Registers on one place, each by a connection of its own."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind = kind
        self.folder = folder
        self.stack = ExitStack()
        self.key: Any = "x"
        self.store: Any = None
        if kind in CLOUDS:
            self.store = CLOUDS[kind]().bucket(f"b{os.urandom(8).hex()}")
        elif kind == "file":
            self.key = folder / "x"
        elif kind == "redis":
            redis_server()("FLUSHALL")
        else:
            connection = self.connect()
            text = "VARCHAR(50)" if kind == "mariadb" else "TEXT"
            cursor = connection.cursor()
            cursor.execute("DROP TABLE IF EXISTS registers")
            cursor.execute(
                f"CREATE TABLE registers (name {text} PRIMARY KEY, value {text}, version BIGINT)"
            )
            connection.commit()

    def connect(self) -> Any:
        made: Any
        if self.kind == "sqlite":
            made = sqlite3.connect(self.folder / "app.db", timeout=30, check_same_thread=False)
        else:
            made = (postgres_server() if self.kind == "postgres" else mariadb_server()).connect()
        self.stack.callback(made.close)
        return made

    def register(self) -> Any:
        if self.kind == "file":
            return FileVersioned()
        if self.kind in CLOUDS:
            return ObjectVersioned(self.store)
        if self.kind == "redis":
            import redis

            return RedisVersioned(self.stack.enter_context(redis.Redis(port=redis_server().port)))
        return SqlVersioned(self.connect(), "registers", key="name")


def text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else value


def add_one(value: Any) -> str:
    return str(int(text(value)) + 1) if value is not None else "1"


@pytest.fixture(params=KINDS)
def stage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stage]:
    made = Stage(request.param, tmp_path)
    with made.stack:
        yield made


def test_a_write_on_a_condition(stage: Stage) -> None:
    register, key = stage.register(), stage.key
    assert register.get(key) == (None, None)
    first = register.put(key, "a", None)
    assert first is not None
    with pytest.raises(Conflict) as caught:
        register.put(key, "b", None)
    assert str(key) in str(caught.value)
    assert isinstance(caught.value, holdfast.LockError)
    value, version = register.get(key)
    assert (text(value), version) == ("a", first)
    second = register.put(key, "b", version)
    assert second != first
    with pytest.raises(Conflict):
        register.put(key, "c", first)
    assert text(register.get(key).value) == "b"
    assert register.get(key).version == second


def test_update_computes_again_if_somebody_was_quicker(stage: Stage) -> None:
    register, other, key = stage.register(), stage.register(), stage.key
    other.put(key, "10", None)
    seen: list[str] = []

    def change(value: Any) -> str:
        seen.append(text(value))
        if len(seen) < 3:
            other.update(key, add_one)
        return add_one(value)

    value, version = register.update(key, change)
    assert seen == ["10", "11", "12"]
    assert (value, register.get(key).version) == ("13", version)


def test_many_at_once_lose_nothing(stage: Stage) -> None:
    def work(_: int) -> None:
        register = stage.register()
        for _turn in range(5):
            register.update(stage.key, add_one, timeout=60.0)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert text(stage.register().get(stage.key).value) == "40"


def test_an_end_to_trying(stage: Stage) -> None:
    register, other, key = stage.register(), stage.register(), stage.key
    other.put(key, "1", None)

    def busy(value: Any) -> str:
        other.update(key, add_one)
        return "never"

    with pytest.raises(Conflict):
        register.update(key, busy, timeout=0.05)
    assert text(register.get(key).value) != "never"


def test_what_the_change_raises_comes_out_and_nothing_is_written(stage: Stage) -> None:
    register, key = stage.register(), stage.key
    register.put(key, "1", None)

    def broken(value: Any) -> str:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        register.update(key, broken)
    assert text(register.get(key).value) == "1"
    register.update(key, add_one)


async def test_in_asyncio(tmp_path: Path) -> None:
    import psycopg
    import redis.asyncio

    async def later(value: Any) -> str:
        await asyncio.sleep(0)
        return add_one(value)

    async def race(registers: list[Any], key: str) -> None:
        await asyncio.gather(*(one.update(key, later, timeout=60.0) for one in registers))
        value, _ = await registers[0].get(key)
        assert text(value) == str(len(registers))

    store = s3_server().bucket(f"b{os.urandom(8).hex()}")
    await race([ObjectVersioned(store, asynchronous=True)] * 5, "x")

    redis_server()("FLUSHALL")
    async with redis.asyncio.Redis(port=redis_server().port) as client:
        await race([RedisVersioned(client)] * 20, "x")
        with pytest.raises(Conflict):
            await RedisVersioned(client).put("x", "late", 1)

    Stage("postgres", tmp_path).stack.close()
    connections = [await psycopg.AsyncConnection.connect(postgres_server().url) for _ in range(5)]
    await race([SqlVersioned(one, "registers", key="name") for one in connections], "x")
    for connection in connections:
        await connection.close()


def test_a_transaction_under_way_is_not_committed_for_you(tmp_path: Path) -> None:
    stage = Stage("sqlite", tmp_path)
    with stage.stack:
        connection = stage.connect()
        register = SqlVersioned(connection, "registers", key="name")
        connection.execute("INSERT INTO registers VALUES ('other', 'a', 1)")
        with pytest.raises(holdfast.ConfigError, match="transaction under way"):
            register.update("x", add_one)


def test_bad_input_is_refused() -> None:
    with pytest.raises(holdfast.ConfigError, match="plain SQL name"):
        SqlVersioned(sqlite3.connect(":memory:"), "a; b")
    with pytest.raises(holdfast.ConfigError, match="redis-py"):
        RedisVersioned(object())
    with pytest.raises(holdfast.ConfigError, match="callable"):
        FileVersioned().update("x", "y")  # type: ignore[arg-type]
