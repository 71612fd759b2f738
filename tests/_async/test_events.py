"""Events: what listeners hear of attempts, of renewals, and of calls to the store."""

from __future__ import annotations

import itertools

import pytest

from _async.line import scene
from holdfast import aio as holdfast
from holdfast.metrics import Metrics
from worlds.aio import Job, eventually

_numbers = itertools.count()


def place() -> str:
    return f"memory://events-{next(_numbers)}"


async def test_a_caller_that_does_not_wait_finds_the_lock_busy() -> None:
    events: list[holdfast.Event] = []
    async with holdfast.connect(place(), on_event=events.append) as locks, locks.lock("x"):
        assert await locks.lock("x").try_acquire() is None
        assert [(event.kind, event.detail) for event in events] == [
            ("acquired", ""),
            ("timed_out", "busy"),
        ]


async def test_a_caller_that_waits_in_vain_has_timed_out() -> None:
    events: list[holdfast.Event] = []
    async with holdfast.connect(place(), on_event=events.append) as locks, locks.lock("x"):
        with pytest.raises(holdfast.LockTimeout):
            await locks.lock("x").acquire(timeout=0.05)
    told = [event for event in events if event.kind == "timed_out"]
    assert [(event.name, event.detail) for event in told] == [("x", "gave up")]
    assert told[0].duration >= 0.05


async def test_a_grant_after_waiting_says_so() -> None:
    events: list[holdfast.Event] = []
    async with holdfast.connect(place(), on_event=events.append) as locks:
        lease = await locks.lock("x").acquire()
        waiting = Job(locks.lock("x").acquire)
        session = await locks._session()
        await eventually(lambda: session.waiters)
        await lease.release()
        await (await waiting.result()).release()
    assert [event.detail for event in events if event.kind == "acquired"] == ["", "waited"]


async def test_several_locks_time_out_once() -> None:
    events: list[holdfast.Event] = []
    async with holdfast.connect(place(), on_event=events.append) as locks, locks.lock("b"):
        assert await locks.multi(["a", "b"]).try_acquire() is None
        assert await locks.multi(["a", "b"]).try_acquire(timeout=0.6) is None
    told = [(event.name, event.detail) for event in events if event.kind == "timed_out"]
    assert [detail for _, detail in told] == ["busy", "gave up"]
    assert told[1][0] == "b"


async def test_an_attempt_that_the_store_does_not_answer_has_failed() -> None:
    async with scene(place()) as s:
        events: list[holdfast.Event] = []
        s.locks.on_event(events.append)
        s.line.silent = {"acquire"}
        with pytest.raises(holdfast.BackendUnavailable):
            await s.locks.lock("x").acquire(timeout=0.1)
        s.line.silent = set()
    assert [(event.kind, event.name) for event in events] == [("failed", "x")]
    assert events[0].detail


async def test_a_store_that_is_not_reached_fails_the_attempt_and_the_call() -> None:
    events: list[holdfast.Event] = []
    calls: list[holdfast.Call] = []
    locks = holdfast.connect("redis://127.0.0.1:1", on_event=events.append)
    locks.on_call(calls.append)
    with pytest.raises(holdfast.BackendUnavailable):
        await locks.lock("x").acquire(timeout=0.5)
    await locks.close()
    assert [(event.kind, event.name, event.owner) for event in events] == [("failed", "x", "")]
    assert [call.verb for call in calls] == ["open"]
    assert isinstance(calls[0].error, holdfast.BackendUnavailable)


# unasync: aio-only
async def test_an_attempt_that_is_cancelled_was_interrupted() -> None:
    events: list[holdfast.Event] = []
    async with holdfast.connect(place()) as locks, locks.lock("x"):
        locks.on_event(events.append)
        session = await locks._session()
        waiting = Job(locks.lock("x").acquire)
        await eventually(lambda: session.waiters)
        await waiting.cancelled()
        assert [(event.kind, event.detail) for event in events] == [
            ("interrupted", "CancelledError")
        ]


# unasync: end
async def renewals(seconds: float, ttl: float | None = None) -> list[str]:
    """Returns what is told of a renewal that comes `seconds` after the grant, for 30 s."""
    clock = holdfast.ManualClock()
    async with holdfast.connect(place(), clock=clock) as locks:
        events: list[holdfast.Event] = []
        async with locks.lock("x", ttl=30.0) as lease:
            locks.on_event(events.append)
            if ttl is None:
                clock.advance(seconds)
                await eventually(lambda: events)
            else:
                await lease.renew(ttl)
    return [event.detail for event in events if event.kind == "renewed"][:1]


async def test_a_renewal_in_time_is_not_late() -> None:
    assert await renewals(11.0) == [""]


async def test_a_renewal_is_late_when_half_of_the_ttl_is_over() -> None:
    assert await renewals(20.0) == ["late"]


async def test_a_lease_that_is_given_more_time_was_not_late() -> None:
    assert await renewals(0.0, ttl=300.0) == [""]


async def test_calls_to_the_store_are_told() -> None:
    calls: list[holdfast.Call] = []
    locks = holdfast.connect(place())
    locks.on_call(calls.append)
    async with locks:
        async with locks.lock("x"):
            await locks.inspect("x")
        await (await locks.multi(["a", "b"]).acquire()).release()
        await locks.list()
        await locks.force_release("x")
    verbs = [call.verb for call in calls]
    assert verbs[:4] == ["open", "acquire", "inspect", "release"]
    assert {"list", "force_release"} < set(verbs)
    assert all(call.error is None and call.duration >= 0 and call.at > 0 for call in calls)


async def test_a_listener_may_come_late_and_go_early() -> None:
    calls: list[holdfast.Call] = []
    async with holdfast.connect(place()) as locks:
        await locks.lock("x").try_acquire()
        stop = locks.on_call(calls.append)
        locks.on_call(lambda call: None)
        await locks.inspect("x")
        stop()
        await locks.inspect("x")
    assert [call.verb for call in calls] == ["inspect"]


async def test_nothing_stands_before_the_store_while_nobody_listens() -> None:
    async with holdfast.connect(place(), on_event=lambda event: None) as locks:
        session = await locks._session()
        backend = session.backend
        assert type(backend).__name__ != "TimedBackend"
        locks.on_call(lambda call: None)
        assert session.backend.clock is backend.clock


async def test_a_call_that_fails_is_told_with_its_error() -> None:
    async with scene(place()) as s:
        calls: list[holdfast.Call] = []
        s.locks.on_call(calls.append)
        s.line.silent = {"acquire"}
        with pytest.raises(holdfast.BackendUnavailable):
            await s.locks.lock("x").try_acquire()
        s.line.silent = set()
    assert calls[0].verb == "acquire"
    assert isinstance(calls[0].error, holdfast.BackendUnavailable)


async def test_a_broken_listener_of_calls_breaks_no_lock(caplog: pytest.LogCaptureFixture) -> None:
    def fail(call: holdfast.Call) -> None:
        raise ZeroDivisionError

    async with holdfast.connect(place()) as locks:
        locks.on_call(fail)
        async with locks.lock("x") as lease:
            assert lease.held
    assert "a listener failed on the call 'acquire'" in caplog.text


async def test_metrics_show_what_is_held_and_what_waits() -> None:
    metrics = Metrics(group=":")
    async with holdfast.connect(place()) as locks:
        metrics.watch(locks)
        async with locks.lock("invoice:1"), locks.lock("job:1"):
            session = await locks._session()
            waiting = Job(locks.lock("job:1").acquire)
            await eventually(lambda: session.waiters)
            shown = metrics.text()
            assert 'holdfast_leases{group="invoice"} 1\n' in shown
            assert 'holdfast_leases{group="job"} 1\n' in shown
            assert 'holdfast_waiters{group="job"} 1\n' in shown
        await (await waiting.result()).release()
        shown = metrics.text()
        assert 'holdfast_leases{group="job"} 0\n' in shown
        assert 'holdfast_waiters{group="job"} 0\n' in shown
        assert 'holdfast_attempts_total{outcome="after_waiting",group="job"} 1\n' in shown
        assert 'holdfast_attempts_total{outcome="at_once",group="job"} 1\n' in shown
        assert 'holdfast_hold_seconds_count{group="job"} 2\n' in shown
        assert 'holdfast_wait_seconds_count{outcome="granted",group="job"} 2\n' in shown
        assert 'holdfast_store_call_seconds_count{verb="acquire"}' in shown


async def test_what_was_held_before_it_was_watched_is_shown_once() -> None:
    metrics = Metrics(group=":")
    async with holdfast.connect(place()) as locks, locks.lock("job:1"):
        metrics.watch(locks)
        for _ in range(3):
            assert 'holdfast_leases{group="job"} 1\n' in metrics.text()
