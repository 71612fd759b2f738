"""The doctor of PostgreSQL, with each finding provoked on a real server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import holdfast
from doctor.look import look, until
from holdfast.chaos.servers.postgres import PostgresServer
from holdfast.chaos.servers.stepped import SteppedClock
from servers.pgbouncer import PgBouncer


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    server = PostgresServer()
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture
def url(server: PostgresServer) -> str:
    url = server.new_database()
    with holdfast.connect(url) as locks, locks.lock("x"):
        pass
    return url


def administer(server: PostgresServer, url: str, *statements: str) -> list[Any]:
    with server.connect(dbname=url.rpartition("/")[2], autocommit=True) as connection:
        cursor = connection.cursor()
        for statement in statements:
            cursor.execute(statement)
        return list(cursor.fetchall()) if cursor.description else []


def tables(server: PostgresServer, url: str) -> list[Any]:
    return administer(server, url, "SELECT * FROM holdfast_lock", "SELECT * FROM holdfast_entry")


def test_a_good_database_is_left_as_it_was(server: PostgresServer, url: str) -> None:
    before = tables(server, url)
    found = look(url)
    assert {one.level for one in found.findings} == {"ok"}, str(found)
    checks = [
        "version",
        "fsync",
        "replication",
        "tables",
        "pooler",
        "listen",
        "clock",
        "round-trip",
    ]
    assert [one.check for one in found.findings] == checks
    assert tables(server, url) == before


def test_tables_that_are_not_there_yet_are_not_created(server: PostgresServer) -> None:
    url = server.new_database()
    look(url).one("tables", "note", "not there yet")
    count = administer(server, url, "SELECT count(*) FROM pg_class WHERE relname LIKE 'holdfast%'")
    assert count == [(0,)]


def test_settings(server: PostgresServer, url: str) -> None:
    def reload(*settings: str) -> None:
        administer(server, url, *settings, "SELECT pg_reload_conf()")

    reload("ALTER SYSTEM SET full_page_writes = off")
    until(lambda: look(url).levels("fsync") == ["warning"])
    reload("ALTER SYSTEM SET fsync = off")
    until(lambda: look(url).levels("fsync") == ["wrong"])
    assert "fsync is off" in look(url).one("fsync", "wrong").what
    reload("ALTER SYSTEM RESET ALL")
    until(lambda: look(url).levels("fsync") == ["ok"])


def test_users_who_may_not(server: PostgresServer, url: str) -> None:
    administer(server, url, "CREATE ROLE poor LOGIN")
    name = url.rpartition("/")[2]
    poor = f"postgresql://poor@127.0.0.1:{server.port}/{name}"
    look(poor).one("tables", "wrong", "may not use holdfast_")
    grant = "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO poor"
    administer(server, url, grant)
    look(poor).one("tables", "ok")
    revoke = "REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA public FROM public"
    administer(server, url, revoke)
    look(poor).one("tables", "wrong", "procedures")
    empty = server.new_database()
    administer(server, empty, "REVOKE CREATE ON SCHEMA public FROM public")
    name = empty.rpartition("/")[2]
    poor = f"postgresql://poor@127.0.0.1:{server.port}/{name}"
    assert "holdfast schema" in look(poor).one("tables", "wrong", "may not create").mend
    found = look(f"{poor}?options=-csearch_path%3Dnowhere")
    found.one("tables", "wrong", "search_path")


def test_tables_of_another_kind(server: PostgresServer, url: str) -> None:
    administer(server, url, "ALTER TABLE holdfast_entry SET UNLOGGED")
    look(url).one("tables", "wrong", "not logged")
    administer(server, url, "ALTER TABLE holdfast_entry SET LOGGED")
    administer(server, url, "DROP TABLE holdfast_audit")
    look(url).one("tables", "warning", "missing")
    administer(server, url, "UPDATE holdfast_store SET format = 99")
    look(url).one("tables", "wrong", "format 99")


def test_a_pooler(server: PostgresServer, url: str) -> None:
    name = url.rpartition("/")[2]
    for mode, level in (("transaction", "warning"), ("session", "ok")):
        bouncer = PgBouncer(server.port, mode=mode)
        try:
            found = look(bouncer.url(name))
            found.one("pooler", "note", "a pooler is in between")
            assert found.levels("listen") == [level]
        finally:
            bouncer.stop()


def test_standbys(server: PostgresServer, url: str) -> None:
    standby = PostgresServer(primary=server.port)
    try:
        until(lambda: look(url).levels("replication") == ["note"])
        look(url).one("replication", "note", "a standby follows, and grants do not wait for it")
        found = look(standby.url)
        found.one("replication", "wrong", "it is a standby")
        reload = "SELECT pg_reload_conf()"
        administer(server, url, "ALTER SYSTEM SET synchronous_standby_names = '*'", reload)
        until(lambda: look(url).levels("replication") == ["ok"])
        local = f"{url}?options=-csynchronous_commit%3Dlocal"
        look(local).one("replication", "warning", "synchronous_commit is local")
        off = f"{url}?options=-csynchronous_commit%3Doff"
        assert "turn on for themselves" in look(off).one("replication", "ok").what
    finally:
        administer(server, url, "SET synchronous_commit = local", "ALTER SYSTEM RESET ALL", reload)
        standby.stop()


def test_a_clock_that_is_ahead() -> None:
    clock = SteppedClock()
    server = PostgresServer("fsync=off", environment=clock.environment)
    try:
        clock.step(90)
        until(lambda: look(server.url).levels("clock") == ["warning"])
        look(server.url).one("clock", "warning", "ahead of ours")
    finally:
        server.stop()
        clock.remove()


def test_a_server_that_is_gone_or_shut(server: PostgresServer) -> None:
    with pytest.raises(holdfast.ConfigError):
        look(f"postgresql://nobody:secret@127.0.0.1:{server.port}/postgres")
    with pytest.raises(holdfast.BackendUnavailable):
        look("postgresql://postgres@127.0.0.1:1/postgres", timeout=1.0)
