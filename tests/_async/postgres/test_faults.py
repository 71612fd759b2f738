"""A PostgreSQL that restarts, falls silent, refuses, or loses an answer: on real servers."""

from __future__ import annotations

from contextlib import suppress

import psycopg
import pytest

from _async.conformance.test_contract import bench
from _async.conformance.test_verbs import candidate, observer
from _async.sql_scenes import waits
from holdfast import aio as holdfast
from holdfast.chaos.servers.postgres import PostgresServer
from holdfast.chaos.servers.proxy import Proxy
from holdfast.stores.postgres import connection as postgres_connection
from holdfast.stores.postgres.address import Address
from holdfast.stores.postgres.failures import refusal
from worlds.aio import Job, eventually

QUERY_CANCELED = "57014"


async def test_a_lease_outlives_a_crash_of_the_server(server: PostgresServer) -> None:
    async with holdfast.connect(server.url) as locks, holdfast.connect(server.url) as others:
        lease = await locks.lock("x", ttl=60.0).acquire()
        waiter = Job(others.lock("x").acquire)
        await waits(locks)
        server.kill()
        server.start()
        await lease.renew()
        assert lease.held
        assert (await locks.inspect("x")).token == lease.token
        assert await lease.release() is True
        second = await waiter.result()
        assert second.token > lease.token
        await second.release()


async def test_a_grant_is_on_the_disk_whatever_synchronous_commit_says(
    server: PostgresServer,
) -> None:
    with server.connect(autocommit=True) as connection:
        connection.execute("ALTER ROLE postgres SET synchronous_commit = off")
    async with holdfast.connect(server.url) as locks:
        leases = [await locks.lock(f"x{number}", ttl=60.0).acquire() for number in range(20)]
        server.kill()
        server.start()
        assert (await locks.inspect("x19")).token == leases[19].token


async def test_a_server_that_is_gone_is_unavailable(server: PostgresServer) -> None:
    async with holdfast.connect(server.url) as locks:
        lease = await locks.lock("x", ttl=1.0).acquire()
        server.kill()
        with pytest.raises(holdfast.BackendUnavailable, match=r"127\.0\.0\.1"):
            await locks.lock("y").acquire(timeout=0.5)
        assert await lease.wait_lost(timeout=10.0) is True


@pytest.mark.parametrize("step", [b"holdfast_acquire", b"holdfast_release", b"holdfast_renew"])
async def test_a_lost_answer_is_found_again(kept: PostgresServer, step: bytes) -> None:
    proxy = Proxy(kept.port)
    database = kept.new_database().rpartition("/")[2]
    try:
        async with holdfast.connect(f"postgresql://127.0.0.1:{proxy.port}/{database}") as locks:
            await (await locks.lock("warm").acquire()).release()
            proxy.about, proxy.reset_once = step, True
            lease = await locks.lock("x").acquire()
            await lease.renew()
            assert (await locks.inspect("x")).token == lease.token
            await lease.release()
            assert not proxy.reset_once
            assert await locks.list() == []
    finally:
        proxy.close()


async def test_a_request_that_arrives_after_it_was_given_up_is_refused(
    kept: PostgresServer,
) -> None:
    proxy = Proxy(kept.port)
    database = kept.new_database().rpartition("/")[2]
    try:
        async with holdfast.connect(f"postgresql://127.0.0.1:{proxy.port}/{database}") as locks:
            await (await locks.lock("warm").acquire()).release()
            proxy.about, proxy.keep_once, proxy.refuse = b"holdfast_acquire", True, True
            with pytest.raises(holdfast.BackendUnavailable):
                await locks.lock("x").acquire(timeout=0.5)
            proxy.refuse = False

            async def marked() -> bool:
                with kept.connect(dbname=database) as connection:
                    found = connection.execute("SELECT 1 FROM holdfast_entry WHERE place = -1")
                    return found.fetchone() is not None

            await eventually(marked)  # what is owed was sent, ahead of the request itself
            proxy.let_go()
            assert await locks.list() == []
    finally:
        proxy.close()


async def test_a_request_that_arrives_after_its_copy_was_granted_and_freed_is_refused(
    kept: PostgresServer,
) -> None:
    proxy = Proxy(kept.port)
    database = kept.new_database().rpartition("/")[2]
    try:
        async with holdfast.connect(f"postgresql://127.0.0.1:{proxy.port}/{database}") as locks:
            await (await locks.lock("warm").acquire()).release()
            proxy.about, proxy.keep_once = b"holdfast_acquire", True
            lease = await locks.lock("x").acquire()  # on another connection
            assert not proxy.keep_once
            assert await lease.release() is True
            proxy.let_go()
            assert await locks.list() == []
    finally:
        proxy.close()


async def test_a_request_that_arrives_after_its_copy_was_answered_busy_is_refused(
    kept: PostgresServer,
) -> None:
    proxy = Proxy(kept.port)
    url = kept.new_database()
    database = url.rpartition("/")[2]
    try:
        async with (
            holdfast.connect(url) as others,
            holdfast.connect(f"postgresql://127.0.0.1:{proxy.port}/{database}") as locks,
        ):
            held = await others.lock("x").acquire()
            await (await locks.lock("warm").acquire()).release()
            proxy.about, proxy.keep_once = b"holdfast_acquire", True
            assert await locks.lock("x").try_acquire() is None
            assert await held.release() is True
            proxy.let_go()
            assert await locks.list() == []
    finally:
        proxy.close()


async def test_a_silent_server_ends_a_call_in_time_and_a_lease_by_the_clock(
    kept: PostgresServer,
) -> None:
    proxy = Proxy(kept.port)
    database = kept.new_database().rpartition("/")[2]
    try:
        async with holdfast.connect(f"postgresql://127.0.0.1:{proxy.port}/{database}") as locks:
            lease = await locks.lock("x", ttl=2.0).acquire()
            proxy.stalled = True
            with pytest.raises(holdfast.LockError):
                await locks.lock("y").acquire(timeout=0.3)
            assert await lease.wait_lost(timeout=10.0) is True
            proxy.stalled = False
            proxy.hang_up()

            async def again() -> bool:
                later = await locks.lock("x").try_acquire(timeout=1.0)
                if later is not None:
                    assert later.token > lease.token
                    await later.release()
                return later is not None

            await eventually(again)
    finally:
        proxy.close()


async def test_killed_backends_are_replaced(kept: PostgresServer) -> None:
    url = kept.new_database()
    database = url.rpartition("/")[2]
    async with holdfast.connect(url) as locks, holdfast.connect(url) as others:
        lease = await locks.lock("x").acquire()
        waiter = Job(others.lock("x").acquire)
        await waits(locks)
        with kept.connect(autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s",
                [database],
            )
        await lease.renew()
        await lease.release()
        second = await waiter.result()
        assert second.token > lease.token


async def test_an_observer_goes_on_after_a_crash_of_the_server(server: PostgresServer) -> None:
    async with bench(server.url) as store, bench(server.url) as other:
        leader, watching = candidate("one"), observer()
        first = await store.grant(leader)
        await other.backend.observe(watching, 0, other.deadline())
        server.kill()
        server.start()
        await other.backend.wait(watching, other.deadline())  # the connection that listened broke
        seen = await other.backend.observe(watching, first.token, other.deadline())
        assert seen.changes == ()
        await store.release(leader)  # nobody tells of it; it is looked after
        while not seen.changes:
            await other.backend.wait(watching, other.deadline())
            seen = await other.backend.observe(watching, first.token, other.deadline())
        assert [(change.owner, change.token) for change in seen.changes] == [("", first.token)]


async def test_a_statement_time_out_is_tried_again(kept: PostgresServer) -> None:
    url = kept.new_database()
    async with holdfast.connect(f"{url}?options=-c%20statement_timeout%3D300") as locks:
        await (await locks.lock("x").acquire()).release()
        with kept.connect(dbname=url.rpartition("/")[2]) as connection:
            connection.execute("SELECT * FROM holdfast_lock WHERE name LIKE '%x' FOR UPDATE")
            with pytest.raises(holdfast.LockError):
                await locks.lock("x").acquire(timeout=0.7)
            job = Job(locks.lock("x").acquire)
            connection.rollback()
            await (await job.result()).release()


async def test_a_refused_step_that_has_a_transaction_around_it_is_tried_again(
    kept: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step has one where another isolation level is the default."""
    url = kept.new_database()
    database = url.rpartition("/")[2]
    with kept.connect(autocommit=True) as connection:
        connection.execute(
            f"ALTER DATABASE {database} SET default_transaction_isolation = 'repeatable read'"
        )
    refused: list[str] = []

    def noted(code: str, message: str, address: Address) -> Exception:
        refused.append(code)
        return refusal(code, message, address)

    async with holdfast.connect(f"{url}?options=-c%20statement_timeout%3D300") as locks:
        await (await locks.lock("x").acquire()).release()
        with kept.connect(dbname=database) as stranger:
            stranger.execute("SELECT * FROM holdfast_lock WHERE name LIKE '%x' FOR UPDATE")
            monkeypatch.setattr(postgres_connection, "refusal", noted)
            job = Job(locks.lock("x").acquire, 20.0)
            await eventually(lambda: job.done() or len(refused) >= 3)
            stranger.rollback()
            await (await job.result()).release()
    assert set(refused) == {QUERY_CANCELED}


async def test_a_read_only_server_is_unavailable_and_says_why(kept: PostgresServer) -> None:
    url = kept.new_database()
    database = url.rpartition("/")[2]
    with kept.connect(autocommit=True) as connection:
        connection.execute(f"ALTER DATABASE {database} SET default_transaction_read_only = on")
    for _ in ("without its tables", "with them"):
        async with holdfast.connect(url) as locks:  # a default, which we are free to change
            await (await locks.lock("x").acquire()).release()


async def test_too_many_connections_are_waited_for(server: PostgresServer) -> None:
    async with holdfast.connect(server.url) as locks:
        await (await locks.lock("x").acquire()).release()
    crowd = []
    with suppress(psycopg.OperationalError):
        while True:
            crowd.append(server.connect())
    try:
        with pytest.raises(holdfast.BackendUnavailable, match=r"clients|slots"):
            async with holdfast.connect(server.url):
                pass
    finally:
        for connection in crowd:
            connection.close()


async def test_a_revoked_permission_is_said_plainly(kept: PostgresServer) -> None:
    url = kept.new_database()
    database = url.rpartition("/")[2]
    async with holdfast.connect(url) as locks:
        await (await locks.lock("x").acquire()).release()
    role = f"poor_{database}"
    with kept.connect(dbname=database, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {role} LOGIN")
    poor = url.replace("//", f"//{role}@")
    with pytest.raises(holdfast.ConfigError, match="permission"):
        async with holdfast.connect(poor):
            pass


@pytest.mark.parametrize("table", ["holdfast_entry", "holdfast_lock"])
async def test_a_dropped_table_is_said_plainly_before_the_first_step(
    kept: PostgresServer, table: str
) -> None:
    url = kept.new_database()
    async with holdfast.connect(url) as locks:
        with kept.connect(dbname=url.rpartition("/")[2], autocommit=True) as connection:
            connection.execute(f"DROP TABLE {table} CASCADE")
        with pytest.raises(holdfast.BackendUnavailable, match="dropped"):
            await locks.lock("y").acquire(timeout=1.0)


async def test_dropped_tables_are_said_plainly(kept: PostgresServer) -> None:
    url = kept.new_database()
    async with holdfast.connect(url) as locks:
        lease = await locks.lock("x", ttl=1.0).acquire()
        with kept.connect(dbname=url.rpartition("/")[2], autocommit=True) as connection:
            connection.execute("DROP TABLE holdfast_entry, holdfast_lock, holdfast_store CASCADE")
        with pytest.raises(holdfast.BackendUnavailable, match="dropped"):
            await locks.lock("y").acquire(timeout=1.0)
        assert await lease.wait_lost(timeout=10.0) is True
    async with holdfast.connect(url) as locks:
        second = await locks.lock("x").acquire()
        assert second.token > lease.token
