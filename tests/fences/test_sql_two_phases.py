"""SQLAlchemy's sessions of two phases: prepared, then committed; on MariaDB by XA."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column
from sqlalchemy.pool import NullPool

import holdfast
from holdfast.fences import SqlFence
from stores import mariadb_server, postgres_server

DRIVERS = [
    "mysql+mysqlconnector",
    "mysql+pymysql",
    "postgresql+pg8000",
    "postgresql+psycopg",
    "postgresql+psycopg2",
]
SHORTLY = {"mysql": "SET innodb_lock_wait_timeout = 1", "postgresql": "SET lock_timeout = 1000"}
"""Statements by which a connection gives up a row that it has waited for, for a second."""

DECIDE = {"mysql": "XA COMMIT", "postgresql": "COMMIT PREPARED"}
"""Statements by which anybody commits what is prepared."""


def url_of(name: str) -> str:
    if name.startswith("mysql"):
        return mariadb_server().url.replace("mysql:", f"{name}:")
    return f"{name}://postgres@127.0.0.1:{postgres_server().port}/postgres"


def engine_of(name: str) -> Engine:
    """Returns an engine on an empty table `in_phases`."""
    made = create_engine(url_of(name), poolclass=NullPool)
    with made.begin() as connection:
        connection.execute(text("DROP TABLE IF EXISTS in_phases"))
        connection.execute(text("CREATE TABLE in_phases (id INTEGER PRIMARY KEY)"))
    return made


@pytest.fixture(params=DRIVERS)
def engine(request: pytest.FixtureRequest) -> Engine:
    return engine_of(request.param)


@pytest.fixture(params=["mysql+pymysql", "postgresql+psycopg"])
def each(request: pytest.FixtureRequest) -> Engine:
    """An engine of one driver for each database."""
    return engine_of(request.param)


@pytest.fixture
def lock() -> Iterator[Any]:
    with holdfast.connect("memory://") as locks:
        yield locks.rwlock("book")


def fence_of(engine: Engine) -> SqlFence:
    with engine.connect() as connection:
        return SqlFence(connection, table="fences_in_phases")


def pay(place: Any, number: int) -> Any:
    return place.execute(text(f"INSERT INTO in_phases VALUES ({number})"))


def paid(engine: Engine) -> list[int]:
    with engine.connect() as connection:
        return list(connection.execute(text("SELECT id FROM in_phases ORDER BY id")).scalars())


def waits(engine: Engine, fence: SqlFence, resource: str, token: Any) -> bool:
    """Returns True if a holder of `token` waits at the fence for somebody who has not committed."""
    with engine.connect() as connection:
        connection.execute(text(SHORTLY[engine.name]))
        connection.commit()
        try:
            fence.guard(connection, resource, token)
        except DBAPIError as error:
            assert "timeout" in str(error).lower()  # noqa: PT017 - of the database, not of the fence
            return True
        finally:
            connection.rollback()
    return False


def test_mark_and_write_are_one_transaction(engine: Engine, lock: Any) -> None:
    fence, name = fence_of(engine), f"{engine.driver} invoice"
    late = lock.write().acquire()
    late.release()
    with lock.write() as lease:
        with Session(engine, twophase=True) as session:
            fence.guard(session, name, lease)
            pay(session, 1)
            session.rollback()
            assert fence.highest(session, name) < lease.token
            session.rollback()
        for number in (2, 3):
            with Session(engine, twophase=True) as session, session.begin():
                fence.guard(session, name, lease)
                pay(session, number)
        with Session(engine, twophase=True) as session, session.begin():
            with pytest.raises(holdfast.StaleToken):
                fence.guard(session, name, late)
            session.rollback()
        with (
            Session(engine, twophase=True) as session,
            session.begin(),
            fence.hold(session, name, lease),
        ):
            pay(session, 4)
    assert paid(engine) == [2, 3, 4]


@pytest.mark.parametrize("phase", ["first", "second"])
@pytest.mark.parametrize("role", ["reader", "writer"])
def test_what_is_prepared_keeps_others_out_until_it_is_committed(
    each: Engine, lock: Any, role: str, phase: str
) -> None:
    """In its `second` transaction a reader is known already, and MariaDB gives up shared locks."""
    fence, name = fence_of(each), f"{each.name} {role} in the {phase}"
    with lock.read() if role == "reader" else lock.write() as lease:
        if phase == "second":
            for one in (fence_of(each), fence):  # the row was made by another: that may go again
                with Session(each, twophase=True) as session, session.begin():
                    one.guard(session, name, lease)
        with Session(each, twophase=True) as session:
            fence.guard(session, name, lease)
            pay(session, 1)
            session.prepare()
            assert waits(each, fence, name, lease.token + 1)
            session.commit()
        assert not waits(each, fence, name, lease.token + 1)
    assert paid(each) == [1]


def test_a_holder_that_dies_prepared_keeps_others_out_until_somebody_decides(
    each: Engine, lock: Any
) -> None:
    fence, name = fence_of(each), f"{each.name} left behind"
    with lock.write() as lease:
        session = Session(each, twophase=True)
        fence.guard(session, name, lease)
        pay(session, 1)
        connection = session.connection()
        transaction: Any = connection.get_transaction()
        session.prepare()
        session.invalidate()  # the connection ends, as it does when a process dies
    with lock.write() as newer:
        assert waits(each, fence, name, newer)
        with each.connect().execution_options(isolation_level="AUTOCOMMIT") as other:
            other.exec_driver_sql(f"{DECIDE[each.name]} '{transaction.xid}'")
        assert paid(each) == [1]
        assert not waits(each, fence, name, newer)
        with each.begin() as other:
            assert fence.highest(other, name) == lease.token


class Base(DeclarativeBase):
    """The models of these tests."""


class Here(Base):
    __tablename__ = "in_phases"
    id: Mapped[int] = mapped_column(primary_key=True)


class There(Base):
    __tablename__ = "in_phases_too"
    id: Mapped[int] = mapped_column(primary_key=True)


def test_two_databases_each_with_its_fence(lock: Any) -> None:
    here, there = engine_of("postgresql+psycopg"), engine_of("mysql+pymysql")
    fences = fence_of(here), fence_of(there)
    There.__table__.drop(there, checkfirst=True)  # type: ignore[attr-defined]
    There.__table__.create(there)  # type: ignore[attr-defined]

    def write(lease: Any, number: int) -> None:
        with Session(binds={Here: here, There: there}, twophase=True) as session, session.begin():
            for fence, model in zip(fences, (Here, There), strict=True):
                place = session.connection(bind_arguments={"mapper": model})
                fence.guard(place, "in two databases", lease)
            session.add_all([Here(id=number), There(id=number)])

    late = lock.write().acquire()
    late.release()
    with lock.write() as lease:
        write(lease, 1)
        with pytest.raises(holdfast.StaleToken):
            write(late, 2)
    with Session(there) as session:
        assert [row.id for row in session.query(There)] == paid(here) == [1]


def test_on_sqlite_it_is_refused(tmp_path: Path) -> None:
    engine = create_engine(f"sqlite:///{tmp_path}/app.db", poolclass=NullPool)
    fence = fence_of(engine)
    for session in (Session(engine, twophase=True), Session(binds={Here: engine}, twophase=True)):
        with session, pytest.raises(holdfast.ConfigError, match="SQLite cannot do"):
            fence.guard(session, "x", 34)


@pytest.mark.parametrize("name", ["mysql+asyncmy", "postgresql+asyncpg", "postgresql+psycopg"])
async def test_in_asyncio(name: str, lock: Any) -> None:
    blocking = engine_of(name.replace("asyncmy", "pymysql").replace("asyncpg", "psycopg"))
    engine = create_async_engine(url_of(name), poolclass=NullPool)
    fence, resource = fence_of(blocking), f"{name} in asyncio"
    late = lock.write().acquire()
    late.release()
    with lock.read() as reader:
        for number in (1, 2):
            async with AsyncSession(engine, twophase=True) as session, session.begin():
                await fence.guard(session, resource, reader)
                await pay(session, number)
        async with AsyncSession(engine, twophase=True) as session, session.begin():
            with pytest.raises(holdfast.StaleToken):
                await fence.guard(session, resource, late)
            await session.rollback()
    assert paid(blocking) == [1, 2]
    await engine.dispose()
