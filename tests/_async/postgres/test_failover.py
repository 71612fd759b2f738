"""A standby, and a failover to it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from holdfast import aio as holdfast
from holdfast.chaos.servers.postgres import PostgresServer
from worlds.aio import eventually


@pytest.fixture
def standby(server: PostgresServer) -> Iterator[PostgresServer]:
    made = PostgresServer(primary=server.port)
    yield made
    made.stop()


async def test_a_standby_is_refused_and_a_failover_followed(
    server: PostgresServer, standby: PostgresServer
) -> None:
    both = f"postgresql://postgres@127.0.0.1:{standby.port},127.0.0.1:{server.port}/postgres"
    async with holdfast.connect(both) as locks:  # of two, the one that is the primary
        lease = await locks.lock("x", ttl=60.0).acquire()

        async def followed() -> bool:
            with standby.connect() as connection:
                there = connection.execute("SELECT to_regclass('holdfast_entry') IS NOT NULL")
                if not there.fetchone()[0]:
                    return False
                rows = connection.execute("SELECT token FROM holdfast_entry").fetchall()
                return bool(rows == [(lease.token,)])

        await eventually(followed)
        with pytest.raises(holdfast.BackendUnavailable, match="primary"):
            async with holdfast.connect(standby.url):
                pass

        server.kill()
        with standby.connect(autocommit=True) as connection:
            connection.execute("SELECT pg_promote()")

        async def again() -> bool:
            try:
                await lease.renew()
            except holdfast.BackendUnavailable:
                return False
            return True

        await eventually(again)
        assert (await locks.inspect("x")).token == lease.token
        assert await lease.release() is True
        second = await locks.lock("x").acquire(timeout=10.0)
        assert second.token > lease.token
