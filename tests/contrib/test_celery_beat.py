"""Celery: beats of which one sends each entry, in one process."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from celery import Celery
from celery.beat import Scheduler
from celery.schedules import crontab, schedule

import holdfast
from holdfast.contrib.celery import OnceForAllBeats, locks_of, stopping
from holdfast.contrib.celery import beat as beat_module

from .programs import LIMIT, until


class Beat(OnceForAllBeats, Scheduler):  # type: ignore[misc]
    """A beat in this process, without a file and without a broker."""

    sent: list[str]

    def send_task(self, task: str, args: list[bool], *_: Any, **options: Any) -> None:
        if args:
            raise OSError("the broker is away")
        self.sent.append(task)


def beat_of(app: Celery, schedule: Any, **entry: Any) -> Beat:
    """Returns a beat whose entry has been due for long, beside one that is not due."""
    long_ago = datetime.now(UTC) - timedelta(days=400)
    common = {"task": "work", "last_run_at": long_ago, **entry}
    app.conf.beat_schedule = {
        "work": {"schedule": schedule, **common},
        "later": {"schedule": 7200.0, "task": "work", "last_run_at": datetime.now(UTC)},
    }
    beat = Beat(app=app)
    beat.sent = []
    return beat


IN_HALF_A_YEAR = (datetime.now(UTC).month + 5) % 12 + 1


@pytest.mark.parametrize(
    "schedule",
    [3600.0, crontab(minute=0, hour=0, day_of_month=1, month_of_year=IN_HALF_A_YEAR)],
)
def test_what_one_beat_has_sent_the_others_do_not(app: Celery, schedule: Any) -> None:
    failing = beat_of(app, schedule, args=[True])
    assert failing.tick() == 0
    first, second = beat_of(app, schedule), beat_of(app, schedule)
    assert first.tick() == 0
    assert first.sent == ["work"]  # the beat that failed has given its slot back
    for beat in (first, second):
        for _ in range(3):
            beat.tick()
        assert beat.tick() > 0
    assert [failing.sent, first.sent, second.sent] == [[], ["work"], []]
    for beat in (failing, first, second):
        beat.close()


def test_a_changed_schedule_takes_effect_at_once(app: Celery) -> None:
    first = beat_of(app, 86_400.0)
    first.tick()
    changed = beat_of(app, 86_401.0)
    changed.tick()
    assert [first.sent, changed.sent] == [["work"], ["work"]]
    for beat in (first, changed):
        beat.close()


def test_applications_on_one_store_have_slots_of_their_own(app: Celery) -> None:
    other = Celery("other", broker="memory://", set_as_current=False)
    other.conf.holdfast_url = app.conf.holdfast_url
    beats = [beat_of(app, 3600.0), beat_of(other, 3600.0)]
    for beat in beats:
        beat.tick()
        assert beat.sent == ["work"]
        beat.close()
    locks_of(other).close()
    other.close()


class Strange(schedule):  # type: ignore[misc]
    """A schedule of which nothing is known; two of them look different."""

    run_every = None

    def __init__(self) -> None: ...


@pytest.mark.parametrize(
    ("make", "others"),
    [
        (lambda: schedule(60.0), [schedule(60.001), schedule(timedelta(days=1))]),
        (lambda: crontab(minute="*/5"), [crontab(minute="*/6"), crontab(hour="*/5")]),
        (lambda: crontab(day_of_week="mon,fri"), [crontab(day_of_week="mon")]),
        (Strange, []),
    ],
)
def test_equal_schedules_have_equal_marks(make: Callable[[], Any], others: list[Any]) -> None:
    mark = beat_module.mark_of(make())
    assert mark == beat_module.mark_of(make())
    assert mark not in [beat_module.mark_of(other) for other in others]


@pytest.mark.parametrize("other_is_first", [True, False])
def test_a_beat_whose_slot_has_ended_asks_again(
    app: Celery, monkeypatch: pytest.MonkeyPatch, other_is_first: bool
) -> None:
    monkeypatch.setattr(beat_module, "TTL", 1.0)
    other = beat_of(app, 3600.0)

    class Slow(Beat):
        def reserve(self, entry: Any) -> Any:
            slot = self._slots[entry.name]
            locks_of(app).force_release(slot.name)
            until(lambda: not slot.held)  # as after a long pause
            if other_is_first:
                other.tick()
            return super().reserve(entry)

    slow = Slow(app=app)
    slow.sent = []
    slow.tick()
    other.tick()
    assert slow.sent == ([] if other_is_first else ["work"])
    assert other.sent == (["work"] if other_is_first else [])
    for beat in (slow, other):
        beat.close()


def test_a_beat_without_a_store_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_URL", "")
    nameless = Celery("nameless", broker="memory://", set_as_current=False)
    with pytest.raises(holdfast.ConfigError, match="holdfast_url"):
        Beat(app=nameless)
    nameless.close()


def test_a_beat_that_cannot_ask_sends_nothing(app: Celery) -> None:
    app.conf.holdfast_url = "redis://127.0.0.1:1/0"
    beat = beat_of(app, 3600.0)
    for _ in range(2):
        assert 0 < beat.tick() <= 1.0  # the store is asked again, but not without a pause
    assert not beat.sent
    beat.close()


@pytest.fixture
def stops() -> Iterator[None]:
    """Has signals end a beat as Celery does it."""

    def stop(number: int, frame: object) -> None:
        raise SystemExit

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        assert signal.getsignal(number) is stop
        signal.signal(number, handler)


@pytest.mark.usefixtures("stops")
@pytest.mark.parametrize("sent_by_then", [True, False])
def test_a_beat_that_is_stopped_while_it_sends_keeps_the_slot(
    app: Celery, sent_by_then: bool
) -> None:
    other = beat_of(app, 3600.0)

    class Stopped(Beat):
        def send_task(self, *args: Any, **options: Any) -> None:
            if not sent_by_then:
                signal.raise_signal(signal.SIGTERM)
            super().send_task(*args, **options)
            if sent_by_then:
                signal.raise_signal(signal.SIGTERM)

    stopped = Stopped(app=app)
    stopped.sent = []
    with pytest.raises(SystemExit):
        stopped.tick()
    stopped.close()
    other.tick()
    assert [stopped.sent, other.sent] == [["work"], []]
    other.close()


@pytest.mark.usefixtures("stops")
@pytest.mark.parametrize("second", [True, False])
def test_a_beat_whose_broker_is_silent_ends_by_a_second_signal_or_after_a_while(
    app: Celery, monkeypatch: pytest.MonkeyPatch, second: bool
) -> None:
    monkeypatch.setattr(stopping, "PATIENCE", LIMIT if second else 0.1)
    other = beat_of(app, 3600.0)

    class Silent(Beat):
        def send_task(self, *args: Any, **options: Any) -> None:
            signal.raise_signal(signal.SIGTERM)
            if second:
                signal.raise_signal(signal.SIGINT)
            until(lambda: False)

    silent = Silent(app=app)
    with pytest.raises(SystemExit):
        silent.tick()
    silent.close()
    other.tick()
    assert other.sent == ["work"]
    other.close()
