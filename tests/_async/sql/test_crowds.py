"""Crowds of one manager, who stand in line for its few connections."""

from __future__ import annotations

from typing import Any

import pytest

from _async.conformance.test_contract import bench
from _async.sql_scenes import each_database
from holdfast import aio as holdfast
from holdfast.model import Granted
from worlds.aio import Job, eventually

pytestmark = each_database


async def test_the_time_in_line_for_a_connection_is_not_the_stores(url: str) -> None:
    async with bench(url, connections=1) as store:
        backend: Any = store.backend
        turnstile = backend._turnstile
        (turn,) = turnstile._turns
        assert await turn.take(10.0)
        deadline = backend.clock.now() + 0.3

        async def ask() -> Any:
            return await backend.acquire(store.ticket(), deadline)

        try:
            waiter = Job(ask)
            await eventually(lambda: backend.clock.now() > deadline + 0.3)
            assert not waiter.done()
            turnstile.failed()  # whoever has the connection was not answered
            with pytest.raises(holdfast.BackendUnavailable, match="did not answer in time"):
                await waiter.result()
        finally:
            turn.end()
        deadline = backend.clock.now() + 10.0
        assert isinstance(await ask(), Granted)
        assert not turnstile.is_silent(0.0)


async def test_a_caller_with_a_time_limit_does_not_stand_in_line_for_longer(url: str) -> None:
    async with holdfast.connect(url, connections=1) as locks:
        backend: Any = (await locks._session()).backend
        (turn,) = backend._turnstile._turns
        assert await turn.take(10.0)
        try:
            with pytest.raises(holdfast.BackendUnavailable):
                await Job(locks.lock("x").try_acquire, 0.2).result()
        finally:
            turn.end()
        async with locks.lock("x"):
            pass


async def test_each_of_a_crowd_gets_the_lock(url: str) -> None:
    async with holdfast.connect(url, connections=1) as locks:
        grants: list[int] = []

        async def take_turn() -> None:
            async with locks.lock("x") as lease:
                grants.append(lease.token)

        crowd = [Job(take_turn) for _ in range(60)]
        for job in crowd:
            await job.result()
        assert sorted(grants) == grants
        assert len(grants) == 60
