"""Floors as pure code, and where they are kept: how they rise, end, and are reset on record."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import redis

import holdfast
from fences.sql_sites import MariaSite, PostgresSite, SqlSite
from holdfast.fences import FileFence, MemoryFence, RedisFence, SqlFence
from holdfast.fences.floors import Floor, own, raised, reset, unknown
from holdfast.fences.rules import Credential, Mark
from stores import redis_server

LEADER, OTHER = "redis:a/leader", "redis:a/other"


def of(lock: str, reader: bool = False) -> Credential:
    return Credential(1, lock, reader)


def test_a_holder_of_long_standing_has_a_floor_of_its_own() -> None:
    known = raised({}, [Mark(200, OTHER)], [Mark(100, LEADER)])
    assert unknown(known, of(LEADER)) == Mark(0)
    assert unknown(known, of(OTHER)) == Mark(200)
    assert unknown(known, of("redis:a/third")) == Mark(200)
    # Its own marks raise it; those of others do not.
    known = raised(known, [Mark(90, LEADER), Mark(300, OTHER)], [Mark(100, LEADER)])
    assert unknown(known, of(LEADER)) == Mark(90)
    # When no mark of it is left, it is measured by what counts for all.
    known = raised(known, [Mark(100, LEADER)], [])
    assert unknown(known, of(LEADER)) == Mark(300)
    assert list(known) == ["redis:a"]


def test_only_locks_that_need_one_have_a_floor_of_their_own() -> None:
    living = [Mark(201 + n, f"redis:a/{n}") for n in range(1000)]
    assert list(raised({}, [Mark(200, OTHER)], living)) == ["redis:a"]
    assert list(raised({}, [Mark(200, OTHER)], [Mark(100, "etcd:a/x"), Mark(7)])) == ["redis:a"]


def test_a_bare_number_that_was_pruned_does_not_shut_out_a_holder_either() -> None:
    known = raised({"redis:a": Floor(50)}, [Mark(200)], [Mark(100, LEADER)])
    assert unknown(known, of(LEADER)) == Mark(50)
    assert unknown(known, of(OTHER)) == Mark(200)


def test_readers_and_writers_have_floors_of_their_own() -> None:
    known = raised({}, [Mark(33, LEADER, 35)], [])
    assert unknown(known, of(LEADER)) == Mark(33, "", 35)
    assert unknown(known, of("")) == Mark(33, "", 35)


def test_what_a_person_has_set_stays() -> None:
    known, were = reset({"": Floor(10**15)}, LEADER, 40)
    assert were == [(LEADER, Floor(10**15))]
    assert unknown(known, of(LEADER)) == Mark(40)
    known = raised(known, [Mark(50, LEADER), Mark(60, OTHER)], [])
    assert unknown(known, of(LEADER)) == Mark(50)
    assert unknown(known, of(OTHER)) == Mark(10**15)
    assert reset(known, None, 0) == ({}, list(known.items()))
    assert unknown(reset(known, None, 7)[0], of(OTHER)) == Mark(7)


@pytest.fixture(params=[SqlSite, PostgresSite, MariaSite])
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    made = request.param(tmp_path)
    yield made
    made.close()


class Slot:
    """A lease of a semaphore's slot, whose realm is its own."""

    kind = "semaphore"
    shared = True
    name = "pool"
    owner = "o"
    lock_id = f"redis:{'a' * 40}/pool"

    def __init__(self, slot: int) -> None:
        self.slot = slot
        self.token = 1000 + slot


@pytest.mark.parametrize("lenient", [False, True])
def test_floors_of_many_slots(site: SqlSite, lenient: bool) -> None:
    """300 floors are some 18 KB. A database that is told to be lenient would cut them off."""
    connection = site.connection()
    if lenient and isinstance(site, MariaSite):
        site.execute(connection, "SET SESSION sql_mode = ''")
    for slot in range(300):
        site.fence.guard(connection, f"x{slot}", Slot(slot))
    connection.commit()
    assert site.prune() == 300
    assert site.prune() == 0
    with pytest.raises(holdfast.StaleToken, match="1007"):
        site.write("x7", "late", Tokened(7, 1006))
    site.write("x7", "a", Tokened(7, 1007))
    site.verify()


class Tokened(Slot):
    def __init__(self, slot: int, token: int) -> None:
        super().__init__(slot)
        self.token = token


@pytest.mark.parametrize("lenient", [False, True])
def test_floors_that_do_not_fit_are_not_lost(tmp_path: Path, lenient: bool) -> None:
    """A table of an earlier version, or of somebody's own making; and an application that commits
    although prune has failed."""
    site = MariaSite(tmp_path)
    connection = site.connection()
    site.execute(connection, f"ALTER TABLE {site.fences} MODIFY lock_id VARBINARY(200) NOT NULL")
    if lenient:
        site.execute(connection, "SET SESSION sql_mode = ''")
    for slot in range(20):
        site.fence.guard(connection, f"x{slot}", Slot(slot))
    connection.commit()
    with pytest.raises(Exception, match="lock_id"):
        site.fence.prune(connection, 1e-6)
    connection.commit()
    assert site.highest("x7") == 1007
    with pytest.raises(holdfast.StaleToken):
        site.write("x7", "late", Tokened(7, 1006))
    site.write("new", "a", Tokened(7, 1006))
    again = SqlFence(connection, table=site.fences)  # which makes the column large enough
    assert again.prune(connection, 1e-6) == 21
    connection.commit()
    with pytest.raises(holdfast.StaleToken):
        site.write("x7", "late", Tokened(7, 1006))
    site.close()


def set_floors(site: SqlSite, contents: str) -> None:
    doubled = contents.replace("{", "{{").replace("}", "}}")  # for its format()
    site.execute(
        site.connection(), f"UPDATE {site.fences} SET lock_id = '{doubled}' WHERE resource = ''"
    )


def test_a_table_of_an_earlier_version_gets_the_new_column(site: SqlSite) -> None:
    connection = site.connection()
    site.write("x", "a", 34)
    site.execute(connection, f"ALTER TABLE {site.fences} DROP COLUMN reader")
    floors = json.dumps({"": 50})
    set_floors(site, floors)
    connection.commit()
    fence = SqlFence(connection, table=site.fences)
    with pytest.raises(holdfast.StaleToken, match="34"):
        fence.guard(connection, "x", 33)
    connection.rollback()
    with pytest.raises(holdfast.StaleToken, match="50"):
        fence.guard(connection, "y", Tokened(0, 49))
    connection.rollback()


def test_resets_of_floors_are_on_record(tmp_path: Path, site: SqlSite) -> None:
    memory, file = MemoryFence(), FileFence()
    memory.guard("x", 50)
    file.write(tmp_path / "x", "a", 50)
    assert (memory.prune(1e-9), file.prune(tmp_path, 1e-9)) == (1, 1)
    memory.reset_floors(by="ann")
    ((_, by, resource, mark),) = memory.resets
    assert (by, resource, mark.highest) == ("ann", "", 50)
    file.reset_floors(tmp_path, by="ann", lock="redis:a/x")
    kept = json.loads((tmp_path / ".holdfast-floors.fence").read_text())
    assert kept["floors"] == {"": [50, 0, False], own("redis:a/x"): [0, 0, True]}
    ((entry),) = kept["resets"]
    assert (entry["by"], entry["of"], entry["floor"][0]) == ("ann", "redis:a/x", 50)
    site.write("x", "a", 50)
    assert site.prune() == 1
    site.reset_floors()
    (row,) = site.execute(
        site.connection(), f"SELECT by_whom, resource, token FROM {site.fences}_resets"
    )
    assert [str(value.decode() if isinstance(value, bytes) else value) for value in row] == [
        "a test",
        "",
        "50",
    ]
    redis_server()("FLUSHALL")
    with closing(redis.Redis(port=redis_server().port, decode_responses=True)) as client:
        fence = RedisFence(client)
        fence.set("x", "a", 50)
        client.set("{x}:holdfast-fence", "50/0 1 ")
        assert fence.prune(60) == 1
        fence.reset_floors(by="ann", lock="redis:a/x")
        told = json.loads(client.lrange("holdfast-fence-resets", 0, -1)[0])
        assert (told["by"], told["of"], told["floor"][0]) == ("ann", "redis:a/x", 50)


@pytest.mark.parametrize("lock", ["", "a\nb", 7])
def test_a_reset_of_floors_names_a_lock_or_none(lock: Any) -> None:
    with pytest.raises(holdfast.ConfigError):
        MemoryFence().reset_floors(by="ann", lock=lock)


def test_poisoned_floors_are_found_by_verify(tmp_path: Path, site: SqlSite) -> None:
    """As an earlier version has left them behind."""
    poison = json.dumps({"": 2**63 - 1})
    (tmp_path / ".holdfast-floors.fence").write_text(poison)
    with pytest.raises(holdfast.GuaranteeError, match="reset_floors"):
        FileFence().verify(tmp_path)
    FileFence().reset_floors(tmp_path, by="ann")
    FileFence().verify(tmp_path)
    connection = site.connection()
    set_floors(site, poison)
    connection.commit()
    with pytest.raises(holdfast.StaleToken):
        site.write("new", "a", 34)
    with pytest.raises(holdfast.GuaranteeError, match="reset_floors"):
        site.verify()
    site.reset_floors()
    site.verify()
    site.write("new", "a", 34)
    redis_server()("FLUSHALL")
    with closing(redis.Redis(port=redis_server().port)) as client:
        fence = RedisFence(client)
        client.hset("holdfast-fence-floors", mapping={"": str(2**63 - 1), "*": str(2**63 - 1)})
        for token in (34, Slot(3)):
            with pytest.raises(holdfast.StaleToken):
                fence.set("new", "a", token)
        with pytest.raises(holdfast.GuaranteeError, match="reset_floors"):
            fence.verify()
        fence.reset_floors(by="ann")
        fence.verify()
        fence.set("new", "a", 34)


def test_a_lenient_mariadb_does_not_cut_tokens_off(tmp_path: Path) -> None:
    site = MariaSite(tmp_path)
    connection = site.connection()
    own_table = f"{site.values}_own"
    site.execute(connection, "SET SESSION sql_mode = ''")
    site.execute(
        connection, f"CREATE TABLE {own_table} (id INT, n INT, fencing_token INT NOT NULL)"
    )
    site.execute(connection, f"INSERT INTO {own_table} VALUES (1, 1, 0)")
    connection.commit()
    for table in (own_table, f"app.{own_table}"):
        with pytest.raises(holdfast.GuaranteeError, match=r"int.*BIGINT"):
            site.fence.update(connection, table, {"n": 2}, {"id": 1}, 10**15)
    with pytest.raises(holdfast.GuaranteeError, match=r"int.*BIGINT"):
        site.fence.verify(connection, own_table)
    site.execute(connection, f"ALTER TABLE {own_table} MODIFY fencing_token BIGINT NOT NULL")
    site.fence.update(connection, own_table, {"n": 2}, {"id": 1}, 10**15)
    connection.commit()
    site.fence.verify(connection, own_table)
    site.execute(connection, f"ALTER TABLE {site.fences} MODIFY token INT NOT NULL")
    with pytest.raises(holdfast.GuaranteeError, match="column token"):
        site.verify()
    site.close()


def test_a_column_of_sqlite_that_compares_text_is_found(tmp_path: Path) -> None:
    site = SqlSite(tmp_path)
    connection = site.connection()
    connection.execute("CREATE TABLE own (id INTEGER, n INTEGER, fencing_token TEXT NOT NULL)")
    connection.execute("INSERT INTO own VALUES (1, 1, '9')")
    connection.commit()
    with pytest.raises(holdfast.GuaranteeError, match=r"TEXT.*BIGINT"):
        site.fence.update(connection, "own", {"n": 2}, {"id": 1}, 10)
    site.close()


@pytest.mark.parametrize("make", [PostgresSite, MariaSite])
def test_a_look_at_the_highest_token_waits_for_nobody(make: Any, tmp_path: Path) -> None:
    """It takes no lock, so a writer who has not committed does not hold it up, nor it a writer. And it
    needs no more than SELECT."""
    site = make(tmp_path)
    site.write("x", "a", 33)
    writer, looker = site.connect(), site.connect()
    site._all += [writer, looker]
    if make is MariaSite:
        site.execute(looker, "SET SESSION innodb_lock_wait_timeout = 1")
        site.execute(writer, "SET SESSION innodb_lock_wait_timeout = 1")
        site.execute(looker, "SET SESSION TRANSACTION READ ONLY")
    else:
        site.execute(looker, "SET lock_timeout = 100")
        site.execute(writer, "SET lock_timeout = 100")
        site.execute(looker, "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY")
        looker.commit()
        writer.commit()
    site.fence.guard(writer, "x", 34)
    assert site.fence.highest(looker, "x") == 33
    writer.commit()
    looker.rollback()
    assert site.fence.highest(looker, "x") == 34
    site.fence.guard(writer, "x", 35)  # while the other transaction is open
    writer.rollback()
    site.close()
