"""SQL: transactions that the server has ended, of which the driver was told nothing.

A server that ends a transaction by itself (that of a deadlock's victim, on MySQL and MariaDB) says so
by an error, and most drivers go on believing that it is under way. A connection that commits each
statement is in none then. Whoever tries again at once, without BEGIN, must not pass.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import holdfast
from fences.test_sql_drivers import (
    DRIVERS,
    Stage,
    asyncmy,
    commit_each,
    mysql_connector,
    mysql_connector_pure,
    psycopg2,
)
from holdfast.fences import SqlFence
from stores import mariadb_server

ENDED = "BEGIN NOT ATOMIC ROLLBACK; SIGNAL SQLSTATE '40001'; END"
"""Ends the transaction and fails, as a deadlock does to its victim."""


def pymysql(folder: Path) -> Any:
    return mariadb_server().connect()


MARIADB = [pymysql, mysql_connector, mysql_connector_pure, asyncmy]
MARIADB += [driver for driver in DRIVERS if driver.__name__ == "mysqlclient"]


@pytest.fixture(params=MARIADB, ids=lambda one: one.__name__)
def stage(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    made = Stage(request.param, tmp_path, f"ended_{os.urandom(4).hex()}")
    made.commit()
    made(commit_each(made.connection))
    yield made
    made.close()


def lose(stage: Stage) -> None:
    """Begins a transaction, which the server ends."""
    stage.execute("START TRANSACTION")
    stage.execute(f"UPDATE {stage.table} SET writes = writes + 1")
    with pytest.raises(Exception, match="1644"):
        stage.execute(ENDED)


@pytest.mark.parametrize("known", [False, True])
def test_a_guard(stage: Stage, known: bool) -> None:
    token = stage(stage.fence.highest(stage.connection, "x")) + 1
    if known:
        stage.execute("START TRANSACTION")
        stage.guard(token)
        stage.commit()
    lose(stage)
    with pytest.raises(holdfast.ConfigError, match="commits each statement"):
        stage.guard(token)
    stage.execute("START TRANSACTION")
    stage.guard(token)
    stage.commit()


def test_a_reader_who_was_remembered_before(stage: Stage) -> None:
    with holdfast.connect("memory://") as locks, locks.rwlock("book").read() as reader:
        stage(stage.fence.reset(stage.connection, "x", by="test"))
        stage.execute("START TRANSACTION")
        stage.guard(reader)
        stage.commit()
        stage.execute("START TRANSACTION")
        stage.guard(reader)
        stage.commit()
        lose(stage)
        with pytest.raises(holdfast.ConfigError, match="commits each statement"):
            stage.guard(reader)


@pytest.mark.parametrize(
    "verb",
    [
        lambda stage: stage.fence.prune(stage.connection, 1e-6),
        lambda stage: stage.fence.reset_floors(stage.connection, by="test"),
    ],
    ids=["prune", "reset_floors"],
)
def test_a_verb_of_several_statements(stage: Stage, verb: Callable[[Stage], Any]) -> None:
    stage.execute("START TRANSACTION")
    token = stage(stage.fence.highest(stage.connection, "x")) + 1
    stage(stage.fence.reset(stage.connection, "x", by="test"))
    stage.guard(token)
    stage.commit()
    lose(stage)
    with pytest.raises(holdfast.ConfigError, match="commits each statement"):
        stage(verb(stage))
    assert stage(stage.fence.highest(stage.connection, "x")) == token


def test_psycopg2_that_was_committed_by_hand_does_not_prune(tmp_path: Path) -> None:
    connection = psycopg2(tmp_path)
    fence = SqlFence(connection, table="fences_by_hand")
    fence.reset(connection, "x", by="test", to=34)
    connection.commit()
    connection.cursor().execute("BEGIN; COMMIT")
    with pytest.raises(holdfast.ConfigError, match="commits each statement"):
        fence.prune(connection, 1e-6)
    connection.rollback()
    assert fence.highest(connection, "x") == 34
    connection.close()


def test_a_body_that_goes_on_in_the_next_transaction() -> None:
    connection = mariadb_server().connect()
    fence = SqlFence(connection, table="fences_gone_on")
    held = fence.hold(connection, "x", 34)
    held.__enter__()
    with pytest.raises(Exception, match="1644"):
        connection.cursor().execute(ENDED)
    connection.cursor().execute("INSERT INTO fences_gone_on_resets VALUES (1, '', '', 1, '')")
    with pytest.raises(holdfast.GuaranteeError, match="is over before its end"):
        held.__exit__(None, None, None)
    connection.rollback()
    connection.close()


def test_readers_do_not_shut_each_other_out_where_each_statement_is_committed() -> None:
    """The driver is told nothing by a look, and a look is all that a second one needs."""
    table = f"shared_{os.urandom(4).hex()}"
    server = mariadb_server()
    with server.connect() as one, server.connect() as other:
        for connection in (one, other):
            connection.autocommit(True)
        with other.cursor() as cursor:
            cursor.execute("SET SESSION innodb_lock_wait_timeout = 5")
        with holdfast.connect("memory://") as locks, locks.rwlock("book").read() as reader:
            fence = SqlFence(one, table=table)
            for made in (SqlFence(one, table=table), fence):  # this one finds the row there
                one.begin()
                made.guard(one, "x", reader)
                one.commit()
            for connection in (one, other):
                connection.begin()
                fence.guard(connection, "x", reader)
            for connection in (one, other):
                connection.commit()
