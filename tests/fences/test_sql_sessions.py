"""SQLAlchemy's sessions in place of a connection: blocking and asyncio, plain and scoped."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.exc import InvalidRequestError
from sqlalchemy.ext.asyncio import async_scoped_session, async_sessionmaker, create_async_engine
from sqlalchemy.orm import (
    DeclarativeBase,
    Mapped,
    Session,
    mapped_column,
    scoped_session,
    sessionmaker,
)

import holdfast
from holdfast import aio
from holdfast.fences import SqlFence
from stores import postgres_server


@pytest.fixture(params=["sqlite", "postgresql"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    """An engine of SQLAlchemy's, on an empty table `paid`."""
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path}/app.db"
    else:
        url = f"postgresql+psycopg://postgres@127.0.0.1:{postgres_server().port}/postgres"
    made = create_engine(url)
    with made.begin() as connection:
        connection.execute(text("DROP TABLE IF EXISTS paid"))
        connection.execute(text("CREATE TABLE paid (id INTEGER)"))
    yield made
    made.dispose()


def fence_of(engine: Engine) -> SqlFence:
    with engine.connect() as connection:
        return SqlFence(connection, table="fences_of_sessions")


def pay(session: Any) -> Any:
    return session.execute(text("INSERT INTO paid VALUES (42)"))


def paid(engine: Engine) -> int:
    with engine.connect() as connection:
        return int(connection.execute(text("SELECT count(*) FROM paid")).scalar_one())


@pytest.mark.parametrize("scoped", [False, True])
def test_mark_and_write_are_one_transaction_of_the_session(engine: Engine, scoped: bool) -> None:
    maker = sessionmaker(engine)
    sessions: Any = scoped_session(maker) if scoped else maker
    resource = f"{engine.name} invoice {scoped}"
    with holdfast.connect("memory://") as locks:
        fence = fence_of(engine)
        lock = locks.lock(resource, protects=fence)
        late = lock.acquire()
        late.release()
        with lock as lease, sessions() as session:
            lease.guard(session, resource)
            pay(session)
            session.rollback()
            assert paid(engine) == 0
            with session.begin():
                lease.guard(session, resource)
                pay(session)
            assert paid(engine) == 1
            with session.begin(), pytest.raises(holdfast.StaleToken):
                late.guard(session, resource)
            assert paid(engine) == 1
            with session.begin(), lease.guard.hold(session, resource):
                pay(session)
            assert paid(engine) == 2
            with pytest.raises(holdfast.GuaranteeError), lease.guard.hold(session, resource):
                session.commit()
            session.rollback()
            assert fence.highest(session, resource) == lease.token


@pytest.mark.parametrize("scoped", [False, True])
async def test_in_asyncio(engine: Engine, scoped: bool) -> None:
    driver = {"sqlite": "sqlite+aiosqlite", "postgresql": "postgresql+psycopg"}[engine.name]
    many = create_async_engine(engine.url.set(drivername=driver))
    maker: Any = async_sessionmaker(many)
    sessions = async_scoped_session(maker, scopefunc=lambda: 1) if scoped else maker
    resource = f"{engine.name} asynchronous invoice {scoped}"
    async with aio.connect("memory://") as locks:
        fence = fence_of(engine)
        lock = locks.lock(resource, protects=fence)
        late = await lock.acquire()
        await late.release()
        async with lock as lease, sessions() as session:
            async with session.begin():
                await lease.guard(session, resource)
                await pay(session)
            assert paid(engine) == 1
            async with session.begin():
                with pytest.raises(holdfast.StaleToken):
                    await late.guard(session, resource)
            assert paid(engine) == 1
            async with session.begin(), lease.guard.hold(session, resource):
                await pay(session)
            assert paid(engine) == 2
            assert await fence.highest(session, resource) == lease.token
        if scoped:
            await sessions.remove()
    await many.dispose()


def test_an_engine_or_a_session_that_commits_each_statement_is_refused(tmp_path: Path) -> None:
    engine = create_engine(f"sqlite:///{tmp_path}/app.db", isolation_level="AUTOCOMMIT")
    with Session(engine) as session:
        with pytest.raises(holdfast.ConfigError, match="begin a transaction"):
            SqlFence().guard(session, "x", 1)
        with pytest.raises(holdfast.ConfigError, match="takes a connection"):
            SqlFence(session)
    with pytest.raises(holdfast.ConfigError, match="takes a connection"):
        SqlFence().guard(engine, "x", 1)
    engine.dispose()


class Base(DeclarativeBase):
    """The models of these tests."""


class Paid(Base):
    __tablename__ = "paid"
    id: Mapped[int] = mapped_column(primary_key=True)


@pytest.mark.parametrize("scoped", [False, True])
def test_a_session_with_several_databases_is_refused(
    engine: Engine, tmp_path: Path, scoped: bool
) -> None:
    other = create_engine(f"sqlite:///{tmp_path}/other.db")
    fence = fence_of(engine)
    maker = sessionmaker(other, binds={Paid: engine})
    sessions: Any = scoped_session(maker) if scoped else maker
    session = sessions if scoped else maker()
    resource = f"{engine.name} of several {scoped}"
    for verb in (fence.guard, lambda *all: fence.hold(*all).__enter__()):
        with pytest.raises(holdfast.ConfigError, match="several databases"):
            verb(session, resource, 34)
    named = session.connection(bind_arguments={"mapper": Paid})
    fence.guard(named, resource, 34)
    pay(named)
    session.commit()
    with engine.connect() as connection:
        assert fence.highest(connection, resource) == 34
    assert paid(engine) == 1
    session.close()
    other.dispose()


def test_a_session_whose_models_all_have_one_database_is_guarded_there(engine: Engine) -> None:
    fence = fence_of(engine)
    with Session(binds={Paid: engine}) as session:
        fence.guard(session, f"{engine.name} of one", 34)
        session.add(Paid(id=42))
        session.commit()
        with pytest.raises(holdfast.StaleToken):
            fence.guard(session, f"{engine.name} of one", 33)
        session.rollback()
    assert paid(engine) == 1


async def test_in_asyncio_too_a_session_with_several_databases_is_refused(tmp_path: Path) -> None:
    one, other = (create_async_engine(f"sqlite+aiosqlite:///{tmp_path}/{name}.db") for name in "ab")
    async with async_sessionmaker(one, binds={Paid: other})() as session:
        with pytest.raises(holdfast.ConfigError, match="several databases"):
            await SqlFence().guard(session, "x", 34)
    async with async_sessionmaker(binds={Paid: other})() as session:
        async with other.connect() as connection:
            fence = await SqlFence().install(connection)
        async with session.begin():
            await fence.guard(session, "x", 34)
            assert await fence.highest(session, "x") == 34
    for engine in (one, other):
        await engine.dispose()


def test_a_savepoint_and_a_session_that_begins_nothing_by_itself(engine: Engine) -> None:
    fence, name = fence_of(engine), f"{engine.name} by hand"
    with Session(engine, autobegin=False) as session:
        with pytest.raises(InvalidRequestError):
            fence.guard(session, name, 34)
        with session.begin():
            fence.guard(session, name, 34)
            with session.begin_nested() as inner:
                pay(session)
                inner.rollback()
            pay(session)
        with session.begin(), pytest.raises(holdfast.StaleToken):
            fence.guard(session, name, 33)
    assert paid(engine) == 1


def test_a_guard_that_the_end_of_a_savepoint_would_commit_is_refused(engine: Engine) -> None:
    """Python's sqlite3 begins no transaction for a savepoint, so its end lets everybody in."""
    fence, name = fence_of(engine), f"{engine.name} nested"
    with Session(engine) as session, session.begin(), session.begin_nested():
        if engine.name == "sqlite":
            with pytest.raises(holdfast.ConfigError, match=r"guard before begin_nested"):
                fence.guard(session, name, 34)
        else:
            fence.guard(session, name, 34)
