"""Rules that PostgreSQL's defaults, poolers and clean-up must not break."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from _async.sql_scenes import crowd, waits
from holdfast import aio as holdfast
from holdfast.chaos.servers.postgres import PostgresServer
from servers.pgbouncer import PgBouncer
from worlds.aio import Job, eventually


@pytest.mark.parametrize("level", ["read committed", "repeatable read", "serializable"])
async def test_every_default_isolation_level(kept: PostgresServer, level: str) -> None:
    url = kept.new_database()
    with kept.connect(autocommit=True) as connection:
        connection.execute(
            f"ALTER DATABASE {url.rpartition('/')[2]} SET default_transaction_isolation = '{level}'"
        )
    await crowd([url] * 6, 10)


async def test_a_step_refuses_a_transaction_whose_snapshot_may_be_old(kept: PostgresServer) -> None:
    url = kept.new_database()
    async with holdfast.connect(url) as locks:
        await (await locks.lock("x").acquire()).release()
    with kept.connect(dbname=url.rpartition("/")[2], autocommit=True) as connection:
        connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        with pytest.raises(psycopg.Error, match="READ COMMITTED"):
            connection.execute("SELECT holdfast_release(1000, 'x', 'nobody', 0)")


async def test_through_a_transaction_pooler(kept: PostgresServer) -> None:
    database = kept.new_database().rpartition("/")[2]
    pooler = PgBouncer(kept.port, size=3)
    try:
        url = pooler.url(database)
        await crowd([url] * 6, 10)
        async with holdfast.connect(url) as locks, holdfast.connect(url) as others:
            lease = await locks.lock("x").acquire()
            waiter = Job(others.lock("x").acquire)
            await waits(locks)
            await lease.release()
            second = await waiter.result()
            assert second.token > lease.token
            await second.release()
            # The channel of a listener that heard nothing is given up, and waiters are looked after.
            backend: Any = (await others._session()).backend
            assert backend._wakeups.channel == ""
    finally:
        pooler.stop()


async def test_a_forced_release_that_a_pooler_does_not_tell_of_is_found_by_a_renewal(
    kept: PostgresServer,
) -> None:
    database = kept.new_database().rpartition("/")[2]
    pooler = PgBouncer(kept.port, size=3)
    try:
        url = pooler.url(database)
        async with holdfast.connect(url) as locks, holdfast.connect(url) as others:
            lease = await locks.lock("x", ttl=6.0).acquire()
            assert await others.force_release("x") is True
            assert await lease.wait_lost(timeout=20.0) is True
    finally:
        pooler.stop()


@pytest.mark.parametrize("level", ["read committed", "repeatable read"])
async def test_prepared_statements_that_a_pooler_shares_or_loses(
    kept: PostgresServer, level: str
) -> None:
    database = kept.new_database().rpartition("/")[2]
    with kept.connect(autocommit=True) as connection:
        connection.execute(
            f"ALTER DATABASE {database} SET default_transaction_isolation = '{level}'"
        )
    pooler = PgBouncer(kept.port, size=1)
    try:
        url = pooler.url(database)

        async def turns(locks: holdfast.Locks) -> None:
            for _ in range(10):
                await (await locks.lock("x").acquire()).release()

        async with (
            holdfast.connect(url, connections=1) as locks,
            holdfast.connect(url, connections=1) as others,
        ):
            await turns(locks)
            await turns(others)
            pooled: Any = psycopg.connect(url, autocommit=True, prepare_threshold=None)
            with pooled:
                prepared = "SELECT count(*) FROM pg_prepared_statements WHERE name LIKE 'holdfast%'"
                assert pooled.execute(prepared).fetchone()[0] >= 2
                pooled.execute("DEALLOCATE ALL")
            await turns(locks)
            await turns(others)
    finally:
        pooler.stop()


async def test_through_a_session_pooler_messages_come(kept: PostgresServer) -> None:
    database = kept.new_database().rpartition("/")[2]
    pooler = PgBouncer(kept.port, mode="session", size=20)
    try:
        await crowd([pooler.url(database)] * 4, 10)
    finally:
        pooler.stop()


async def test_a_listener_that_goes_deaf_is_noticed(kept: PostgresServer) -> None:
    url = kept.new_database()
    async with holdfast.connect(url) as locks, holdfast.connect(url) as others:
        lease = await locks.lock("x").acquire()
        waiter = Job(others.lock("x").acquire)
        await waits(locks)
        backend: Any = (await others._session()).backend
        wakeups = backend._wakeups
        assert wakeups.channel
        wakeups._probed, wakeups._probe_at = 5, 0.0  # a message that did not come through

        async def deaf() -> bool:
            return not wakeups.channel

        await eventually(deaf)
        await lease.release()
        second = await waiter.result()
        assert second.token > lease.token


async def test_a_waiter_stays_looked_after_if_nobody_listens_when_its_heartbeat_ends(
    kept: PostgresServer,
) -> None:
    """The heartbeat told the database of a channel on which messages came until then."""
    url = kept.new_database()
    async with holdfast.connect(url) as locks, holdfast.connect(url) as others:
        async with locks.lock("x"):
            waiter = Job(others.lock("x").acquire)
            await waits(locks)
            backend: Any = (await others._session()).backend
            wakeups = backend._wakeups
            channel = wakeups.channel
            assert channel
            (owner,) = wakeups.tickets
            await wakeups.check(channel, [owner], backend.clock.now() + 10.0)
            assert not wakeups._unheard.first()
            wakeups._deafen()
            assert wakeups._unheard.first() == [owner]
            await wakeups.check(channel, [owner], backend.clock.now() + 10.0)
            assert wakeups._unheard.first() == [owner]
        await (await waiter.result()).release()


async def test_many_create_the_tables_at_once(kept: PostgresServer) -> None:
    url = kept.new_database()

    async def use(name: str) -> None:
        async with holdfast.connect(url) as locks:
            await (await locks.lock(name).acquire()).release()

    jobs = [Job(use, f"x{number}") for number in range(10)]
    for job in jobs:
        await job.result()


async def test_tables_of_a_later_release_are_refused(kept: PostgresServer) -> None:
    url = kept.new_database()
    async with holdfast.connect(url) as locks:
        await (await locks.lock("x").acquire()).release()
    with kept.connect(dbname=url.rpartition("/")[2], autocommit=True) as connection:
        connection.execute("UPDATE holdfast_store SET format = 2")
    with pytest.raises(holdfast.ConfigError, match="format 2"):
        async with holdfast.connect(url):
            pass


async def test_who_may_not_create_tables_uses_those_of_the_script(kept: PostgresServer) -> None:
    from holdfast.stores.postgres import schema

    url = kept.new_database()
    database = url.rpartition("/")[2]
    role = f"app_{database}"
    with kept.connect(dbname=database, autocommit=True) as connection:
        connection.execute("REVOKE CREATE ON SCHEMA public FROM PUBLIC")
        connection.execute(schema.script())
        connection.execute(f"CREATE ROLE {role} LOGIN")
        connection.execute(
            f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {role}"
        )
        connection.execute(f"GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO {role}")
    async with holdfast.connect(url.replace("//", f"//{role}@")) as locks:
        lease = await locks.lock("x").acquire()
        assert await locks.force_release("x") is True
        assert not await lease.release()


async def test_stale_names_are_cleaned_away_and_tokens_stay_above_them(
    kept: PostgresServer,
) -> None:
    url = kept.new_database()
    async with holdfast.connect(url) as locks:
        lease = await locks.lock("x").acquire()
        await lease.release()
        backend: Any = (await locks._session()).backend
        day = 86400 * 1_000_000
        with kept.connect(dbname=url.rpartition("/")[2], autocommit=True) as connection:
            # As if it had last been used two days ago, by a clock that was far ahead since then.
            connection.execute("UPDATE holdfast_lock SET touched = touched - %s", [2 * day])
            for _ in range(2):
                backend._store.call("clean", [1000, 200, day], backend.clock.now() + 10)
            assert connection.execute("SELECT count(*) FROM holdfast_lock").fetchone() == (0,)
            (floor,) = connection.execute("SELECT floor FROM holdfast_store").fetchone()
            assert floor >= lease.token
            connection.execute("UPDATE holdfast_store SET floor = floor + %s", [day])
        second = await locks.lock("x").acquire()
        assert second.token == floor + day + 1


async def test_what_is_used_is_not_cleaned_away(kept: PostgresServer) -> None:
    url = kept.new_database()
    async with holdfast.connect(url) as locks:
        lease = await locks.lock("x").acquire()
        backend: Any = (await locks._session()).backend
        for _ in range(3):
            backend._store.call("clean", [1000, 200, 1], backend.clock.now() + 10)
        assert (await locks.inspect("x")).token == lease.token
        assert await lease.release() is True


async def test_no_plan_reads_a_whole_table(kept: PostgresServer) -> None:
    """Plans are kept by a connection: they must not rest on tables that were small once."""
    url = kept.new_database()
    async with holdfast.connect(url, connections=1) as locks:
        for _ in range(10):  # by then PostgreSQL keeps its plans
            await (await locks.lock("x").acquire()).release()
        with kept.connect(dbname=url.rpartition("/")[2], autocommit=True) as connection:
            connection.execute("VACUUM ANALYZE")
            read = "SELECT sum(seq_tup_read) FROM pg_stat_user_tables WHERE relname = ANY (%s)"
            tables = [["holdfast_lock", "holdfast_entry"]]

            async def reported() -> bool:
                """Tells whether the server counts what a manager reads when it is opened."""
                await (await locks.lock("x").acquire()).release()
                return bool(connection.execute(read, [["holdfast_store"]]).fetchone()[0])

            await eventually(reported)
            for _ in range(10):
                await (await locks.lock("x").acquire()).release()
            connection.execute("SELECT pg_stat_reset()")
            for number in range(100):
                await (await locks.lock(f"x{number}").acquire()).release()
            assert connection.execute(read, tables).fetchone()[0] in (0, None)


@pytest.mark.parametrize("lost", ["FUNCTION holdfast_break", "TABLE holdfast_audit"])
async def test_a_new_manager_makes_what_is_missing(kept: PostgresServer, lost: str) -> None:
    url = kept.new_database()
    async with holdfast.connect(url) as locks:
        lease = await locks.lock("x").acquire()
        await lease.release()
    with kept.connect(dbname=url.rpartition("/")[2], autocommit=True) as connection:
        connection.execute(f"DROP {lost}")
    async with holdfast.connect(url) as locks:
        second = await locks.lock("x").acquire()
        assert second.token > lease.token
        assert await locks.force_release("x") is True
