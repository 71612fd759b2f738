"""A MySQL or MariaDB that restarts, falls silent, refuses, or loses an answer: on real servers."""

from __future__ import annotations

from contextlib import suppress

import pymysql
import pytest

from _async.sql_scenes import waits
from holdfast import aio as holdfast
from holdfast.chaos.servers.mariadb import MariaServer
from holdfast.chaos.servers.proxy import Proxy
from worlds.aio import Job, eventually, pause


async def test_a_lease_outlives_a_crash_of_the_server(server: MariaServer) -> None:
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


async def test_a_server_that_is_gone_is_unavailable(server: MariaServer) -> None:
    async with holdfast.connect(server.url) as locks:
        lease = await locks.lock("x", ttl=1.0).acquire()
        server.kill()
        with pytest.raises(holdfast.BackendUnavailable, match=r"127\.0\.0\.1"):
            await locks.lock("y").acquire(timeout=0.5)
        assert await lease.wait_lost(timeout=10.0) is True


async def test_what_a_killed_server_did_not_answer_leaves_no_ghost(server: MariaServer) -> None:
    proxy = Proxy(server.port)
    try:
        async with holdfast.connect(f"mysql://root@127.0.0.1:{proxy.port}/app") as locks:
            await (await locks.lock("warm").acquire()).release()
            proxy.swallow = True
            job = Job(locks.lock("x", ttl=60.0).acquire, 1.0)

            async def granted() -> bool:
                with server.connect() as connection, connection.cursor() as cursor:
                    cursor.execute("SELECT 1 FROM holdfast_entry WHERE name LIKE '%x'")
                    return cursor.fetchone() is not None

            await eventually(granted)
            server.kill()
            error = await job.error()
            assert isinstance(error, holdfast.LockError)
            server.start()
            proxy.swallow = False

            async def free() -> bool:
                return not (await locks.inspect("x")).held

            await eventually(free)
    finally:
        proxy.close()


@pytest.mark.parametrize("step", [b"holdfast_acquire", b"holdfast_release", b"holdfast_renew"])
async def test_an_answer_that_was_lost_after_its_commit_is_found_again(
    kept: MariaServer, step: bytes
) -> None:
    proxy = Proxy(kept.port)
    database = kept.new_database().rpartition("/")[2]
    try:
        async with holdfast.connect(f"mariadb://127.0.0.1:{proxy.port}/{database}") as locks:
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


async def test_a_request_that_arrives_after_it_was_given_up_is_refused(kept: MariaServer) -> None:
    proxy = Proxy(kept.port)
    database = kept.new_database().rpartition("/")[2]
    try:
        async with holdfast.connect(f"mariadb://127.0.0.1:{proxy.port}/{database}") as locks:
            await (await locks.lock("warm").acquire()).release()
            proxy.about, proxy.keep_once, proxy.refuse = b"holdfast_acquire", True, True
            with pytest.raises(holdfast.BackendUnavailable):
                await locks.lock("x").acquire(timeout=0.5)
            proxy.refuse = False

            async def marked() -> bool:
                with kept.connect(database=database) as connection, connection.cursor() as cursor:
                    cursor.execute("SELECT 1 FROM holdfast_entry WHERE place < 0")
                    return cursor.fetchone() is not None

            await eventually(marked)  # what is owed was sent, ahead of the request itself
            proxy.let_go()
            assert await locks.list() == []
    finally:
        proxy.close()


async def test_a_request_that_arrives_after_its_copy_was_granted_and_freed_is_refused(
    kept: MariaServer,
) -> None:
    proxy = Proxy(kept.port)
    database = kept.new_database().rpartition("/")[2]
    try:
        async with holdfast.connect(f"mariadb://127.0.0.1:{proxy.port}/{database}") as locks:
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
    kept: MariaServer,
) -> None:
    proxy = Proxy(kept.port)
    url = kept.new_database()
    database = url.rpartition("/")[2]
    try:
        async with (
            holdfast.connect(url) as others,
            holdfast.connect(f"mariadb://127.0.0.1:{proxy.port}/{database}") as locks,
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
    kept: MariaServer,
) -> None:
    proxy = Proxy(kept.port)
    database = kept.new_database().rpartition("/")[2]
    try:
        async with holdfast.connect(f"mariadb://127.0.0.1:{proxy.port}/{database}") as locks:
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


async def test_answers_in_single_bytes_do_not_outlast_a_deadline(kept: MariaServer) -> None:
    proxy = Proxy(kept.port)
    database = kept.new_database().rpartition("/")[2]
    try:
        async with holdfast.connect(f"mariadb://127.0.0.1:{proxy.port}/{database}") as locks:
            proxy.pieces = 1
            await (await locks.lock("x").acquire()).release()
    finally:
        proxy.close()


async def test_killed_connections_are_replaced(kept: MariaServer) -> None:
    url = kept.new_database()
    database = url.rpartition("/")[2]
    async with holdfast.connect(url) as locks, holdfast.connect(url) as others:
        lease = await locks.lock("x").acquire()
        waiter = Job(others.lock("x").acquire)
        await waits(locks)
        with kept.connect() as connection, connection.cursor() as cursor:
            cursor.execute(
                "SELECT id FROM information_schema.processlist WHERE db = %s", [database]
            )
            for (number,) in cursor.fetchall():
                with suppress(pymysql.Error):
                    cursor.execute(f"KILL {number}")
        await lease.renew()
        await lease.release()
        second = await waiter.result()
        assert second.token > lease.token


async def test_a_row_that_is_locked_for_long_is_waited_for_and_given_up(kept: MariaServer) -> None:
    url = kept.new_database()
    async with holdfast.connect(url) as locks:
        await (await locks.lock("x").acquire()).release()
        with kept.connect(database=url.rpartition("/")[2]) as connection:
            with connection.cursor() as cursor:
                cursor.execute("SELECT * FROM holdfast_lock WHERE name LIKE '%x' FOR UPDATE")
            with pytest.raises(holdfast.LockError):
                await locks.lock("x").acquire(timeout=0.7)
            job = Job(locks.lock("x").acquire)
            connection.rollback()
            await (await job.result()).release()
        assert await locks.list() == []


async def test_a_deadlock_is_tried_again(kept: MariaServer) -> None:
    """A stranger holds the lock's row and then wants our entry, which our release has locked."""
    url = kept.new_database()
    async with holdfast.connect(url) as locks:
        lease = await locks.lock("x").acquire()
        with kept.connect(database=url.rpartition("/")[2]) as connection:
            with connection.cursor() as cursor:
                # It has changed more rows than we have, so we are the one that is given up.
                cursor.execute("CREATE TABLE ballast (id INT PRIMARY KEY) ENGINE = InnoDB")
                cursor.execute("INSERT INTO ballast SELECT seq FROM seq_1_to_1000")
                cursor.execute("SELECT * FROM holdfast_lock WHERE name LIKE '%x' FOR UPDATE")

                async def release() -> object:
                    return await lease.release()

                job = Job(release)

                async def blocked() -> bool:
                    await pause(
                        0.15
                    )  # the server renews this table when nobody has read it for 0.1 s
                    cursor.execute(
                        "SELECT 1 FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'"
                    )
                    return cursor.fetchone() is not None

                await eventually(blocked)
                cursor.execute("SELECT * FROM holdfast_entry FOR UPDATE")
                assert len(cursor.fetchall()) == 1
            connection.rollback()
            assert await job.result() is True
        assert await locks.list() == []


async def test_a_read_only_server_is_unavailable_and_says_why(server: MariaServer) -> None:
    async with holdfast.connect(server.url) as locks:
        lease = await locks.lock("x", ttl=60.0).acquire()
        with server.connect() as connection, connection.cursor() as cursor:
            cursor.execute("SET GLOBAL read_only = 1")
            # Also for a user who could write all the same.
            with pytest.raises(holdfast.BackendUnavailable, match="read-only"):
                await locks.lock("y").acquire(timeout=0.5)
            cursor.execute("SET GLOBAL read_only = 0")
        assert await lease.release() is True


async def test_too_many_connections_are_said_plainly(server: MariaServer) -> None:
    async with holdfast.connect(server.url) as locks:
        await (await locks.lock("x").acquire()).release()
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SET GLOBAL max_connections = 10")
    crowd = []
    with suppress(pymysql.Error):
        while True:
            crowd.append(server.connect())
    try:
        with pytest.raises(holdfast.BackendUnavailable, match="Too many connections"):
            await holdfast.connect(server.url).lock("x").acquire(timeout=0.5)
    finally:
        for connection in crowd:
            connection.close()


async def test_a_revoked_permission_is_said_plainly(kept: MariaServer) -> None:
    url = kept.new_database()
    database = url.rpartition("/")[2]
    async with holdfast.connect(url) as locks:
        await (await locks.lock("x").acquire()).release()
    with kept.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE USER poor_{database} IDENTIFIED BY 's3cret'")
        poor = url.replace("//", f"//poor_{database}:s3cret@")
        with pytest.raises(holdfast.ConfigError, match="credentials") as caught:
            async with holdfast.connect(poor):
                pass
        cursor.execute(f"GRANT SELECT, INSERT, UPDATE ON {database}.* TO poor_{database}")
        with pytest.raises(holdfast.ConfigError, match=r"permission.*execute") as denied:
            async with holdfast.connect(poor) as locks:
                await locks.lock("x").acquire(timeout=0.5)
    for error in (caught, denied):
        assert type(error.value) is holdfast.ConfigError
        assert "poor_" not in str(error.value)
        assert "s3cret" not in str(error.value)


async def test_a_wrong_password_is_not_shown(kept: MariaServer) -> None:
    url = kept.new_database().replace("//", "//nobody:s3cret@")
    with pytest.raises(holdfast.ConfigError, match="credentials") as caught:
        async with holdfast.connect(url):
            pass
    assert "s3cret" not in str(caught.value)
    assert "nobody" not in str(caught.value)


async def test_dropped_tables_are_said_plainly(kept: MariaServer) -> None:
    url = kept.new_database()
    async with holdfast.connect(url) as locks:
        lease = await locks.lock("x", ttl=1.0).acquire()
        with kept.connect(database=url.rpartition("/")[2]) as connection:
            connection.cursor().execute("DROP TABLE holdfast_entry, holdfast_lock, holdfast_store")
        with pytest.raises(holdfast.BackendUnavailable, match="dropped"):
            await locks.lock("y").acquire(timeout=1.0)
        assert await lease.wait_lost(timeout=10.0) is True
    async with holdfast.connect(url) as locks:
        second = await locks.lock("x").acquire()
        assert second.token > lease.token


async def test_a_full_table_is_no_lock_and_says_why(server: MariaServer) -> None:
    async with holdfast.connect(server.url) as locks:
        await (await locks.lock("x").acquire()).release()
        with server.connect() as connection, connection.cursor() as cursor:
            cursor.execute(
                "CREATE TRIGGER full BEFORE INSERT ON holdfast_entry FOR EACH ROW "
                "SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = 1114, MESSAGE_TEXT = 'The table is full'"
            )
        with pytest.raises(holdfast.BackendUnavailable, match="no room"):
            await locks.lock("x").acquire(timeout=1.0)
        assert await locks.list() == []
