"""Compare-and-set where it is easily done wrong: lost replies, other ways to count, deletion."""

from __future__ import annotations

import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import redis

import holdfast
from holdfast.chaos.servers.proxy import Proxy
from holdfast.versioned import (
    Conflict,
    FileVersioned,
    ObjectVersioned,
    RedisVersioned,
    SqlVersioned,
)
from stores import mariadb_server, postgres_server, redis_server


def connections(folder: Path) -> dict[str, Any]:
    """Ways to a database that count changed rows each in its own way."""
    from pymysql.constants import CLIENT
    from sqlalchemy import create_engine
    from sqlalchemy.pool import NullPool

    def alchemy(url: str) -> Any:
        return create_engine(url, poolclass=NullPool).connect()

    return {
        "mariadb": lambda: mariadb_server().connect(),
        "mariadb-found-rows": lambda: mariadb_server().connect(client_flag=CLIENT.FOUND_ROWS),
        "mariadb-alchemy": lambda: alchemy(
            mariadb_server().url.replace("mysql:", "mysql+pymysql:")
        ),
        "postgres-alchemy": lambda: alchemy(
            postgres_server().url.replace("postgresql:", "postgresql+psycopg:")
        ),
        "sqlite": lambda: sqlite3.connect(folder / "app.db"),
        "sqlite-alchemy": lambda: alchemy(f"sqlite:///{folder}/app.db"),
    }


def run(connection: Any, sql: str) -> None:
    if hasattr(connection, "exec_driver_sql"):
        connection.exec_driver_sql(sql)
    else:
        connection.cursor().execute(sql)
    connection.commit()


@pytest.fixture(params=sorted(connections(Path())))
def connection(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    made = connections(tmp_path)[request.param]()
    run(made, "DROP TABLE IF EXISTS counted")
    run(
        made,
        "CREATE TABLE counted (id INTEGER PRIMARY KEY, value INTEGER NOT NULL, version BIGINT)",
    )
    yield made
    made.close()


def test_two_who_make_the_same_row(connection: Any) -> None:
    rows = SqlVersioned(connection, "counted", key="id")
    rows.put(1, 10, None)
    with pytest.raises(Conflict, match="somebody else has made it"):
        rows.put(1, 20, None)
    assert rows.get(1).value == 10
    assert rows.update(1, lambda value: value + 1).value == 11


def test_what_the_database_refuses_is_no_conflict(connection: Any) -> None:
    rows = SqlVersioned(connection, "counted", key="id")
    with pytest.raises(Exception, match=r"(?i)null") as caught:
        rows.put(1, None, None)
    assert not isinstance(caught.value, Conflict)
    assert rows.get(1) == (None, None)


def test_a_row_that_was_deleted_and_made_again_is_another(connection: Any) -> None:
    rows = SqlVersioned(connection, "counted", key="id")
    rows.put(1, 10, None)
    old = rows.get(1)
    run(connection, "DELETE FROM counted")
    rows.put(1, 99, None)
    with pytest.raises(Conflict):
        rows.put(1, old.value + 1, old.version)
    assert rows.get(1).value == 99


def test_a_put_commits_nothing_of_yours(connection: Any) -> None:
    rows = SqlVersioned(connection, "counted", key="id")
    sql = "INSERT INTO counted VALUES (7, 7, 7)"
    if hasattr(connection, "exec_driver_sql"):
        connection.exec_driver_sql(sql)
    else:
        connection.cursor().execute(sql)
    with pytest.raises(holdfast.ConfigError, match="transaction under way"):
        rows.put(1, 10, None)
    connection.rollback()
    assert rows.get(7) == (None, None)


def test_a_reply_that_was_lost_does_not_count_twice() -> None:
    """redis-py asks again by itself, and finds its own write: that is no conflict."""
    server = redis_server()
    server("FLUSHALL")
    proxy = Proxy(server.port)
    with redis.Redis(port=proxy.port) as client, redis.Redis(port=server.port) as direct:
        counter, other = RedisVersioned(client), RedisVersioned(direct)
        counter.update("x", lambda value: int(value or 0) + 1)
        calls = 0

        def change(value: Any) -> int:
            nonlocal calls
            calls += 1
            if calls == 1:
                proxy.reset_once = True
            return int(value) + 1

        value, version = counter.update("x", change)
        assert calls == 1
        assert other.get("x") == (b"2", version)
        assert value == 2
    proxy.close()


def test_a_key_that_was_deleted_and_made_again_is_another() -> None:
    redis_server()("FLUSHALL")
    with redis.Redis(port=redis_server().port) as client:
        register = RedisVersioned(client)
        register.put("x", "a", None)
        old = register.get("x")
        client.delete("x")
        register.put("x", "b", None)
        with pytest.raises(Conflict):
            register.put("x", "late", old.version)
        assert register.get("x").value == b"b"


@pytest.mark.parametrize("value", [5, None, 1.5, [1, 2]])
def test_what_is_no_data_is_refused(value: Any, tmp_path: Path) -> None:
    """`bytes(5)` is five zeros, which nobody wants to find in his file."""
    from obstore.store import MemoryStore

    registers: list[tuple[Any, Any]] = [
        (FileVersioned(), tmp_path / "x"),
        (ObjectVersioned(MemoryStore()), "x"),
    ]
    for register, key in registers:
        register.put(key, b"1", None)
        with pytest.raises(holdfast.ConfigError, match="bytes or str"):
            register.update(key, lambda data: value)
        assert register.get(key).value == b"1"


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
@pytest.mark.parametrize("kind", ["mariadb", "postgres"])
def test_what_the_database_ended_because_of_another_is_tried_again(kind: str, level: str) -> None:
    """Eight at once, where the database ends transactions instead of letting them wait."""
    server = mariadb_server() if kind == "mariadb" else postgres_server()
    scope = "SESSION" if kind == "mariadb" else "SESSION CHARACTERISTICS AS"

    def connect() -> Any:
        made = server.connect()
        made.cursor().execute(f"SET {scope} TRANSACTION ISOLATION LEVEL {level}")
        made.commit()
        return made

    with closing(connect()) as connection:
        run(connection, "DROP TABLE IF EXISTS ended")
        run(
            connection, "CREATE TABLE ended (id INTEGER PRIMARY KEY, value INTEGER, version BIGINT)"
        )
        SqlVersioned(connection, "ended", key="id").put(1, 0, None)

        def work(_: int) -> None:
            with closing(connect()) as mine:
                rows = SqlVersioned(mine, "ended", key="id")
                for _turn in range(5):
                    rows.update(1, lambda value: value + 1, timeout=60.0)

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(work, range(8)))
        assert SqlVersioned(connection, "ended", key="id").get(1).value == 40


def test_a_serialization_failure_is_a_conflict() -> None:
    with closing(postgres_server().connect()) as one, closing(postgres_server().connect()) as other:
        for connection in (one, other):
            connection.execute(
                "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL REPEATABLE READ"
            )
            connection.commit()
        run(one, "DROP TABLE IF EXISTS ended")
        run(one, "CREATE TABLE ended (id INTEGER PRIMARY KEY, value INTEGER, version BIGINT)")
        rows = SqlVersioned(one, "ended", key="id")
        version = rows.put(1, 0, None)
        other.execute("UPDATE ended SET value = 5, version = version + 1")
        with ThreadPoolExecutor(1) as pool:
            late = pool.submit(rows.put, 1, 7, version)
            with closing(postgres_server().connect(autocommit=True)) as looker:
                while not looker.execute(
                    "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
                ).fetchall():
                    assert not late.done()
            other.commit()
            with pytest.raises(Conflict, match="ended this one"):
                late.result(60)
        assert rows.get(1).value == 5


@pytest.mark.parametrize("kind", ["mariadb", "postgres", "sqlite"])
def test_columns_whose_names_are_keywords(kind: str, tmp_path: Path) -> None:
    made: Any = connections(tmp_path)
    connection = postgres_server().connect() if kind == "postgres" else made[kind]()
    sign = '"' if kind == "postgres" else "`"
    for names in (("key", "value", "version"), ("order", "select", "group")):
        run(connection, f"DROP TABLE IF EXISTS {sign}table{sign}")
        quoted = [f"{sign}{name}{sign}" for name in names]
        run(
            connection,
            f"CREATE TABLE {sign}table{sign} ({quoted[0]} INTEGER PRIMARY KEY, "
            f"{quoted[1]} INTEGER, {quoted[2]} BIGINT)",
        )
        key, value, version = names
        rows = SqlVersioned(connection, "table", key=key, value=value, version=version)
        rows.put(1, 5, None)
        assert rows.update(1, lambda number: number + 1).value == 6
    run(connection, f"DROP TABLE {sign}table{sign}")
    connection.close()


def test_what_an_object_fence_has_marked_is_not_written_over() -> None:
    from obstore.store import MemoryStore

    from holdfast.fences import ObjectFence

    store = MemoryStore()
    ObjectFence(store).put("x", b"a", 34)
    objects = ObjectVersioned(store)
    assert objects.get("x").value == b"a"
    with pytest.raises(holdfast.ConfigError, match="behind an ObjectFence"):
        objects.update("x", lambda _: b"b")
    with pytest.raises(holdfast.StaleToken):
        ObjectFence(store).put("x", b"late", 33)
    assert ObjectFence(store).get("x") == b"a"
