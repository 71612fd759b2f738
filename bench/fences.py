"""The cost of a fence, beside the write that it guards: in a plain transaction, or a plain SET.

All candidates take turns within one process, against servers started for the run as the tests start
theirs. PostgreSQL, MariaDB and SQLite keep their default durability: a commit is on the disk.
"""

from __future__ import annotations

import itertools
import sqlite3
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

import holdfast
from holdfast.fences import RedisFence, SqlFence

from .measure import (
    ROOT,
    Child,
    Row,
    Samples,
    Setting,
    compare,
    duration,
    interleave,
    ratio,
    say,
)
from .redis_server import server as redis_server
from .sql_server import mariadb as mariadb_server
from .sql_server import postgres as postgres_server

sys.path.insert(0, str(ROOT / "tests"))  # the throw-away servers

PLAIN, FENCED, ONE = "plain transaction", "guard in it", "one statement"
FRESH = "guard, a new token each time"
TWO = "two rows by hand"
SQL_TARGET, REDIS_TARGET = 1.5, 1.3
DATABASES = ("postgresql", "mariadb", "sqlite")


def figure(setting: Setting) -> list[Row]:
    processes, rounds = (1, 8) if setting.quick else (3, 30)
    samples: Samples = {}
    for index in range(processes):
        folder = setting.folder / str(index)
        folder.mkdir()
        with Child("bench.fences", folder, rounds) as child:
            for name, values in child.receive().items():
                samples.setdefault(name, []).extend(values)
    rows = []
    for database in DATABASES:
        plain = f"{database} {PLAIN}"
        for what, kind in (("guarded transaction", FENCED), ("one-statement form", ONE)):
            ours = f"{database} {kind}"
            rows.append(_row(f"{database}, {what}", samples, ours, plain, SQL_TARGET))
        for what, kind in (("  a new token each time", FRESH), ("  a second row by hand", TWO)):
            ours = f"{database} {kind}"
            shown = {name: duration(median(samples[name])) for name in (ours, plain)}
            beside = f"{plain} {shown[plain]}"
            found = ratio(samples[ours], samples[plain])
            rows.append(compare(what, shown[ours], beside, found))
    rows.append(_row("redis, fenced set", samples, "redis fenced", "redis plain SET", REDIS_TARGET))
    return rows


def _row(what: str, samples: Samples, ours: str, other: str, target: float) -> Row:
    found = ratio(samples[ours], samples[other])
    seconds = {name: median(samples[name]) for name in (ours, other)}
    return Row(
        what,
        duration(seconds[ours]),
        f"{other} {duration(seconds[other])}",
        found,
        f"≤ {target:g}",
        found <= target,
        {"seconds": seconds},
    )


def _measure(folder: Path, rounds: int) -> Samples:
    samples: Samples = {}
    with ExitStack() as stack:
        port = stack.enter_context(redis_server(folder))
        postgres, maria = (
            stack.enter_context(postgres_server()),
            stack.enter_context(mariadb_server()),
        )
        locks = stack.enter_context(holdfast.connect(f"sqlite://{folder}/locks.db"))
        lease = locks.lock("account").acquire()
        connections = {
            "postgresql": (postgres.connect(), "%s"),
            "mariadb": (maria.connect(), "%s"),
            "sqlite": (sqlite3.connect(folder / "app.db"), "?"),
        }
        for database, (connection, mark) in connections.items():
            stack.callback(connection.close)
            number = 40 if database == "postgresql" else 10
            samples |= interleave(_sql(database, connection, mark, lease), rounds, number)
        samples |= interleave(_redis(stack, port, lease), rounds, 200)
    return samples


def _sql(
    database: str, connection: Any, mark: str, lease: holdfast.Lease
) -> dict[str, Callable[[int], object]]:
    fence = SqlFence(connection)
    cursor = connection.cursor()
    cursor.execute(
        "CREATE TABLE accounts (id INTEGER PRIMARY KEY, balance BIGINT NOT NULL, "
        "fencing_token BIGINT NOT NULL DEFAULT 0)"
    )
    cursor.execute("INSERT INTO accounts (id, balance) VALUES (1, 0)")
    cursor.execute("CREATE TABLE others (id INTEGER PRIMARY KEY, balance BIGINT NOT NULL)")
    cursor.execute("INSERT INTO others VALUES (1, 0)")
    connection.commit()
    second = f"UPDATE others SET balance = {mark} WHERE id = {mark}"
    update = f"UPDATE accounts SET balance = {mark} WHERE id = {mark}"

    def plain(number: int) -> None:
        for turn in range(number):
            cursor.execute(update, (turn, 1))
            connection.commit()

    def fenced(number: int) -> None:
        for turn in range(number):
            fence.guard(connection, "account", lease)
            cursor.execute(update, (turn, 1))
            connection.commit()

    def one(number: int) -> None:
        for turn in range(number):
            fence.update(connection, "accounts", {"balance": turn}, {"id": 1}, lease)
            connection.commit()

    tokens = itertools.count(1)

    def fresh(number: int) -> None:
        for turn in range(number):
            fence.guard(connection, "another account", next(tokens))
            cursor.execute(update, (turn, 1))
            connection.commit()

    def two(number: int) -> None:
        for turn in range(number):
            cursor.execute(second, (turn, 1))
            cursor.execute(update, (turn, 1))
            connection.commit()

    kinds = {PLAIN: plain, FENCED: fenced, ONE: one, FRESH: fresh, TWO: two}
    return {f"{database} {kind}": batch for kind, batch in kinds.items()}


def _redis(
    stack: ExitStack, port: int, lease: holdfast.Lease
) -> dict[str, Callable[[int], object]]:
    import redis

    client: Any = stack.enter_context(redis.Redis(port=port))
    fence = RedisFence(client)

    def plain(number: int) -> None:
        for turn in range(number):
            client.set("plain", turn)

    def fenced(number: int) -> None:
        for turn in range(number):
            fence.set("fenced", turn, lease)

    return {"redis plain SET": plain, "redis fenced": fenced}


if __name__ == "__main__":
    say(_measure(Path(sys.argv[1]), int(sys.argv[2])))
