"""Rules that a server's defaults, modes and engines, and the clean-up, must not break."""

from __future__ import annotations

from typing import Any

import pytest

from _async.sql_scenes import crowd
from holdfast import aio as holdfast
from holdfast.chaos.servers.mariadb import MariaServer
from worlds.aio import Job, eventually

DAY = 86400 * 1_000_000


@pytest.mark.parametrize(
    "settings",
    [
        ["--transaction-isolation=READ-UNCOMMITTED"],
        ["--transaction-isolation=SERIALIZABLE"],
        ["--autocommit=0", "--completion-type=CHAIN"],
        ["--sql-mode=ANSI,NO_BACKSLASH_ESCAPES", "--sysdate-is-now"],
        ["--default-storage-engine=MyISAM", "--character-set-server=utf16", "--sql-mode="],
        ["--log-bin", "--binlog-format=ROW", "--default-time-zone=+05:45"],
        ["--sql-safe-updates", "--max-join-size=1", "--group-concat-max-len=4"],
    ],
    ids=lambda settings: settings[0].lstrip("-"),
)
async def test_every_default_of_a_server(settings: list[str]) -> None:
    server = MariaServer(*settings, "--innodb-flush-log-at-trx-commit=0")
    try:
        url = server.new_database()
        with server.connect() as connection, connection.cursor() as cursor:
            cursor.execute("SET GLOBAL TRANSACTION READ ONLY")  # a default, which we may change
        await crowd([url] * 4, 5)
    finally:
        server.stop()


@pytest.mark.parametrize(
    "name",
    ["'", '"', "\\", "\\'", "%", "_", "`", "é", "😀", "*/ -- ", "x', 'y", "0x41", "NULL", ","],
)
async def test_no_name_is_part_of_a_statement(kept: MariaServer, name: str) -> None:
    async with holdfast.connect(kept.new_database(), namespace=name, label=name) as locks:
        await locks.lock(name).acquire()
        (state,) = await locks.list()
        assert (state.name, state.holders[0].label.text) == (name, name)


async def test_names_that_differ_in_case_accents_or_blanks_are_different(
    kept: MariaServer,
) -> None:
    names = ["a", "A", "a ", "á", "a\u0301", "\uff41", "ß", "ss"]
    async with holdfast.connect(kept.new_database()) as locks:
        leases = [await locks.lock(name).acquire(timeout=1.0) for name in names]
        assert sorted(state.name for state in await locks.list()) == sorted(names)
        for lease in leases:
            assert await lease.release() is True


async def test_the_longest_names_are_told_apart_by_their_last_letter(kept: MariaServer) -> None:
    space = "n" * 1024
    first, second = "x" * 1024, "x" * 1023 + "y"
    async with holdfast.connect(kept.new_database(), namespace=space) as locks:
        async with locks.lock(first), locks.lock(second):
            waiters = [Job(locks.lock(name).acquire) for name in (first, second)]

            async def both() -> bool:
                return [len(state.waiters) for state in await locks.list()] == [1, 1]

            await eventually(both)
        for waiter in waiters:
            await (await waiter.result()).release()


async def test_many_create_the_tables_at_once(kept: MariaServer) -> None:
    url = kept.new_database()

    async def use(name: str) -> None:
        async with holdfast.connect(url) as locks:
            await (await locks.lock(name).acquire()).release()

    jobs = [Job(use, f"x{number}") for number in range(10)]
    for job in jobs:
        await job.result()


async def test_tables_of_a_later_release_are_refused(kept: MariaServer) -> None:
    url = kept.new_database()
    async with holdfast.connect(url) as locks:
        await (await locks.lock("x").acquire()).release()
    with kept.connect(database=url.rpartition("/")[2], autocommit=True) as connection:
        connection.cursor().execute("UPDATE holdfast_store SET format = 2")
    with pytest.raises(holdfast.ConfigError, match="format 2"):
        async with holdfast.connect(url):
            pass


async def test_procedures_that_stood_beside_fewer_tables_are_replaced(kept: MariaServer) -> None:
    url = kept.new_database()
    async with holdfast.connect(url) as locks:
        await (await locks.lock("x").acquire()).release()
    with (
        kept.connect(database=url.rpartition("/")[2], autocommit=True) as connection,
        connection.cursor() as cursor,
    ):
        cursor.execute("DROP TABLE holdfast_change")
        cursor.execute("DROP PROCEDURE holdfast_acquire")
        cursor.execute("CREATE PROCEDURE holdfast_acquire() SELECT 'old'")
    async with holdfast.connect(url) as locks:
        await (await locks.lock("x").acquire()).release()


async def test_tables_without_transactions_are_refused(kept: MariaServer) -> None:
    url = kept.new_database()
    async with holdfast.connect(url) as locks:
        await (await locks.lock("x").acquire()).release()
    with kept.connect(database=url.rpartition("/")[2]) as connection:
        connection.cursor().execute("ALTER TABLE holdfast_audit ENGINE = MyISAM")
    with pytest.raises(holdfast.ConfigError, match="MyISAM"):
        async with holdfast.connect(url):
            pass


@pytest.mark.parametrize(
    ("setting", "word"),
    [("--enforce-storage-engine=MyISAM", "InnoDB"), ("--binlog-format=STATEMENT", "ROW or MIXED")],
)
async def test_a_server_that_cannot_do_it_is_refused(setting: str, word: str) -> None:
    server = MariaServer(setting, "--log-bin")
    try:
        with pytest.raises(holdfast.ConfigError, match=word):
            async with holdfast.connect(server.url) as locks:
                await locks.lock("x").acquire()
    finally:
        server.stop()


async def test_who_may_not_create_tables_uses_those_of_the_script(kept: MariaServer) -> None:
    from holdfast.stores.mysql import schema

    url = kept.new_database()
    database = url.rpartition("/")[2]
    kept.client(schema.script(), database)
    kept.client(schema.script(), database)  # again, without harm
    with kept.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE USER app_{database}")
        cursor.execute(
            f"GRANT SELECT, INSERT, UPDATE, DELETE, EXECUTE ON {database}.* TO app_{database}"
        )
    async with holdfast.connect(url.replace("//", f"//app_{database}@")) as locks:
        lease = await locks.lock("x").acquire()
        assert await locks.force_release("x") is True
        assert not await lease.release()


async def test_stale_names_are_cleaned_away_and_tokens_stay_above_them(kept: MariaServer) -> None:
    url = kept.new_database()
    async with holdfast.connect(url) as locks:
        lease = await locks.lock("x").acquire()
        await lease.release()
        held = await locks.lock("y").acquire()
        backend: Any = (await locks._session()).backend
        with (
            kept.connect(database=url.rpartition("/")[2], autocommit=True) as connection,
            connection.cursor() as cursor,
        ):
            cursor.execute("UPDATE holdfast_lock SET touched = touched - %s", [2 * DAY])
            for _ in range(2):
                backend._store.call("clean", [1000, 200, DAY], backend.clock.now() + 10)
            cursor.execute("SELECT name FROM holdfast_lock")
            assert cursor.fetchall() == ((b"holdfast\x1fy",),)
            cursor.execute("SELECT floor FROM holdfast_store")
            ((floor,),) = cursor.fetchall()
            assert lease.token <= floor < held.token
            # As if a clock that was far ahead had made the tokens of what was cleaned away.
            cursor.execute("UPDATE holdfast_store SET floor = floor + %s", [DAY])
        assert (await locks.inspect("x")).token == floor + DAY
        later = await locks.lock("x").acquire()
        assert later.token > floor + DAY


async def test_marks_of_those_who_gave_up_are_cleaned_away(kept: MariaServer) -> None:
    url = kept.new_database()
    async with holdfast.connect(url) as locks:
        backend: Any = (await locks._session()).backend
        store = backend._store
        for owner in ("one", "two"):
            store.doubt(owner)
            assert store.release("x", owner, backend.clock.now() + 10) is False
        with (
            kept.connect(database=url.rpartition("/")[2], autocommit=True) as connection,
            connection.cursor() as cursor,
        ):
            cursor.execute("UPDATE holdfast_entry SET place = -1 WHERE owner = 'one'")
            store.call("clean", [1000, 200, DAY], backend.clock.now() + 10)
            cursor.execute("SELECT owner FROM holdfast_entry")
            assert cursor.fetchall() == ((b"two",),)


async def test_a_limit_of_rows_is_not_taken_for_a_strange_server(kept: MariaServer) -> None:
    url = kept.new_database()
    with kept.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SET GLOBAL sql_select_limit = 1")
        try:
            async with holdfast.connect(url) as locks:
                for name in "ab":
                    await locks.lock(name).acquire()
                assert [state.name for state in await locks.list()] == ["a", "b"]
                assert not [one for one in await locks.doctor() if one.level == "wrong"]
        finally:
            cursor.execute("SET GLOBAL sql_select_limit = DEFAULT")
