"""A blocking waiter whose turn comes soon sleeps once: one read brings its place and its grant."""

from __future__ import annotations

import time
from collections.abc import Iterator
from threading import Thread
from typing import Any

import pytest

import holdfast
from holdfast._sync.keeper import Keeper
from holdfast.chaos.servers.redis import RedisServer
from holdfast.stores.redis.wire.blocking_connection import Connection
from holdfast.stores.redis.wire.threads import Wire
from holdfast.stores.redis.wire.wakeups import HANDOVER_BYTES
from stores import redis_server
from worlds.threads import Job, eventually

LIMIT = 20.0
CLAIM_WINDOW = 3.0


@pytest.fixture
def server() -> RedisServer:
    made = redis_server()
    made("FLUSHALL")
    return made


@pytest.fixture
def waiter(server: RedisServer) -> Iterator[holdfast.Locks]:
    """Returns a manager whose connection has waited before, so that it has a channel."""
    with (
        holdfast.connect(server.url, claim_window=CLAIM_WINDOW) as locks,
        holdfast.connect(server.url) as other,
    ):
        held = other.lock("before").acquire()
        thread, found = _acquire(locks, "before")
        eventually(lambda: bool(other.inspect("before").waiters))
        held.release()
        thread.join(LIMIT)
        found[0].release()
        yield locks


def _acquire(locks: holdfast.Locks, name: str) -> tuple[Thread, list[holdfast.Lease]]:
    found: list[holdfast.Lease] = []
    thread = Thread(target=lambda: found.append(locks.lock(name).acquire()), daemon=True)
    thread.start()
    return thread, found


def _wire(locks: holdfast.Locks) -> Wire:
    backend: Any = locks._live.backend  # type: ignore[union-attr]
    found: Wire = backend._wire
    return found


def _connection(locks: holdfast.Locks) -> Connection:
    return _wire(locks)._pool._idle[-1]


def test_a_lock_that_is_handed_over_at_once_is_ours_and_is_confirmed_for_its_whole_ttl(
    server: RedisServer, waiter: holdfast.Locks, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A tick that lasts, so that this does not depend on how soon the other releases.
    monkeypatch.setattr("holdfast.stores.redis.wire.blocking_connection.TICK", LIMIT)
    replies: list[Any] = []
    wire = _wire(waiter)
    acquire = wire.acquire

    def watched(*args: Any) -> Any:
        replies.append(acquire(*args))
        return replies[-1]

    monkeypatch.setattr(wire, "acquire", watched)
    with holdfast.connect(server.url) as other:
        held = other.lock("x").acquire()
        thread, found = _acquire(waiter, "x")
        eventually(lambda: bool(other.inspect("x").waiters))
        assert not replies  # the place in the queue alone does not wake it
        held.release()
        thread.join(LIMIT)
        (lease,) = found
        (reply,) = replies
        assert reply.handed
        assert reply.token == lease.token > held.token
        assert [h.owner for h in other.inspect("x").holders] == [lease.owner]
        # For the claim window only, until that is confirmed in the background.
        eventually(lambda: lease.remaining() > CLAIM_WINDOW)
        assert lease.release() is True


def test_short_answers_come_at_once_on_a_connection_that_has_waited_so(
    server: RedisServer, waiter: holdfast.Locks
) -> None:
    with holdfast.connect(server.url) as other:
        waiter.lock("mine").acquire().release()
        held = other.lock("theirs").acquire()
        assert _connection(waiter).lowat == HANDOVER_BYTES
        began = time.monotonic()
        for _ in range(60):
            assert waiter.lock("theirs").try_acquire() is None  # "busy" is short
            lease = waiter.lock("mine").acquire()
            assert lease.release() is True
            assert not waiter.inspect("mine").held
        # Each of them a tick later would be thrice that.
        assert time.monotonic() - began < 6.0
        held.release()


def test_one_that_is_to_give_up_soon_is_told_of_its_place_at_once(
    server: RedisServer, waiter: holdfast.Locks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.stores.redis.wire.blocking_connection.TICK", LIMIT)
    with holdfast.connect(server.url) as other:
        held = other.lock("x").acquire()
        began = time.monotonic()
        assert waiter.lock("x").try_acquire(timeout=0.5) is None
        assert 0.5 <= time.monotonic() - began < LIMIT / 2
        assert not other.inspect("x").waiters
        held.release()


def test_a_message_of_somebody_else_on_our_channel_is_no_grant(
    server: RedisServer, waiter: holdfast.Locks
) -> None:
    with holdfast.connect(server.url) as other:
        held = other.lock("x").acquire()
        channel = _connection(waiter).channel_name.decode()
        thread, found = _acquire(waiter, "x")
        eventually(lambda: bool(other.inspect("x").waiters))
        (waiting,) = other.inspect("x").waiters
        for message in ("", "nobody 7", f"{waiting.owner} nonsense", f"{waiting.owner} "):
            server("PUBLISH", channel, message)
        assert [h.owner for h in other.inspect("x").holders] == [held.owner]
        assert not found
        held.release()
        thread.join(LIMIT)
        assert found[0].token > held.token
        found[0].release()


def test_the_keeper_is_not_woken_for_each_hand_over(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    woken: list[float] = []
    wake = Keeper._wake

    def watched(keeper: Keeper) -> None:
        woken.append(time.monotonic())
        wake(keeper)

    monkeypatch.setattr(Keeper, "_wake", watched)

    def turns(locks: holdfast.Locks) -> int:
        until, count = time.monotonic() + 1.5, 0
        while time.monotonic() < until:
            assert locks.lock("x").acquire().release() is True
            count += 1
        return count

    with holdfast.connect(server.url) as one, holdfast.connect(server.url) as other:
        jobs = [Job(turns, one), Job(turns, other)]
        total = sum(job.result() for job in jobs)
    assert len(woken) < 50 + total / 10
