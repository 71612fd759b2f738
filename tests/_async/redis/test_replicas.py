"""`min_replicas`: a grant that too few replicas received is released again."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from _async.waiting import until_waiting
from holdfast import aio as holdfast
from holdfast.chaos.servers.proxy import Proxy
from holdfast.chaos.servers.redis import OTHERS, RedisServer
from holdfast.stores.redis._async import replicated
from worlds.aio import Job, eventually
from worlds.stalls import Stalls

PROGRAMS = {path.name: str(path) for path in OTHERS} or {"debian": "redis-server"}


class Pair:
    def __init__(self, program: str = "") -> None:
        self.primary = RedisServer("--repl-diskless-sync-delay", "0", program=program)
        self.line = Proxy(self.primary.port)
        address = ("127.0.0.1", str(self.line.port))
        self.replica = RedisServer("--replicaof", *address, program=program)

    def stop(self) -> None:
        self.replica.stop()
        self.line.close()
        self.primary.stop()


@pytest.fixture
def pair() -> Iterator[Pair]:
    made = Pair()
    yield made
    made.stop()


async def followed(pair: Pair) -> None:
    await eventually(lambda: b"link_status:up" in pair.replica("INFO", "replication"))
    await eventually(lambda: b"state=online" in pair.primary("INFO", "replication"))


async def test_a_grant_is_at_the_replica_when_it_is_given(pair: Pair) -> None:
    await followed(pair)
    async with holdfast.connect(pair.primary.url, min_replicas=1) as locks:
        assert "best effort" in locks.guarantees.consistency
        lease = await locks.lock("x").acquire()
        assert pair.replica("EXISTS", "holdfast:{x}") == 1
        await locks.semaphore("pool", permits=2).acquire()
        permit = await locks.semaphore("pool", permits=2).acquire()
        assert pair.replica("HEXISTS", "holdfast:{pool}:h", permit.owner) == 1
        waiter = Job(locks.lock("x").acquire)

        await until_waiting(locks)
        assert await lease.release() is True
        granted = await waiter.result()
        assert granted.owner.encode() in pair.replica("GET", "holdfast:{x}")
        assert await granted.release() is True
        # Found by a heartbeat, and by its own question at the same time.
        pair.primary("SET", "holdfast:{x}", "somebody else's", "PX", 300)
        granted = await Job(locks.lock("x").acquire).result()
        assert granted.owner.encode() in pair.replica("GET", "holdfast:{x}")
        assert await granted.release() is True


@pytest.mark.parametrize("fault", ["too few", "cut off"])
async def test_with_too_few_replicas_it_is_given_back_and_said(
    pair: Pair, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replicated, "CONFIRM_LIMIT", 0.2)
    await followed(pair)
    count = 2 if fault == "too few" else 1
    async with (
        holdfast.connect(pair.primary.url, min_replicas=count) as locks,
        holdfast.connect(pair.primary.url) as others,
    ):
        held = await others.lock("x").acquire()
        waiter = Job(locks.lock("x").acquire)

        await until_waiting(others)
        if fault == "cut off":
            pair.line.close()
        started = time.monotonic()
        with (
            Stalls() as stalls,
            pytest.raises(holdfast.BackendUnavailable, match="released again"),
        ):
            await locks.lock("y").acquire()
        assert time.monotonic() - started < 3.0 + stalls.seconds
        await held.release()
        assert isinstance(await waiter.error(), holdfast.BackendUnavailable)
        # One that finds out by its heartbeat that it was granted is no better.
        pair.primary("SET", "holdfast:{z}", "somebody else's", "PX", 300)
        assert isinstance(await Job(locks.lock("z").acquire).error(), holdfast.BackendUnavailable)
        # Nothing is left of any.
        assert [state.name for state in await others.list()] == []


@pytest.mark.parametrize("program", PROGRAMS)
async def test_a_renewal_that_follows_the_grant_at_once_is_a_write_too(
    program: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a write, `WAIT` on Valkey counts the replicas that had received what came before."""
    pair = Pair(PROGRAMS[program])
    try:
        await followed(pair)
        async with holdfast.connect(pair.primary.url, min_replicas=1) as locks:
            for number in range(10):
                monkeypatch.setattr(replicated, "CONFIRM_LIMIT", 8.0)
                await locks.lock(f"known-{number}").acquire(timeout=60.0)
                monkeypatch.setattr(replicated, "CONFIRM_LIMIT", 0.05)
                pair.replica.pause()
                with pytest.raises(holdfast.BackendUnavailable, match="released again"):
                    await locks.semaphore(f"new-{number}", permits=2).acquire()
                pair.replica.resume()
    finally:
        pair.stop()


@pytest.mark.parametrize("value", [-1, 1.5, "two", True])
async def test_a_bad_number_is_refused(value: object) -> None:
    with pytest.raises(holdfast.ConfigError, match="min_replicas must be a number"):
        holdfast.connect("redis://127.0.0.1:1", min_replicas=value)  # type: ignore[arg-type]
