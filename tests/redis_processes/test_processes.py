"""Waiters in processes of their own: killed, frozen, forked; a holder that is killed."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import holdfast
from holdfast.chaos.servers.processes import freeze, thaw
from holdfast.chaos.servers.redis import RedisServer
from stores import redis_server
from worlds.threads import Job, eventually

WAITER = Path(__file__).parent / "waiter.py"
WORLDS = ("aio", "threads")
Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def server() -> RedisServer:
    made = redis_server()
    made("FLUSHALL")
    return made


@pytest.fixture
def start(server: RedisServer) -> Iterator[Start]:
    started: list[subprocess.Popen[str]] = []

    def start(world: str, claim: float = 2.0) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, str(WAITER), server.url, "x", world, str(claim)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def waiting(locks: holdfast.Locks, number: int) -> None:
    eventually(lambda: len(locks.inspect("x").waiters) == number)


@pytest.mark.parametrize("world", WORLDS)
def test_a_dead_waiter_is_passed_over_at_once(
    server: RedisServer, start: Start, world: str
) -> None:
    with holdfast.connect(server.url, heartbeat=30.0) as locks:
        lease = locks.lock("x").acquire()
        dead = [start(world, 20.0) for _ in range(2)]
        waiting(locks, 2)
        living = Job(locks.lock("x").acquire)
        waiting(locks, 3)
        for process in dead:
            process.kill()
            process.wait()
        # The server has noticed that they hung up.
        eventually(lambda: len(server("PUBSUB", "CHANNELS", "holdfast:wake:*")) == 1)
        released = time.monotonic()
        lease.release()
        assert living.result().token > lease.token
        assert time.monotonic() - released < 10.0  # less than a claim window, or a heartbeat


@pytest.mark.parametrize("world", WORLDS)
def test_a_frozen_waiter_is_passed_over_after_its_claim(
    server: RedisServer, start: Start, world: str
) -> None:
    with holdfast.connect(server.url) as locks:
        lease = locks.lock("x", ttl=60.0).acquire()
        frozen = start(world)
        waiting(locks, 1)
        living = Job(locks.lock("x", ttl=60.0).acquire)
        waiting(locks, 2)
        freeze(frozen.pid)
        released = time.monotonic()
        lease.release()
        granted = living.result()
        # Claim window 2 s and heartbeat 1 s, whatever the TTL.
        assert time.monotonic() - released < 15.0
        thaw(frozen.pid)
        # What it was told has ended: it does not believe it, and waits for its turn.
        waiting(locks, 1)
        assert granted.held
        granted.release()
        assert frozen.stdout is not None
        word, token = frozen.stdout.readline().split()
        assert word == "held"
        assert int(token) > granted.token


@pytest.mark.parametrize("world", WORLDS)
def test_a_killed_holder_frees_it_with_its_ttl(
    server: RedisServer, start: Start, world: str
) -> None:
    with holdfast.connect(server.url) as locks:
        holder = start(world)
        assert holder.stdout is not None
        token = int(holder.stdout.readline().split()[1])
        holder.kill()
        holder.wait()
        assert locks.lock("x").try_acquire() is None
        server("PEXPIRE", "holdfast:{x}", 50)
        assert locks.lock("x").acquire(timeout=10.0).token > token
