"""The work of a leader in asyncio: it is begun, stopped and begun anew with its terms."""

import asyncio
from itertools import count
from typing import Any

import pytest
from fastapi import FastAPI

from holdfast import LeaseLost, aio
from holdfast.aio import Term
from holdfast.contrib.fastapi import leading, lifespan

from .fastapi_clients import new_url
from .programs import LIMIT


async def test_the_work_of_a_leader_goes_on_with_the_next_term() -> None:
    terms: list[Term] = []
    led = asyncio.Queue[None]()

    async def lead(term: Term) -> None:
        terms.append(term)
        led.put_nowait(None)
        await asyncio.Event().wait()

    url = new_url()
    app = FastAPI(lifespan=lifespan(url, leads={"chief": lead}))
    async with aio.connect(url) as locks:
        async with app.router.lifespan_context(app):
            await led.get()
            await locks.force_release("chief")
            await led.get()
            assert terms[1].token > terms[0].token
        assert not terms[1].held
        assert await locks.election("chief").leader() is None


async def test_work_that_fails_is_begun_anew_and_work_that_returns_is_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(f"{leading.__module__}.FIRST_PAUSE", 0.0)
    times = count(1)
    done = asyncio.Event()

    async def lead(term: Term) -> None:
        if next(times) < 3:
            raise KeyError("x")
        done.set()

    async with (
        aio.connect(new_url()) as locks,
        leading(locks, "chief", lead),
    ):
        await done.wait()
    assert next(times) == 4


class Rests:
    """Stands for the pauses of a leader: notes how long each would be, and waits for none."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.pauses: list[float] = []
        monkeypatch.setattr(f"{leading.__module__}._rest", self.rest)

    async def rest(self, pause: float) -> float:
        self.pauses.append(pause)
        await asyncio.sleep(0)
        return 2 * pause


async def led_with(*failures: Any) -> None:
    """Leads as often as there are failures, each of which is what the work does; and once more."""
    left = list(failures)
    done = asyncio.Event()

    async def lead(term: Term) -> None:
        if left:
            await left.pop(0)(term)
        done.set()

    url = new_url()
    async with aio.connect(url) as locks, leading(locks, "chief", lead):
        async with asyncio.timeout(LIMIT):
            await done.wait()


async def fail(term: Term) -> None:
    raise KeyError("x")


async def await_a_cancelled_task(term: Term) -> None:
    task = asyncio.create_task(asyncio.Event().wait())
    await asyncio.sleep(0)
    task.cancel()
    await task


async def lose_another_lock(term: Term) -> None:
    raise LeaseLost("the lease on another lock was lost", name="other", owner="another", token=1)


async def resign_and_go_on(term: Term) -> None:
    await term.resign()
    term.ensure()


@pytest.mark.parametrize("failure", [await_a_cancelled_task, lose_another_lock, resign_and_go_on])
async def test_work_of_a_leader_that_fails_in_an_odd_way_has_failed_all_the_same(
    failure: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    rests = Rests(monkeypatch)
    await led_with(failure, failure)
    assert rests.pauses == [1.0, 2.0]
    assert caplog.text.count("the leader of 'chief' has failed") == 2


async def test_the_pause_is_short_again_after_a_long_term(monkeypatch: pytest.MonkeyPatch) -> None:
    rests = Rests(monkeypatch)
    await led_with(fail, fail, fail)
    assert rests.pauses == [1.0, 2.0, 4.0]
    rests.pauses.clear()
    monkeypatch.setattr(f"{leading.__module__}.LONG_TERM", 0.0)
    await led_with(fail, fail, fail)
    assert rests.pauses == [1.0, 1.0, 1.0]


async def test_work_that_fails_when_it_is_stopped_is_not_begun_anew() -> None:
    terms: list[Term] = []
    begun = asyncio.Event()

    async def lead(term: Term) -> None:
        terms.append(term)
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            raise KeyError("x")

    async with aio.connect(new_url()) as locks:
        async with asyncio.timeout(LIMIT), leading(locks, "chief", lead):
            await begun.wait()
        assert len(terms) == 1
        assert await locks.election("chief").leader() is None


async def test_whoever_is_cancelled_while_the_work_ends_is_told() -> None:
    begun, stopping, end = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def lead(term: Term) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopping.set()
            await end.wait()

    async def serve() -> None:
        async with leading(locks, "chief", lead):
            await begun.wait()

    async with asyncio.timeout(LIMIT), aio.connect(new_url()) as locks:
        task = asyncio.create_task(serve())
        await stopping.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        end.set()
        await (await locks.election("chief").campaign()).resign()  # once the other one has
