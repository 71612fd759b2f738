"""Tables and procedures that are not all there, or not all ours: what the next manager does then."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

import holdfast
from holdfast.chaos.servers.mariadb import MariaServer
from holdfast.clock import system_clock
from holdfast.stores.mysql import schema
from holdfast.stores.mysql.connection import MysqlConnection
from holdfast.stores.mysql.failures import ROUTINE_EXISTS, refusal
from holdfast.stores.sql.failures import Lost
from stores import mariadb_server
from worlds.threads import Job

LAST_PROCEDURE = list(schema.procedures())[-1]


@pytest.fixture
def kept() -> MariaServer:
    """Returns the server of the whole run, which nobody hurts."""
    return mariadb_server()


def run(kept: MariaServer, url: str, *statements: str) -> tuple[Any, ...]:
    """Runs statements in a session of its own; returns the rows of the last one."""
    with (
        kept.connect(database=url.rpartition("/")[2], autocommit=True) as connection,
        connection.cursor() as cursor,
    ):
        for statement in statements:
            cursor.execute(statement)
        rows: tuple[Any, ...] = cursor.fetchall()
        return rows


def replace_by_stubs(kept: MariaServer, url: str) -> None:
    """Puts something else in the place of each procedure, as if an older release had made it."""
    steps = ("DROP PROCEDURE {}", "CREATE PROCEDURE {}() SELECT 'old'")
    run(kept, url, *(step.format(name) for name in schema.procedures() for step in steps))


def stubs(kept: MariaServer, url: str) -> dict[str, bool]:
    """Returns the procedures that are there, and whether each is such a stub."""
    rows = run(
        kept,
        url,
        "SELECT routine_name, routine_definition LIKE '%''old''%' FROM information_schema.routines "
        "WHERE routine_schema = DATABASE()",
    )
    return {name: bool(old) for name, old in rows}


def database_of(locks: holdfast.Locks) -> Any:
    backend: Any = locks._session().backend
    return backend._store.database


def works(url: str) -> None:
    with holdfast.connect(url) as locks:
        lease = locks.lock("x").acquire()
        assert locks.force_release("x") is True
        assert not lease.release()


@pytest.mark.parametrize(
    "lost",
    ["PROCEDURE holdfast_break", f"PROCEDURE {LAST_PROCEDURE}", "TABLE holdfast_audit"],
)
def test_a_new_manager_makes_what_is_missing(kept: MariaServer, lost: str) -> None:
    url = kept.new_database()
    with holdfast.connect(url) as locks:
        lease = locks.lock("x").acquire()
        lease.release()
    run(kept, url, f"DROP {lost}")
    with holdfast.connect(url) as locks:
        second = locks.lock("x").acquire()
        assert second.token > lease.token
        assert locks.force_release("x") is True
    assert stubs(kept, url) == dict.fromkeys(schema.procedures(), False)


def place(steps: list[str], kind: str, number: int) -> int:
    """Returns the place of one of the statements that create something of that kind."""
    return [at for at, text in enumerate(steps) if re.search(rf"(?m)^CREATE.* {kind} ", text)][
        number
    ]


CUTS: dict[str, Callable[[list[str]], int]] = {
    "at the first statement": lambda steps: 0,
    "before the tables": lambda steps: place(steps, "TABLE", 0),
    "after the tables": lambda steps: place(steps, "TABLE", -1) + 1,
    "after the first procedure": lambda steps: place(steps, "PROCEDURE", 0) + 1,
    "at a procedure in the middle": lambda steps: place(steps, "PROCEDURE", 13),
    "at the last procedure": lambda steps: place(steps, "PROCEDURE", -1),
    "after the last procedure": lambda steps: len(steps) - 1,
}


def cut_short(
    database: Any, steps: list[str], at: int, monkeypatch: pytest.MonkeyPatch
) -> list[str]:
    """Installs up to the statement at that place; returns the statements that were run."""
    done: list[str] = []
    real = MysqlConnection.run

    def cut_off(self: MysqlConnection, statement: str, deadline: float) -> Any:
        if statement in steps:
            if len(done) == at:
                raise Lost("it was cut off")
            done.append(statement)
        return real(self, statement, deadline)

    deadline = system_clock().now() + 60.0
    connection = database.connection()
    connection.open(deadline)
    with monkeypatch.context() as patch:
        patch.setattr(MysqlConnection, "run", cut_off)
        with pytest.raises(Lost, match="cut off"):
            database.install(connection, deadline)
    connection.close()
    return done


@pytest.mark.parametrize("cut", CUTS)
def test_an_installation_that_was_cut_off_is_finished_by_the_next_manager(
    kept: MariaServer, monkeypatch: pytest.MonkeyPatch, cut: str
) -> None:
    url = kept.new_database()
    with holdfast.connect(url) as locks:
        database = database_of(locks)
    name = url.rpartition("/")[2]
    run(kept, url, f"DROP DATABASE {name}", f"CREATE DATABASE {name}")
    steps = schema._statements(anew=False)
    at = CUTS[cut](steps)
    assert cut_short(database, steps, at, monkeypatch) == steps[:at]
    works(url)
    assert stubs(kept, url) == dict.fromkeys(schema.procedures(), False)


@pytest.mark.parametrize("in_place", [False, True], ids=["MySQL", "MariaDB"])
@pytest.mark.parametrize("cut", CUTS)
def test_an_upgrade_that_was_cut_off_is_finished_by_the_next_manager(
    kept: MariaServer, monkeypatch: pytest.MonkeyPatch, cut: str, in_place: bool
) -> None:
    """No procedure of the older release is left, though all are there again."""
    url = kept.new_database()
    with holdfast.connect(url) as locks:
        database = database_of(locks)
    replace_by_stubs(kept, url)
    run(kept, url, "DROP TABLE holdfast_change")
    steps = schema._statements(anew=True, in_place=in_place)
    at = CUTS[cut](steps)
    with monkeypatch.context() as patch:
        patch.setattr(schema, "_statements", lambda anew, in_place=False: steps)
        assert cut_short(database, steps, at, monkeypatch) == steps[:at]
    works(url)
    assert stubs(kept, url) == dict.fromkeys(schema.procedures(), False)


@pytest.mark.parametrize("in_place", [False, True], ids=["MySQL", "MariaDB"])
def test_who_is_open_is_not_disturbed_by_others_that_finish_an_installation(
    kept: MariaServer, monkeypatch: pytest.MonkeyPatch, in_place: bool
) -> None:
    """Those that come later find it finished, and do not begin again."""
    url = kept.new_database()
    works(url)
    steps = schema._statements(anew=True, in_place=in_place)
    begun: list[str] = []
    real = MysqlConnection.run

    def noted(self: MysqlConnection, statement: str, deadline: float) -> Any:
        if statement == schema.MODE:
            begun.append(statement)
        return real(self, statement, deadline)

    def use(name: str) -> None:
        with holdfast.connect(url) as locks:
            for _ in range(5):
                (locks.lock(name).acquire()).release()

    monkeypatch.setattr(schema, "_statements", lambda anew, in_place=False: steps)
    monkeypatch.setattr(MysqlConnection, "run", noted)
    for turn in range(1, 4):
        run(kept, url, "DROP PROCEDURE holdfast_break")
        jobs = [Job(use, f"x{number}") for number in range(8)]
        for job in jobs:
            job.result()
        assert len(begun) == turn
    assert stubs(kept, url) == dict.fromkeys(schema.procedures(), False)


def test_an_upgrade_does_not_take_procedures_from_who_is_open(kept: MariaServer) -> None:
    """MariaDB replaces each of them in one step."""
    url = kept.new_database()
    over = False

    def use() -> int:
        turns = 0
        with holdfast.connect(url) as locks:
            while not over:
                (locks.lock("x").acquire()).release()
                turns += 1
        return turns

    works(url)
    user = Job(use)
    for _ in range(5):
        run(kept, url, "DROP PROCEDURE holdfast_break")
        works(url)
    over = True
    assert user.result() > 0


class Refusing:
    """A connection to a server that has no tables yet, on which others make each procedure first."""

    def __init__(self) -> None:
        self.statements: list[str] = []
        self.made = False

    def run(self, statement: str, deadline: float) -> list[tuple[Any, ...]]:
        self.statements.append(statement)
        if "VERSION()" in statement:
            return [("8.0.28", None, 0)]
        if "CREATE PROCEDURE" in statement:
            address: Any = "mysql://h/app"
            raise refusal(ROUTINE_EXISTS, "PROCEDURE holdfast_x already exists", address)
        self.made = self.made or statement == schema.LAST
        if "'holdfast_store'" in statement and self.made:
            return [(1,)]
        return [(schema.FORMAT,)] if "SELECT format" in statement else []


def test_a_procedure_that_another_manager_has_made_meanwhile_is_as_good() -> None:
    """MySQL before 8.0.29 knows no `CREATE PROCEDURE IF NOT EXISTS`."""
    connection: Any = Refusing()
    schema.install(connection, 0.0)
    tried = [text for text in connection.statements if "CREATE PROCEDURE" in text]
    assert tried == list(schema.procedures().values())
    assert connection.made


def test_the_script_replaces_the_procedures_that_are_there(kept: MariaServer) -> None:
    url = kept.new_database()
    database = url.rpartition("/")[2]
    kept.client(schema.script(), database)
    assert stubs(kept, url) == dict.fromkeys(schema.procedures(), False)
    replace_by_stubs(kept, url)
    assert all(stubs(kept, url).values())
    kept.client(schema.script(), database)
    assert stubs(kept, url) == dict.fromkeys(schema.procedures(), False)
    works(url)


def user_of_few_rights(kept: MariaServer, url: str, rights: list[str]) -> str:
    """Returns the URL of a new user who may read and write rows, and has these rights beside."""
    database = url.rpartition("/")[2]
    user = f"few_{database}"
    rows = f"SELECT, INSERT, UPDATE, DELETE ON {database}.*"
    run(kept, url, f"CREATE USER {user}", *(f"GRANT {one} TO {user}" for one in [rows, *rights]))
    return url.replace("//", f"//{user}@")


def calls(url: str, *but: str) -> list[str]:
    """Returns the rights to call each procedure, but for some."""
    database = url.rpartition("/")[2]
    names = [name for name in schema.procedures() if name not in but]
    return [f"EXECUTE ON PROCEDURE {database}.{name}" for name in names]


@pytest.mark.parametrize("each", [False, True])
def test_who_may_only_call_procedures_sees_that_none_is_missing(
    kept: MariaServer, monkeypatch: pytest.MonkeyPatch, each: bool
) -> None:
    url = kept.new_database()
    works(url)
    all_at_once = f"EXECUTE ON {url.rpartition('/')[2]}.*"
    few = user_of_few_rights(kept, url, calls(url) if each else [all_at_once])
    monkeypatch.delattr(schema, "_statements")  # nothing is created
    works(few)


def test_who_may_call_some_procedures_only_uses_those(kept: MariaServer) -> None:
    """It sees no others, and may not create them."""
    url = kept.new_database()
    works(url)
    few = user_of_few_rights(kept, url, calls(url, "holdfast_break"))
    with holdfast.connect(few) as locks:
        locks.lock("x").acquire().release()
        with pytest.raises(holdfast.ConfigError, match=r"permission.*execute"):
            locks.force_release("x")
    assert stubs(kept, url) == dict.fromkeys(schema.procedures(), False)


def test_who_may_not_create_a_table_that_is_missing_is_told(kept: MariaServer) -> None:
    url = kept.new_database()
    works(url)
    few = user_of_few_rights(kept, url, calls(url))
    run(kept, url, "DROP TABLE holdfast_change")
    with pytest.raises(holdfast.ConfigError, match="permission"):
        works(few)
    works(url)
    works(few)
