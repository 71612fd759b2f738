"""Spans: one for each wait, one for as long as a lease is held, and whose children they are."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Callable

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import INVALID_SPAN, StatusCode, use_span

import holdfast
import holdfast.aio
from holdfast.tracing import HOLD, NAME, OUTCOME, OWNER, STORE, TOKEN, WAIT, hold_span, instrument

_numbers = itertools.count()


class Scene:
    def __init__(self) -> None:
        self.url = f"memory://tracing-{next(_numbers)}"
        self.provider = TracerProvider()
        self._exporter = InMemorySpanExporter()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracer = self.provider.get_tracer("test")

    def spans(self, title: str) -> list[ReadableSpan]:
        return [span for span in self._exporter.get_finished_spans() if span.name == title]

    def instrument(self, locks: holdfast.Locks | holdfast.aio.Locks) -> Callable[[], None]:
        return instrument(locks, tracer_provider=self.provider)


@pytest.fixture
def scene() -> Scene:
    return Scene()


def parent_of(span: ReadableSpan) -> int | None:
    return span.parent.span_id if span.parent is not None else None


def test_a_wait_and_a_hold_are_children_of_the_current_span(scene: Scene) -> None:
    with holdfast.connect(scene.url) as locks:
        scene.instrument(locks)
        with scene.tracer.start_as_current_span("request") as request, locks.lock("x") as lease:
            token, owner = lease.token, lease.owner
        (wait,), (hold,) = scene.spans(WAIT), scene.spans(HOLD)
        for span in (wait, hold):
            assert parent_of(span) == request.get_span_context().span_id
            assert span.attributes is not None
            assert span.attributes[NAME] == "x"
            assert span.attributes[TOKEN] == token
            assert span.attributes[OWNER] == owner
            assert span.attributes[STORE] == "memory"
        assert wait.attributes is not None
        assert hold.attributes is not None
        assert wait.attributes[OUTCOME] == "at_once"
        assert hold.attributes[OUTCOME] == "released"
        assert hold.status.status_code == StatusCode.UNSET
        assert wait.end_time is not None
        assert hold.start_time is not None
        assert hold.end_time is not None
        assert wait.end_time == hold.start_time <= hold.end_time


def test_a_lock_that_was_not_granted_has_a_wait_only(scene: Scene) -> None:
    with holdfast.connect(scene.url) as locks, locks.lock("x"):
        scene.instrument(locks)
        assert locks.lock("x").try_acquire() is None
        assert locks.lock("x").try_acquire(timeout=0.05) is None
        outcomes = [dict(span.attributes or {})[OUTCOME] for span in scene.spans(WAIT)]
        assert outcomes == ["busy", "timed_out"]
        assert scene.spans(HOLD) == []
        late = scene.spans(WAIT)[1]
        assert late.start_time is not None
        assert late.end_time is not None
        assert late.end_time - late.start_time >= 0.049e9


def test_a_loss_is_an_event_of_the_span(scene: Scene) -> None:
    with holdfast.connect(scene.url) as locks:
        scene.instrument(locks)
        lease = locks.lock("x", max_hold=0.05).acquire()
        assert lease.wait_lost(20.0)
    (hold,) = scene.spans(HOLD)
    assert dict(hold.attributes or {})[OUTCOME] == "lost"
    assert hold.status.status_code == StatusCode.ERROR
    (loss,) = hold.events
    assert loss.name == "lease lost"
    assert dict(loss.attributes or {})["reason"] == "its max_hold is over"


def test_a_store_that_is_not_reached_is_an_error(scene: Scene) -> None:
    locks = holdfast.connect("redis://127.0.0.1:1")
    scene.instrument(locks)
    with pytest.raises(holdfast.BackendUnavailable):
        locks.lock("x").acquire(timeout=0.5)
    locks.close()
    (wait,) = scene.spans(WAIT)
    assert wait.status.status_code == StatusCode.ERROR
    assert dict(wait.attributes or {})[OUTCOME] == "failed"


def test_each_thread_has_its_own_parent(scene: Scene) -> None:
    parents: dict[str, int] = {}

    def work(name: str) -> None:
        with scene.tracer.start_as_current_span(name) as span:
            parents[name] = span.get_span_context().span_id
            with locks.lock("shared"):
                pass

    with holdfast.connect(scene.url) as locks:
        scene.instrument(locks)
        threads = [threading.Thread(target=work, args=(f"t{number}",)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for title in (WAIT, HOLD):
        assert sorted(map(str, map(parent_of, scene.spans(title)))) == sorted(
            map(str, parents.values())
        )


def test_each_task_has_its_own_parent(scene: Scene) -> None:
    parents: dict[str, int] = {}

    async def work(locks: holdfast.aio.Locks, name: str) -> None:
        with scene.tracer.start_as_current_span(name) as span:
            parents[name] = span.get_span_context().span_id
            async with locks.lock("shared"):
                await asyncio.sleep(0)

    async def main() -> None:
        async with holdfast.aio.connect(scene.url) as locks:
            scene.instrument(locks)
            await asyncio.gather(*(work(locks, f"t{number}") for number in range(8)))

    asyncio.run(main())
    for title in (WAIT, HOLD):
        assert sorted(map(str, map(parent_of, scene.spans(title)))) == sorted(
            map(str, parents.values())
        )


def test_what_happens_under_a_lease_may_be_a_child_of_its_span(scene: Scene) -> None:
    with holdfast.connect(scene.url) as locks:
        scene.instrument(locks)
        with locks.lock("x") as lease, use_span(hold_span(lease)):
            scene.tracer.start_span("work").end()
        assert hold_span(lease) is INVALID_SPAN
    (hold,), (work,) = scene.spans(HOLD), scene.spans("work")
    assert hold.context is not None
    assert parent_of(work) == hold.context.span_id


def test_who_stops_ends_what_is_open(scene: Scene) -> None:
    with holdfast.connect(scene.url) as locks:
        stop = scene.instrument(locks)
        with locks.lock("x"):
            stop()
            assert len(scene.spans(HOLD)) == 1
        with locks.lock("y"):
            pass
        assert len(scene.spans(HOLD)) == 1
