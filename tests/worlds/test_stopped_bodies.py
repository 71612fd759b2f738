"""Several bodies of one lease in one task: whichever of them is left first, a loss stops the others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

import pytest

from holdfast import aio as holdfast
from worlds.aio import Job

Thing = Any
"""A lease, or a re-entrant lock: the task may enter it again."""
KINDS = ["lease", "rlock", "multi"]


async def made(locks: holdfast.Locks, kind: str) -> Thing:
    if kind == "rlock":
        return locks.rlock("x", ttl=180.0)
    if kind == "multi":
        return await locks.multi(["x", "y"], ttl=180.0).acquire()
    return await locks.lock("x", ttl=180.0).acquire()


def lose(lease: Any) -> None:
    parts = lease.leases.values() if isinstance(lease, holdfast.MultiLease) else [lease]
    next(iter(parts))._hold._recall("a test wants it")


async def held_by(thing: Thing) -> AsyncGenerator[Any, None]:
    """A generator, whose body stays open while its caller has the turn."""
    async with thing as lease:
        yield lease


async def stopped(work: Callable[[Thing], Awaitable[None]], kind: str) -> None:
    """Does the work in a task of its own, which has to end with `LeaseLost`, and not as cancelled."""

    async def watched() -> None:
        task = asyncio.current_task()
        assert task is not None
        try:
            await work(await made(locks, kind))
        finally:
            assert task.cancelling() == 0

    async with (
        holdfast.connect("memory://stopped") as others,
        holdfast.connect("memory://stopped") as locks,
    ):
        assert not (await others.inspect("x")).held
        assert isinstance(await Job(watched).error(), holdfast.LeaseLost)
        async with others.multi(["x", "y"], timeout=20.0):
            pass


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("kind", KINDS)
async def test_a_body_is_stopped_whose_outer_one_was_left(kind: str, known: bool) -> None:
    """Leaves the outer one before the loss; or when it is known, and the task not cancelled yet."""

    async def work(thing: Thing) -> None:
        outer = held_by(thing)
        await anext(outer)
        async with thing as lease:
            if known:
                lose(lease)
            await outer.aclose()
            if not known:
                lose(lease)
            await asyncio.sleep(60.0)

    await stopped(work, kind)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_body_is_stopped_whose_outer_one_is_left_in_its_clean_up(kind: str) -> None:
    async def work(thing: Thing) -> None:
        outer = held_by(thing)
        await anext(outer)
        async with thing as lease:
            try:
                lose(lease)
                await asyncio.sleep(60.0)
            finally:
                await outer.aclose()

    await stopped(work, kind)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_body_is_stopped_around_a_generator_that_is_left_behind(kind: str) -> None:
    async def work(thing: Thing) -> None:
        try:
            async with thing as lease:
                inner = held_by(thing)
                await anext(inner)
                lose(lease)
                await asyncio.sleep(60.0)
        finally:
            await inner.aclose()

    await stopped(work, kind)


@pytest.mark.parametrize("kind", KINDS)
async def test_code_between_two_bodies_takes_no_loss_for_its_own(kind: str) -> None:
    """It is cancelled, like the bodies: what catches errors there does not go on."""

    async def work(thing: Thing) -> None:
        async with thing as lease:
            try:
                async with thing:
                    lose(lease)
                    await asyncio.sleep(60.0)
            except Exception:
                pytest.fail("it would go on")

    await stopped(work, kind)


async def test_a_cancellation_before_the_remaining_body_is_not_counted() -> None:
    """A body counts from its own beginning, like a timeout: who asked before was not heeded."""
    async with holdfast.connect("memory://counted") as locks:

        async def work() -> None:
            lease = await locks.lock("x", ttl=180.0).acquire()
            task = asyncio.current_task()
            assert task is not None
            outer = held_by(lease)
            await anext(outer)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asyncio.sleep(0)
            async with lease:
                await outer.aclose()
                lose(lease)
                await asyncio.sleep(60.0)

        assert isinstance(await Job(work).error(), holdfast.LeaseLost)


async def test_a_cancellation_from_outside_stays_one() -> None:
    async with holdfast.connect("memory://outside") as locks:
        lease = await locks.lock("x", ttl=180.0).acquire()

        async def work() -> None:
            outer = held_by(lease)
            await anext(outer)
            async with lease:
                await outer.aclose()
                lose(lease)
                task = asyncio.current_task()
                assert task is not None
                task.cancel()
                await asyncio.sleep(60.0)

        task = asyncio.create_task(work())
        await asyncio.wait({task}, timeout=25.0)
        assert task.cancelled()
