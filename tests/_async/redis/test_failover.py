"""A failover that forgets: what is declared of it, and what holds all the same."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from holdfast import aio as holdfast
from holdfast.chaos.servers.proxy import Proxy
from holdfast.chaos.servers.redis import RedisServer
from worlds.aio import Job, eventually, pause


class Pair:
    """A primary, and a replica that follows it through a proxy which can be cut."""

    def __init__(self) -> None:
        self.primary = RedisServer("--repl-diskless-sync-delay", "0")
        self.line = Proxy(self.primary.port)
        self.replica = RedisServer("--replicaof", "127.0.0.1", str(self.line.port))

    def fail_over(self) -> None:
        self.primary.kill()
        self.replica("REPLICAOF", "NO", "ONE")

    def stop(self) -> None:
        self.replica.stop()
        self.line.close()
        self.primary.stop()


@pytest.fixture
def pair() -> Iterator[Pair]:
    made = Pair()
    yield made
    made.stop()


async def test_tokens_rise_across_a_failover_that_forgets(pair: Pair) -> None:
    async with holdfast.connect(pair.primary.url) as before:
        kept = await before.lock("kept", ttl=60.0).acquire()
        await eventually(lambda: pair.replica("EXISTS", "holdfast:{kept}") == 1)
        pair.line.close()  # from now on nothing is replicated
        forgotten = await before.lock("forgotten", ttl=60.0).acquire()
        pair.fail_over()
        async with holdfast.connect(pair.replica.url) as after:
            # What was replicated is held, by the same owner and with the same token.
            assert await after.lock("kept").try_acquire() is None
            (holder,) = (await after.inspect("kept")).holders
            assert (holder.owner, holder.token) == (kept.owner, kept.token)
            # What was not is granted again: declared. The fence tells the two apart.
            assert "forget" in after.guarantees.consistency
            second = await after.lock("forgotten").acquire(timeout=5.0)
            assert second.token > forgotten.token


async def test_who_waits_on_a_demoted_primary_is_not_told_of_what_it_was_not_granted(
    pair: Pair,
) -> None:
    """Cuts the line: replicas repeat what their primary publishes, which must not count as a grant."""
    async with (
        holdfast.connect(pair.primary.url, heartbeat=60.0) as before,
        holdfast.connect(pair.replica.url) as after,
    ):
        await before.lock("x", ttl=60.0).acquire()
        waiter = Job(before.lock("x").acquire)
        await eventually(lambda: pair.replica("LLEN", "holdfast:{x}:q") == 1)
        pair.replica("REPLICAOF", "NO", "ONE")
        pair.primary("REPLICAOF", "127.0.0.1", pair.replica.port)
        await eventually(lambda: b"link_status:up" in pair.primary("INFO", "replication"))
        second = Job(after.lock("x", ttl=60.0).acquire)
        await eventually(lambda: pair.replica("LLEN", "holdfast:{x}:q") == 2)
        assert await after.force_release("x") is True
        granted = await second.result()
        # All of that has reached the old primary, and whoever listens there.
        value = pair.replica("GET", "holdfast:{x}")
        await eventually(lambda: pair.primary("GET", "holdfast:{x}") == value)
        await pause(0.05)
        assert not waiter.done()
        assert granted.held
        pair.primary("REPLICAOF", "NO", "ONE")  # so that it can leave


async def test_a_primary_that_became_a_replica_is_left(pair: Pair) -> None:
    async with holdfast.connect(pair.primary.url) as locks:
        await (await locks.lock("x").acquire()).release()
        pair.line.close()
        pair.replica("REPLICAOF", "NO", "ONE")
        pair.primary("REPLICAOF", "127.0.0.1", pair.replica.port)
        with pytest.raises(holdfast.BackendUnavailable, match="read-only replica"):
            await locks.lock("x").acquire()
