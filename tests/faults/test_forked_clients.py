"""Forks of a process that holds a lock, on every store that is a server."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import holdfast
import holdfast.aio
from faults.children import ended_well
from stores import STORES, UNFAIR

TESTS = Path(__file__).parent.parent
SERVERS = sorted(set(STORES) - {"memory", "sqlite"})


@pytest.mark.parametrize("how", ["blocking", "aio", "untold"])
@pytest.mark.parametrize("store", SERVERS)
def test_a_child_holds_nothing_and_has_a_connection_of_its_own(
    store: str, how: str, tmp_path: Path
) -> None:
    run(store, how, tmp_path)


@pytest.mark.parametrize("store", sorted(set(SERVERS) - set(UNFAIR)))
def test_a_child_of_a_waiter_leaves_the_queue_to_its_parent(store: str, tmp_path: Path) -> None:
    run(store, "raises", tmp_path)


def test_a_child_of_a_waiter_does_not_wait_on(tmp_path: Path) -> None:
    run("redis", "returns", tmp_path)


@pytest.mark.parametrize("store", sorted(set(STORES) - {"memory"}))
def test_a_child_that_leaves_the_loop_costs_its_parent_nothing(store: str, tmp_path: Path) -> None:
    run(store, "leaves", tmp_path)


@pytest.mark.parametrize("world", ["blocking", "aio"])
@pytest.mark.parametrize("store", sorted(STORES))
def test_a_child_that_goes_on_inside_a_call_costs_its_parent_nothing(
    store: str, world: str, tmp_path: Path
) -> None:
    """It was forked at some line of it, and holds nothing of what its parent is granted."""
    with STORES[store](tmp_path) as url:
        play("faults.forked_inside", world, url, "12")


def watched(loop: Any) -> list[int]:
    """Returns the descriptors that asyncio's loop waits for and that are connected by TCP."""
    found = []
    for fd in loop._selector.get_map():
        with suppress(OSError), socket.socket(fileno=os.dup(fd)) as sock:
            if sock.family in (socket.AF_INET, socket.AF_INET6):
                found.append(fd)
    return found


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize(
    "store", ["etcd", "http", "redis", "redis+cluster", "redis+sentinel", "redlock"]
)
async def test_the_loop_of_a_child_has_no_socket_of_its_parent(store: str, tmp_path: Path) -> None:
    with STORES[store](tmp_path) as url:
        async with holdfast.aio.connect(url) as locks, locks.lock("x") as lease:
            loop = asyncio.get_running_loop()
            assert watched(loop) != []
            child = os.fork()
            if not child:
                os._exit(len(watched(loop)))
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
            await lease.renew()


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_child_that_leaves_a_round_of_redlock_gives_nothing_back(tmp_path: Path) -> None:
    """A signal's handler forks in the middle of an acquire, and raises in the child."""

    class Interrupt(Exception):
        pass

    with STORES["redlock"](tmp_path) as url, holdfast.connect(url) as locks:
        first = locks.lock("first").acquire()
        session: Any = locks._session()
        wire = session.backend._wire
        fan_out = wire.fan_out
        children: list[int] = []

        def forking(*arguments: Any, **options: Any) -> Any:
            used = fan_out(*arguments, **options)
            if not children:
                children.append(os.fork())
                if not children[0]:
                    raise Interrupt
            return used

        wire.fan_out = forking
        parent = os.getpid()
        lease: Any = None
        try:
            with suppress(Interrupt):
                lease = locks.lock("x").acquire(timeout=20.0)
        finally:
            if os.getpid() != parent:
                os._exit(lease is not None)
        del wire.fan_out
        ended_well(children[0])
        lease.renew()
        assert lease.release() is True
        assert first.release() is True


def run(store: str, how: str, tmp_path: Path) -> None:
    with STORES[store](tmp_path) as url:
        play("faults.forked_client", how, url)


def play(*arguments: str) -> None:
    """Runs a program of these tests."""
    done = subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=TESTS,
        capture_output=True,
        text=True,
        timeout=100.0,
        check=False,
    )
    assert done.returncode == 0, done.stderr
