"""The doctor of MySQL and MariaDB, with each finding provoked on a real server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import holdfast
from doctor.look import look, until
from holdfast.chaos.servers.mariadb import MariaServer
from holdfast.chaos.servers.stepped import SteppedClock
from servers.galera import GaleraNode


@pytest.fixture(scope="module")
def server() -> Iterator[MariaServer]:
    server = MariaServer()
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture
def url(server: MariaServer) -> str:
    url = server.new_database()
    with holdfast.connect(url) as locks, locks.lock("x"):
        pass
    return url


def administer(server: MariaServer, url: str, *statements: str) -> object:
    with server.connect(database=url.rpartition("/")[2]) as connection:
        cursor = connection.cursor()
        for statement in statements:
            cursor.execute(statement)
        return cursor.fetchall()


def test_a_good_database_is_left_as_it_was(server: MariaServer, url: str) -> None:
    before = administer(server, url, "SELECT * FROM holdfast_lock")
    found = look(url)
    assert {one.level for one in found.findings} == {"ok"}, str(found)
    checks = ["version", "fsync", "read-only", "engine", "tables", "clock", "round-trip"]
    assert [one.check for one in found.findings] == checks
    assert administer(server, url, "SELECT * FROM holdfast_lock") == before


def test_tables_that_are_not_there_yet_are_not_created(server: MariaServer) -> None:
    url = server.new_database()
    look(url).one("tables", "note", "not there yet")
    assert not administer(server, url, "SHOW TABLES")


def test_saving(server: MariaServer, url: str) -> None:
    try:
        for value in (0, 2):
            administer(server, url, f"SET GLOBAL innodb_flush_log_at_trx_commit = {value}")
            look(url).one("fsync", "warning", f"is {value}")
    finally:
        administer(server, url, "SET GLOBAL innodb_flush_log_at_trx_commit = 1")


def test_a_server_that_is_read_only(server: MariaServer, url: str) -> None:
    administer(server, url, "SET GLOBAL read_only = ON")
    try:
        look(url).one("read-only", "wrong")
    finally:
        administer(server, url, "SET GLOBAL read_only = OFF")


def test_the_engine(server: MariaServer, url: str) -> None:
    administer(server, url, "ALTER TABLE holdfast_audit ENGINE = MyISAM")
    found = look(url).one("engine", "wrong", "MyISAM")
    assert found.mend == "ALTER TABLE holdfast_audit ENGINE = InnoDB"


def test_tables_that_are_missing_or_newer(server: MariaServer, url: str) -> None:
    administer(server, url, "UPDATE holdfast_store SET format = 99", "COMMIT")
    look(url).one("tables", "wrong", "format 99")
    administer(server, url, "DROP TABLE holdfast_audit")
    look(url).one("tables", "warning", "5 of 6 tables")


def test_users_who_may_not(server: MariaServer, url: str) -> None:
    name = url.rpartition("/")[2]
    poor = f"mysql://poor:secret@127.0.0.1:{server.port}/{name}"
    administer(
        server,
        url,
        "CREATE OR REPLACE USER poor@'%' IDENTIFIED BY 'secret'",
        f"GRANT SELECT ON {name}.* TO poor@'%'",
    )
    found = look(poor)
    found.one("tables", "wrong", "INSERT, UPDATE, DELETE, EXECUTE are missing")
    assert "secret" not in str(found)
    administer(server, url, f"GRANT INSERT, UPDATE, DELETE, EXECUTE ON {name}.* TO poor@'%'")
    look(poor).one("tables", "ok")
    empty = server.new_database().rpartition("/")[2]
    administer(server, url, f"GRANT SELECT ON {empty}.* TO poor@'%'")
    found = look(f"mysql://poor:secret@127.0.0.1:{server.port}/{empty}")
    assert "holdfast schema" in found.one("tables", "wrong", "may not create").mend


def test_galera() -> None:
    first = GaleraNode()
    second = None
    try:
        first.new_database()
        found = look(first.url)
        found.one("galera", "warning", "1 server")
        found.one("galera-reads", "note")
        second = GaleraNode(first)
        look(first.url).one("galera", "warning", "2 servers")
        second.kill()

        def alone() -> bool:
            return look(first.url).levels("galera") == ["wrong"]

        until(alone)
    finally:
        first.stop()
        if second is not None:
            second.stop()


def test_a_clock_that_is_behind() -> None:
    clock = SteppedClock()
    server = MariaServer(environment=clock.environment)
    try:
        clock.step(-90)
        until(lambda: look(server.url).levels("clock") == ["warning"])
        look(server.url).one("clock", "warning", "behind ours")
    finally:
        server.stop()
        clock.remove()


def test_a_server_that_is_gone_or_shut(server: MariaServer) -> None:
    with pytest.raises(holdfast.ConfigError):
        look(f"mysql://nobody:secret@127.0.0.1:{server.port}/app")
    with pytest.raises(holdfast.BackendUnavailable):
        look("mysql://root@127.0.0.1:1/app", timeout=1.0)
