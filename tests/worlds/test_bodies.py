"""A body that goes on though it was told: `close()` does not free the lock under it, on any store."""

from __future__ import annotations

import asyncio
import threading

import pytest

import holdfast
from holdfast import aio
from holdfast._async import closing as aio_closing
from holdfast._sync import closing

PATIENCE = 25.0
TTL = 30.0
"""Longer than the test takes; stores with a limit to it give this much."""


def test_the_lock_is_not_freed_under_a_thread_that_goes_on(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(closing, "BODY_LIMIT", 0.2)
    locks, others = holdfast.connect(url), holdfast.connect(url)
    assert not others.inspect("x").held  # so a store in memory lives on
    inside, leave, told = threading.Event(), threading.Event(), threading.Event()

    def body() -> None:
        try:
            with locks.lock("x", ttl=TTL):
                inside.set()
                leave.wait(PATIENCE)
        except holdfast.LeaseLost:
            told.set()

    thread = threading.Thread(target=body)
    thread.start()
    try:
        assert inside.wait(PATIENCE)
        locks.close()
        assert others.inspect("x").held
    finally:
        leave.set()
        thread.join(PATIENCE)
        others.close()
    assert told.is_set()


async def test_the_lock_is_not_freed_under_a_task_that_goes_on(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(aio_closing, "BODY_LIMIT", 0.2)
    locks, others = aio.connect(url), aio.connect(url)
    assert not (await others.inspect("x")).held
    inside, leave, told = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def body() -> None:
        try:
            async with locks.lock("x", ttl=TTL):
                inside.set()
                while not leave.is_set():
                    try:
                        await leave.wait()
                    except asyncio.CancelledError:
                        continue  # as code does that takes every exception for its own
        except aio.LeaseLost:
            told.set()

    task = asyncio.create_task(body())
    try:
        async with asyncio.timeout(PATIENCE):
            await inside.wait()
        await locks.close()
        assert (await others.inspect("x")).held
    finally:
        leave.set()
        async with asyncio.timeout(PATIENCE):
            await task
        await others.close()
    assert told.is_set()
