"""Turns, and the turnstile: the time in which this process stands still counts for nobody in line."""

from __future__ import annotations

from typing import Any

from holdfast import aio as holdfast
from holdfast._runtime.aio import Turn
from holdfast.clock import system_clock
from holdfast.stores._async.turnstile import Turnstile
from worlds.aio import Job, eventually, pause
from worlds.stalls import stand_still

WITHIN, STALL = 0.5, 1.0


class Holder:
    """One who has the turn, and gives it back after this process stood still."""

    def __init__(self, turn: Turn) -> None:
        self.turn = turn
        self.has_turn = False
        self.others: list[str] = []
        """Those who are about to stand in line."""

    async def hold(self, stall: float = STALL) -> None:
        assert await self.turn.take(1.0)
        self.has_turn = True
        await eventually(lambda: self.others)
        await pause(0.02)
        stand_still(stall)
        for _ in range(3):  # as the rest of a question takes
            await pause(0.001)
        self.turn.end()


async def test_while_the_process_stands_still_nobody_in_line_loses_time() -> None:
    turn = Turn()
    holder = Holder(turn)
    job = Job(holder.hold)
    await eventually(lambda: holder.has_turn)
    holder.others.append("me")
    try:
        assert await turn.take(WITHIN)
    finally:
        turn.end()
    await job.result()


async def test_who_has_had_all_of_its_time_goes_without_a_turn() -> None:
    turn = Turn()
    assert await turn.take(1.0)

    async def take(within: float) -> bool:
        return await turn.take(within)

    try:
        for within in (0.0, -1.0, 0.25):
            assert await Job(take, within).result() is False
        both = Job(take, 0.15), Job(take, 0.35)
        for job in both:
            assert await job.result() is False
    finally:
        turn.end()
    assert await turn.take(0.0)
    turn.end()


async def test_while_the_process_stands_still_nobody_at_the_turnstile_is_refused() -> None:
    clock = system_clock()
    turnstile = Turnstile(1, clock)
    (turn,) = turnstile._turns
    holder = Holder(turn)
    job = Job(holder.hold, 3 * STALL)
    await eventually(lambda: holder.has_turn)
    asked: list[float] = []

    async def ask(deadline: float) -> str:
        asked.append(deadline - clock.now())
        return "answer"

    holder.others.append("me")
    began = clock.now()
    answer, deadline = await turnstile.ask(ask, began + WITHIN, None, AssertionError)
    assert answer == "answer"
    assert deadline > began + STALL  # the question has its whole time
    assert 0 < asked[0] <= WITHIN
    await job.result()


async def test_nobody_at_the_turnstile_is_refused_before_a_question_failed() -> None:
    clock = system_clock()
    turnstile = Turnstile(1, clock)
    asked: list[str] = []
    finish: list[bool] = []

    async def fail(deadline: float) -> None:
        asked.append("first")
        await eventually(lambda: finish)
        raise holdfast.BackendUnavailable("no answer")

    async def answer(deadline: float) -> None:
        asked.append("another")
        turnstile.answered()

    async def stand_in_line(question: Any, within: float, until: float | None = None) -> object:
        return await turnstile.ask(question, clock.now() + within, until, TimeoutError)

    first = Job(stand_in_line, fail, 60.0)
    await eventually(lambda: asked)
    second = Job(stand_in_line, answer, 0.2)
    third = Job(stand_in_line, answer, 0.2, clock.now() + 0.3)
    assert isinstance(await third.error(), TimeoutError)  # its caller has given no more
    await pause(0.3)
    assert not second.done()
    turnstile.failed()
    assert isinstance(await second.error(), TimeoutError)
    assert asked == ["first"]
    fourth = Job(stand_in_line, answer, 60.0)
    finish.append(True)
    assert isinstance(await first.error(), holdfast.BackendUnavailable)
    await fourth.result()
    assert asked == ["first", "another"]
    assert not turnstile.is_silent(0.0)


async def test_only_whoever_has_the_turn_ends_it() -> None:
    turn = Turn()

    async def end_and_take() -> bool:
        turn.end()
        return await turn.take(0.0)

    assert await turn.take(1.0)
    try:
        assert await Job(end_and_take).result() is False
    finally:
        turn.end()


async def test_whoever_comes_when_its_time_is_over_is_told_at_once() -> None:
    clock = system_clock()
    turnstile = Turnstile(1, clock)
    finish: list[bool] = []
    asked: list[str] = []

    async def ask(deadline: float) -> str:
        asked.append("first")
        await eventually(lambda: finish)
        return "answer"

    async def stand_in_line(deadline: float) -> object:
        return await turnstile.ask(ask, deadline, None, TimeoutError)

    first = Job(stand_in_line, clock.now() + 60.0)
    await eventually(lambda: asked)
    try:
        assert isinstance(await Job(stand_in_line, clock.now() - 0.1).error(), TimeoutError)
    finally:
        finish.append(True)
    await first.result()
    assert asked == ["first"]


async def test_a_question_that_failed_is_counted_for_those_who_stood_in_line_then() -> None:
    clock = system_clock()
    turnstile = Turnstile(2, clock)
    asked: list[str] = []
    finish: list[str] = []

    async def stand_in_line(name: str, within: float) -> object:
        async def ask(deadline: float) -> None:
            asked.append(name)
            await eventually(lambda: name in finish)
            raise holdfast.BackendUnavailable("no answer")

        return await turnstile.ask(ask, clock.now() + within, None, TimeoutError)

    first = Job(stand_in_line, "first", 60.0)
    await eventually(lambda: "first" in asked)
    second = Job(stand_in_line, "second", 60.0)
    await eventually(lambda: "second" in asked)
    next(turnstile._asked)  # so the next one stands behind the second
    early = Job(stand_in_line, "early", 0.2)
    await pause(0.3)
    assert not early.done()
    finish.append("first")
    assert isinstance(await first.error(), holdfast.BackendUnavailable)
    assert isinstance(await early.error(), TimeoutError)
    next(turnstile._asked)
    late = Job(stand_in_line, "late", 0.2)
    await pause(0.6)
    assert not late.done()
    finish += ["second", "late"]
    for job in (second, late):
        assert isinstance(await job.error(), (holdfast.BackendUnavailable, TimeoutError))
    assert "early" not in asked
