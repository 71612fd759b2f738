"""A manager of `holdfast.aio` that lives longer than its event loop."""

from __future__ import annotations

import asyncio
import gc
import threading
import warnings
from pathlib import Path

import pytest

from holdfast import aio as holdfast
from worlds.descriptors import open_files
from worlds.threads import eventually


def threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if "holdfast" in thread.name}


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
def test_a_manager_serves_one_loop_after_the_other(url: str) -> None:
    locks = holdfast.connect(url)
    lost: list[str] = []

    async def hold(name: str) -> holdfast.Lease:
        lease = await locks.lock(name, ttl=3.0).acquire(timeout=20.0)
        lease.on_lost(lambda lease: lost.append(lease.name))
        return lease

    async def close() -> None:
        await locks.close()

    first = asyncio.run(hold("x"))
    assert first.held  # nobody renews it any more, and its end is known
    second = asyncio.run(hold("y"))
    assert not first.held
    assert lost == ["x"]
    third = asyncio.run(hold("x"))  # when its TTL has ended
    assert third.token > first.token
    assert not second.held
    asyncio.run(close())
    assert not third.held
    assert lost == ["x", "y", "x"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of asyncio, about sockets of loops that were closed
        gc.collect()


def test_close_in_another_loop_leaves_no_thread_and_no_file(tmp_path: Path) -> None:
    url = f"sqlite://{tmp_path}/locks.db"

    async def hold(locks: holdfast.Locks, *, close: bool) -> None:
        async with locks.lock("x"):
            pass
        if close:
            await locks.close()

    asyncio.run(hold(holdfast.connect(url), close=True))  # a process keeps one file of each store
    files_before, threads_before = open_files(tmp_path), threads()
    locks = holdfast.connect(url)
    asyncio.run(hold(locks, close=False))
    asyncio.run(locks.close())
    eventually(lambda: open_files(tmp_path) == files_before and threads() <= threads_before)
