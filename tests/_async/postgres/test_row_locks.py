"""A row that a stranger's own session has locked: no other lock suffers, and no lease is lied about."""

from __future__ import annotations

from typing import Any

from holdfast import aio as holdfast
from holdfast.chaos.servers.postgres import PostgresServer
from holdfast.entries import Claim
from holdfast.model import UNKNOWN, Renewed
from worlds.aio import Job, eventually, pause


def blocked(watching: Any, database: str) -> bool:
    """Tells whether a session of that database waits for a row."""
    found = watching.execute(
        "SELECT FROM pg_stat_activity WHERE datname = %s AND wait_event_type = 'Lock'", [database]
    )
    return bool(found.fetchall())


async def test_a_locked_entry_ends_no_other_lease(kept: PostgresServer) -> None:
    url = kept.new_database()
    async with holdfast.connect(url) as locks:
        leases = [await locks.lock(f"x{number}", ttl=4.0).acquire() for number in range(20)]
        with kept.connect(dbname=url.rpartition("/")[2]) as stranger:
            stranger.execute("SELECT FROM holdfast_entry WHERE name LIKE '%x7' FOR UPDATE")
            assert await leases[7].wait_lost(timeout=20.0) is True  # it could not be renewed
            await pause(4.0)
            assert [lease.name for lease in leases if not lease.held] == ["x7"]


async def test_a_lease_whose_entry_is_locked_is_not_called_renewed(kept: PostgresServer) -> None:
    url = kept.new_database()
    async with holdfast.connect(url) as locks:
        backend: Any = (await locks._session()).backend
        store, deadline = backend._store, backend.clock.now() + 20.0
        name, second = store._prefix + "x", 1_000_000
        for owner in ("first", "next"):
            ask = [name, owner, 30 * second, 1, 1, "lock", True, False, 9 * second, 9 * second, ""]
            store.call("acquire", [1000, *ask, "host", 1, ""], deadline)
        store.call("release", [1000, name, "first", 0], deadline)  # hands it to the next
        claims = [Claim("x", "next", 30.0)]
        with kept.connect(dbname=url.rpartition("/")[2]) as stranger:
            stranger.execute("SELECT FROM holdfast_entry FOR UPDATE")
            assert store.renew(claims, (), "", deadline) == [UNKNOWN]
            assert store.renew(claims, {"next"}, "", deadline) == [UNKNOWN]
        for waiting in ((), {"next"}):
            (outcome,) = store.renew(claims, waiting, "", deadline)
            assert isinstance(outcome, Renewed)


async def test_a_waiter_that_is_removed_while_it_is_handed_the_lock_leaves_no_ghost(
    kept: PostgresServer,
) -> None:
    url = kept.new_database()
    database = url.rpartition("/")[2]
    async with holdfast.connect(url, connections=2) as locks:
        lease = await locks.lock("x", ttl=30.0).acquire()
        backend: Any = (await locks._session()).backend
        store, deadline = backend._store, backend.clock.now() + 20.0
        name, second = store._prefix + "x", 1_000_000
        ask = [name, "gone", 30 * second, 1, 1, "lock", True, False, 30 * second, 30 * second, ""]
        store.call("acquire", [1000, *ask, "host", 1, ""], deadline)
        with (
            kept.connect(dbname=database) as cleaner,
            kept.connect(autocommit=True) as watching,
        ):
            cleaner.execute("DELETE FROM holdfast_entry WHERE owner = 'gone'")
            releasing = Job(lease.release)

            await eventually(lambda: blocked(watching, database))
            cleaner.commit()
            assert await releasing.result() is True
        after = await locks.lock("x").try_acquire()
        assert after is not None
        assert after.token > lease.token


async def test_a_lease_that_is_detached_while_a_step_changes_its_lock_ends_in_time(
    kept: PostgresServer,
) -> None:
    """That step may find the lease as long as it was: the lock would be closed until then."""
    url = kept.new_database()
    database = url.rpartition("/")[2]
    async with holdfast.connect(url, connections=2) as locks:
        lease = await locks.lock("x", ttl=30.0).acquire()
        backend: Any = (await locks._session()).backend
        (owner,) = (await locks._session()).leases
        with (
            kept.connect(dbname=database) as stranger,
            kept.connect(autocommit=True) as watching,
        ):
            # It is known only that no lease ends before this.
            stranger.execute("UPDATE holdfast_lock SET first = 0")
            stranger.commit()
            stranger.execute(
                "UPDATE holdfast_lock SET first = (SELECT expires FROM holdfast_entry)"
            )

            async def detach() -> object:
                return await backend.detach("x", owner, 1.0, backend.clock.now() + 20.0)

            detaching = Job(detach)
            await eventually(lambda: detaching.done() or blocked(watching, database))
            stranger.commit()
            assert await detaching.result() is True
        after = await locks.lock("x").acquire(timeout=15.0)
        assert after.token > lease.token
