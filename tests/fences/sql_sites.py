"""Real databases, by each way to connect to them. A write is: begin, guard, change a row, commit."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import zlib
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from fences.sites import Site, die
from holdfast.fences import SqlFence, Token
from stores import mariadb_server, postgres_server

UPSERT = {
    "qmark": "INSERT INTO {t} VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value",
    "postgres": "INSERT INTO {t} VALUES (%s, %s) "
    "ON CONFLICT (name) DO UPDATE SET value = excluded.value",
    "mysql": "INSERT INTO {t} VALUES (%s, %s) ON DUPLICATE KEY UPDATE value = VALUES(value)",
}


class SqlSite(Site):
    """By DB-API. Each thread has a connection of its own."""

    writes = False
    upsert = UPSERT["qmark"]
    select = "SELECT value FROM {t} WHERE name = ?"
    column = "TEXT"
    program = "import sqlite3 as driver"

    def __init__(self, folder: Path, single_use: bool = False) -> None:
        super().__init__(folder, single_use)
        number = zlib.crc32(str(folder).encode())
        self.fences, self.values = f"fences_{number}", f"values_{number}"
        self._mine = threading.local()
        self._all: list[Any] = []
        connection = self.connection()
        self.fence = self.make(connection)
        table = f"CREATE TABLE IF NOT EXISTS {self.values} (name {self.column}, value TEXT)"
        self.execute(
            connection, table.replace("name " + self.column, f"name {self.column} PRIMARY KEY")
        )
        connection.commit()

    def make(self, connection: Any) -> SqlFence:
        return SqlFence(connection, table=self.fences, single_use=self.single_use)

    def address(self) -> str:
        """The arguments of the driver's connect(), as source."""
        return repr(str(self.folder / "app.db"))

    def connect(self) -> Any:
        return sqlite3.connect(self.folder / "app.db", timeout=30, check_same_thread=False)

    def connection(self) -> Any:
        if not hasattr(self._mine, "connection"):
            self._mine.connection = self.connect()
            self._all.append(self._mine.connection)
        return self._mine.connection

    def execute(self, connection: Any, sql: str, values: tuple[Any, ...] = ()) -> list[Any]:
        cursor = connection.cursor()
        try:
            cursor.execute(sql.format(t=self.values), values)
            return list(cursor.fetchall()) if cursor.description else []
        finally:
            cursor.close()

    def name(self, resource: str) -> Any:
        return resource

    def write(self, resource: str, value: str, token: Token) -> None:
        connection = self.connection()
        try:
            self.fence.guard(connection, resource, token)
            self.execute(connection, self.upsert, (self.name(resource), value))
            connection.commit()
        except BaseException:
            connection.rollback()
            raise

    def read(self, resource: str) -> str | None:
        connection = self.connection()
        rows = self.execute(connection, self.select, (self.name(resource),))
        connection.commit()
        return rows[0][0] if rows else None

    def overwrite(self, resource: str, value: str) -> None:
        connection = self.connection()
        self.execute(connection, self.upsert, (self.name(resource), value))
        connection.commit()

    def _verb(self, verb: str, *args: Any, **options: Any) -> Any:
        connection = self.connection()
        try:
            result = getattr(self.fence, verb)(connection, *args, **options)
        except BaseException:
            connection.rollback()
            raise
        connection.commit()
        return result

    def highest(self, resource: str) -> int:
        highest: int = self._verb("highest", resource)
        return highest

    def reset(self, resource: str, to: int = 0) -> int:
        was: int = self._verb("reset", resource, by="a test", to=to)
        return was

    def show(self, resource: str, token: Token) -> None:
        self._verb("guard", resource, token)

    def prune(self, older_than: float = 0.0) -> int:
        number: int = self._verb("prune", older_than or 1e-6)
        return number

    def reset_floors(self, lock: Any = None, to: int = 0) -> None:
        self._verb("reset_floors", by="a test", lock=lock, to=to)

    def verify(self) -> None:
        self._verb("verify", self.values)

    def crash(self, resource: str, value: str, token: int) -> None:
        sql = self.upsert.format(t=self.values)
        die(
            f"{self.program}\n"
            "import os, signal\n"
            "from holdfast.fences import SqlFence\n"
            f"connection = driver.connect({self.address()})\n"
            f"fence = SqlFence(connection, table={self.fences!r})\n"
            f"fence.guard(connection, {resource!r}, {token})\n"
            f"connection.cursor().execute({sql!r}, ({self.name(resource)!r}, {value!r}))\n"
            "os.kill(os.getpid(), signal.SIGKILL)\n"
        )

    def close(self) -> None:
        for connection in self._all:
            connection.close()


class PostgresSite(SqlSite):
    upsert = UPSERT["postgres"]
    select = "SELECT value FROM {t} WHERE name = %s"
    program = "import psycopg as driver"

    def address(self) -> str:
        return repr(postgres_server().url)

    def connect(self) -> Any:
        return postgres_server().connect()


class MariaSite(SqlSite):
    upsert = UPSERT["mysql"]
    select = "SELECT value FROM {t} WHERE name = %s"
    column = "VARBINARY(255)"
    program = "import pymysql as driver"

    def address(self) -> str:
        return f"host='127.0.0.1', port={mariadb_server().port}, user='root', database='app'"

    def connect(self) -> Any:
        return mariadb_server().connect()

    def name(self, resource: str) -> Any:
        return resource.encode()


class AlchemySite(SqlSite):
    """Databases by SQLAlchemy."""

    def engine_url(self) -> str:
        raise NotImplementedError

    def connect(self) -> Any:
        from sqlalchemy import create_engine
        from sqlalchemy.pool import NullPool

        return create_engine(self.engine_url(), poolclass=NullPool).connect()

    def execute(self, connection: Any, sql: str, values: tuple[Any, ...] = ()) -> list[Any]:
        result = connection.exec_driver_sql(sql.format(t=self.values), values)
        return list(result.fetchall()) if result.returns_rows else []


class SqliteAlchemySite(AlchemySite):
    def engine_url(self) -> str:
        return f"sqlite:///{self.folder}/app.db?timeout=30&check_same_thread=false"


class PostgresAlchemySite(AlchemySite, PostgresSite):
    def engine_url(self) -> str:
        return postgres_server().url.replace("postgresql:", "postgresql+psycopg:")


class MariaAlchemySite(AlchemySite, MariaSite):
    def engine_url(self) -> str:
        return mariadb_server().url.replace("mysql:", "mysql+pymysql:")


class AsyncPostgresSite(PostgresSite):
    """psycopg's asynchronous connection; each call has a loop and a connection of its own."""

    async def open(self) -> Any:
        import psycopg

        return await psycopg.AsyncConnection.connect(postgres_server().url)

    async def run(self, connection: Any, sql: str, values: tuple[Any, ...]) -> None:
        await connection.execute(sql.format(t=self.values), values)

    def make(self, connection: Any) -> SqlFence:
        fence = SqlFence(table=self.fences, single_use=self.single_use)

        async def install() -> None:
            other = await self.open()
            assert await fence.install(other) is fence
            await other.close()

        _drive(install())
        return fence

    def write(self, resource: str, value: str, token: Token) -> None:
        async def write() -> None:
            connection = await self.open()
            try:
                await self.fence.guard(connection, resource, token)
                await self.run(connection, self.upsert, (resource, value))
                await connection.commit()
            finally:
                await connection.close()

        _drive(write())

    def _verb(self, verb: str, *args: Any, **options: Any) -> Any:
        async def call() -> Any:
            connection = await self.open()
            try:
                result = await getattr(self.fence, verb)(connection, *args, **options)
                await connection.commit()
                return result
            finally:
                await connection.close()

        return _drive(call())


class AsyncAlchemySite(AsyncPostgresSite):
    async def open(self) -> Any:
        from sqlalchemy.ext.asyncio import create_async_engine
        from sqlalchemy.pool import NullPool

        url = postgres_server().url.replace("postgresql:", "postgresql+psycopg:")
        return await create_async_engine(url, poolclass=NullPool).connect()

    async def run(self, connection: Any, sql: str, values: tuple[Any, ...]) -> None:
        await connection.exec_driver_sql(sql.format(t=self.values), values)


def _drive(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(work)


SQL_SITES = {
    "sqlite": SqlSite,
    "sqlite-alchemy": SqliteAlchemySite,
    "postgres": PostgresSite,
    "postgres-alchemy": PostgresAlchemySite,
    "postgres-async": AsyncPostgresSite,
    "postgres-alchemy-async": AsyncAlchemySite,
    "mariadb": MariaSite,
    "mariadb-alchemy": MariaAlchemySite,
}
