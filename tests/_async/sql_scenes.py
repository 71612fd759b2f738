"""Scenes that the tests of all databases share."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import pytest

from holdfast import aio as holdfast
from holdfast.chaos.servers.proxy import Proxy
from worlds.aio import Job, eventually, pause

each_database = pytest.mark.parametrize("url", ["mariadb", "postgres"], indirect=True)


def rows_of(url: str, statement: str) -> list[Any]:
    """Runs a statement in a session of its own; returns its rows, if it has any."""
    place = urlsplit(url)
    where: dict[str, Any] = {"host": place.hostname, "port": place.port}
    if place.scheme == "postgresql":
        import psycopg

        with psycopg.connect(url, autocommit=True) as connection:
            cursor: Any = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []
    import pymysql

    where |= {"user": "root", "database": place.path[1:], "autocommit": True}
    with pymysql.connect(**where) as other, other.cursor() as lines:
        lines.execute(statement)
        return list(lines.fetchall())


def proxied(url: str) -> tuple[Proxy, str]:
    """Returns a proxy before the database, and the URL that leads through it."""
    port = urlsplit(url).port
    assert port is not None
    proxy = Proxy(port)
    return proxy, url.replace(f":{port}/", f":{proxy.port}/")


async def waits(locks: holdfast.Locks, number: int = 1) -> None:
    """Waits until so many wait for the lock `x`."""

    async def there() -> bool:
        return len((await locks.inspect("x")).waiters) == number

    await eventually(there)


async def crowd(urls: list[str], rounds: int) -> None:
    """Has several managers take one lock in turns; each finds itself alone in it."""
    inside: list[int] = []
    tokens: list[int] = []

    async def contend(url: str) -> None:
        async with holdfast.connect(url) as locks:
            for _ in range(rounds):
                async with locks.lock("x") as lease:
                    inside.append(1)
                    assert len(inside) == 1
                    assert not tokens or lease.token > tokens[-1]
                    tokens.append(lease.token)
                    await pause(0.0)
                    inside.pop()

    jobs = [Job(contend, url) for url in urls]
    for job in jobs:
        await job.result()
    assert len(tokens) == len(urls) * rounds
