"""Why a lease row, and not an advisory lock: docs/postgres.md tells it, and here it happens."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

import holdfast
from holdfast.fences import SqlFence
from servers.pgbouncer import PgBouncer
from stores import postgres_server
from worlds.threads import eventually

LOCK = "SELECT pg_try_advisory_lock(42)"


@pytest.fixture
def url() -> str:
    return postgres_server().new_database()


@pytest.fixture
def pooler() -> Iterator[PgBouncer]:
    made = PgBouncer(postgres_server().port, size=2)
    yield made
    made.stop()


def taken(connection: Any) -> bool:
    return bool(connection.execute(LOCK).fetchone()[0])


def pooled(pooler: PgBouncer, url: str) -> Any:
    where = pooler.url(url.rpartition("/")[2])
    return psycopg.connect(where, autocommit=True, prepare_threshold=None)


def test_a_pooler_strands_an_advisory_lock(url: str, pooler: PgBouncer) -> None:
    client = pooled(pooler, url)
    assert taken(client)
    client.close()  # it is gone, and its lock is not
    with psycopg.connect(url, autocommit=True) as other:
        assert not taken(other)

    where = pooler.url(url.rpartition("/")[2])
    with holdfast.connect(where) as locks, holdfast.connect(where) as others:
        lease = locks.lock("x", ttl=1.0, renew=False).acquire()
        assert others.lock("x").acquire(timeout=20.0).token > lease.token


PAUSED = """
import sys, psycopg, holdfast
url = sys.argv[1]
connection = psycopg.connect(url, autocommit=True)
assert connection.execute("SELECT pg_try_advisory_lock(42)").fetchone()[0]
lease = holdfast.connect(url).lock("x", ttl=1.0).acquire()
print(lease.token, connection.info.backend_pid, flush=True)
sys.stdin.readline()  # the work, during which it is stopped
believes = True  # nothing tells the holder of an advisory lock
print(believes, lease.held, flush=True)
"""


def test_a_pause_keeps_an_advisory_lock_or_its_holder_believing(url: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PAUSED, url],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        token, pid = map(int, process.stdout.readline().split())
        process.send_signal(signal.SIGSTOP)
        with psycopg.connect(url, autocommit=True) as rival, holdfast.connect(url) as locks:
            second = locks.lock("x").acquire(timeout=20.0)  # its TTL ends, whatever the holder does
            assert second.token > token
            assert not taken(rival)  # the advisory lock has no end
            rival.execute("SELECT pg_terminate_backend(%s)", [pid])
            eventually(lambda: taken(rival))
            process.send_signal(signal.SIGCONT)
            process.stdin.write("\n")
            process.stdin.flush()
            believes, held = process.stdout.readline().split()
            assert (believes, held) == ("True", "False")
            second.release()


def test_a_late_write_passes_an_advisory_lock_and_no_fence(url: str) -> None:
    with psycopg.connect(url) as database, psycopg.connect(url, autocommit=True) as session:
        database.execute("CREATE TABLE paid (id integer, by text)")
        database.commit()
        fence = SqlFence(database)
        with holdfast.connect(url) as locks:
            first = locks.lock("x", ttl=1.0, renew=False).acquire()
            assert taken(session)
            session.execute("SELECT pg_advisory_unlock_all()")  # as when its session ends

            second = locks.lock("x").acquire(timeout=20.0)
            with psycopg.connect(url, autocommit=True) as other:
                assert taken(other)
            fence.guard(database, "paid", second.token)
            database.execute("INSERT INTO paid VALUES (1, 'second')")
            database.commit()

            database.execute("INSERT INTO paid VALUES (1, 'first, late')")  # nothing stops it
            database.commit()
            with pytest.raises(holdfast.StaleToken):
                fence.guard(database, "paid", first.token)
            database.rollback()
            second.release()
