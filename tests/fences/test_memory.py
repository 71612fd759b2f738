"""The fence in memory: turns at a resource, in threads and in event loops."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time

import pytest

import holdfast
from holdfast.fences import MemoryFence


async def test_tasks_and_threads_take_turns() -> None:
    fence = MemoryFence()
    inside = 0
    order: list[int] = []

    async def task() -> None:
        nonlocal inside
        async with fence.hold("x", 5):
            inside += 1
            await asyncio.sleep(0.001)
            order.append(inside)
            inside -= 1

    def thread() -> None:
        nonlocal inside
        with fence.hold("x", 5):
            inside += 1
            time.sleep(0.001)
            order.append(inside)
            inside -= 1

    threads = [threading.Thread(target=thread) for _ in range(20)]
    for one in threads:
        one.start()
    await asyncio.gather(*(task() for _ in range(20)))
    for one in threads:
        await asyncio.to_thread(one.join, 20)
    assert order == [1] * 40
    assert not fence._turns._turns


async def test_a_late_request_does_not_overtake_the_one_that_was_let_in() -> None:
    fence = MemoryFence()
    order: list[int] = []
    first_is_in, go_on = asyncio.Event(), asyncio.Event()

    async def first() -> None:
        async with fence.hold("x", 33):
            first_is_in.set()
            await go_on.wait()
            order.append(33)

    async def second() -> None:
        async with fence.hold("x", 34):
            order.append(34)

    one = asyncio.create_task(first())
    await first_is_in.wait()
    two = asyncio.create_task(second())
    await asyncio.sleep(0)
    assert order == []
    go_on.set()
    await asyncio.gather(one, two)
    assert order == [33, 34]
    with pytest.raises(holdfast.StaleToken):
        async with fence.hold("x", 33):
            order.append(33)
    async with fence.hold("x", 34):
        pass


async def test_one_who_gives_up_waiting_passes_the_turn_on() -> None:
    fence = MemoryFence()
    async with fence.hold("x", 1):
        waiting = [asyncio.create_task(_enter(fence)) for _ in range(3)]
        await asyncio.sleep(0)
        waiting[0].cancel()
    # Handed to the second, which is cancelled before it hears of it.
    waiting[1].cancel()
    done = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(one).__name__ for one in done] == ["CancelledError", "CancelledError", "str"]
    async with fence.hold("x", 1):
        pass
    assert not fence._turns._turns


async def _enter(fence: MemoryFence) -> str:
    async with fence.hold("x", 1):
        return "entered"


def test_resets_are_kept() -> None:
    fence = MemoryFence()
    fence.guard("x", 5)
    fence.reset("x", by="ada")
    ((_, who, what, mark),) = fence.resets
    assert (who, what, mark.highest) == ("ada", "x", 5)


async def test_one_who_gives_up_waiting_does_not_end_anothers_turn() -> None:
    fence = MemoryFence()
    async with fence.hold("x", 1):
        waiting = [asyncio.create_task(_enter(fence)) for _ in range(2)]
        await asyncio.sleep(0)
        waiting[1].cancel()
        await asyncio.gather(waiting[1], return_exceptions=True)
        for _ in range(5):
            await asyncio.sleep(0)
        assert not waiting[0].done()
    assert await waiting[0] == "entered"


def test_a_thread_that_is_interrupted_while_it_waits_gives_up_its_place() -> None:
    fence = MemoryFence()
    inside, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        with fence.hold("x", 1):
            inside.set()
            go_on.wait(30)

    def interrupt() -> None:
        while not fence._turns.waiting("x"):
            time.sleep(0.001)
        os.kill(os.getpid(), signal.SIGUSR1)

    def raises(*_: object) -> None:
        raise ZeroDivisionError

    before = signal.signal(signal.SIGUSR1, raises)
    holder = threading.Thread(target=hold)
    holder.start()
    try:
        assert inside.wait(20)
        sender = threading.Thread(target=interrupt)
        sender.start()
        with pytest.raises(ZeroDivisionError), fence.hold("x", 1):
            raise AssertionError("another has the turn")
        sender.join(20)
        assert not fence._turns.waiting("x")
    finally:
        go_on.set()
        holder.join(20)
        signal.signal(signal.SIGUSR1, before)
    assert not fence._turns._turns


def test_one_hold_that_is_entered_twice_ends_all_the_same() -> None:
    """By its own body, which is refused; and by two threads, which take turns."""
    fence = MemoryFence()
    turn = fence.hold("robot", 5)
    with turn, pytest.raises(holdfast.ConfigError), turn:
        pass
    done: list[int] = []

    def enter(number: int) -> None:
        for _ in range(50):
            with turn:
                done.append(number)

    threads = [threading.Thread(target=enter, args=(number,), daemon=True) for number in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(25)
    assert len(done) == 100


async def test_one_hold_that_tasks_share_ends_with_each_of_them() -> None:
    turn = MemoryFence().hold("robot", 5)

    async def enter() -> None:
        async with turn:
            await asyncio.sleep(0.001)

    async with asyncio.timeout(25):
        await asyncio.gather(*[enter() for _ in range(5)])
