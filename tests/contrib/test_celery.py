"""Celery: tasks under a lease, and beats, in one process."""

from __future__ import annotations

import multiprocessing
import sys
from itertools import count as numbers
from types import FrameType
from typing import Any

import pytest
from celery import Celery
from celery.app.trace import build_tracer
from celery.exceptions import SoftTimeLimitExceeded

import holdfast
from holdfast.contrib.celery import LockedTask, OnceTask, locks_of, managers
from holdfast.contrib.celery.tasks import LeasedTask

from .programs import said_without, until


def test_a_task_holds_the_lock_that_its_arguments_name(app: Celery) -> None:
    @app.task(shared=False, base=LockedTask, bind=True, lock="invoice:{number}")
    def pay(self: Any, number: int, note: str = "") -> tuple[str, bool]:
        return self.lease.name, self.lease.held

    assert pay.delay(42).get() == ("invoice:42", True)
    assert pay(number=43) == ("invoice:43", True)  # called as a function
    assert not locks_of(app).list()
    with pytest.raises(holdfast.ConfigError, match="only while it runs"):
        assert pay.lease


@pytest.mark.parametrize(("busy", "raises"), [("raise", True), ("retry", True), ("skip", False)])
def test_a_task_whose_lock_others_hold(app: Celery, busy: str, raises: bool) -> None:
    @app.task(shared=False, base=LockedTask, lock="one", busy=busy)
    def work() -> str:
        return "done"

    with locks_of(app).lock("one"):
        if raises:  # nobody would run it later
            with pytest.raises(holdfast.LockTimeout, match="'one'"):
                work.delay()
        else:
            assert work.delay().get() is None
    assert work.delay().get() == "done"


def test_a_task_that_lost_its_lease_fails(app: Celery) -> None:
    @app.task(shared=False, base=LockedTask, lock="one")
    def work() -> None:
        locks_of(app).force_release("one")

    with pytest.raises(holdfast.LeaseLost):
        work.delay()


def test_a_task_runs_once_in_a_period_for_the_same_arguments(app: Celery) -> None:
    @app.task(shared=False, base=OnceTask, once="report:{day}", once_period=3600.0)
    def report(day: str, cost: int = 1) -> int:
        return 1 // cost

    with pytest.raises(ZeroDivisionError):
        report.delay("monday", cost=0)
    assert report.delay("monday").get() == 1  # the failed one does not count
    assert report.delay("monday").get() is None
    assert report.delay("tuesday").get() == 1


def as_a_worker(task: Any, *args: Any) -> tuple[str, Any]:
    """Runs a task as a worker runs a message; returns its state, and its result or error."""
    request = {"id": "1", "task": task.name, "delivery_info": {"routing_key": "celery"}}
    done = build_tracer(task.name, task, app=task.app)("1", args, {}, request)
    return ("SUCCESS", done.retval) if done.info is None else (done.info.state, done.info.retval)


@pytest.mark.parametrize("eager", [True, False])
def test_a_task_that_calls_itself_has_a_lease_for_each_call(app: Celery, eager: bool) -> None:
    @app.task(shared=False, base=LockedTask, bind=True, lock="part:{number}")
    def work(self: Any, number: int) -> list[str]:
        before = self.lease
        inner = work(number - 1) if number else []
        assert self.lease is before
        assert self.lease.held
        assert self.request.called_directly is (number < 2)
        return [*inner, self.lease.name]

    names = ["part:0", "part:1", "part:2"]
    if eager:
        assert work.delay(2).get() == names
    else:
        assert as_a_worker(work, 2) == ("SUCCESS", names)
    assert not locks_of(app).list()


def test_an_inner_call_without_a_lease_does_not_send_the_outer_message_again(app: Celery) -> None:
    app.conf.task_always_eager = False

    @app.task(shared=False, base=LockedTask, lock="part:{number}")
    def work(number: int) -> str:
        if number == 1:
            with pytest.raises(holdfast.LockTimeout, match="'part:2'"):
                work(2)
            work(1)  # which is taken by the outer call
        return "done"

    with locks_of(app).lock("part:2"):
        state, error = as_a_worker(work, 1)
        assert state == "FAILURE"
        assert isinstance(error, holdfast.LockTimeout)
        assert error.name == "part:1"
        assert as_a_worker(work, 2)[0] == "RETRY"  # a message of its own
    assert as_a_worker(work, 2) == ("SUCCESS", "done")


class Interruption:
    """Raises a soft time limit in `_run_leased`, just before the line that is its n-th to run."""

    def __init__(self, at: int) -> None:
        self.left = at

    def __call__(self, frame: FrameType, event: str, arg: object) -> Any:
        return self.line if frame.f_code is LeasedTask._run_leased.__code__ else None

    def line(self, frame: FrameType, event: str, arg: object) -> Any:
        if event == "line":
            self.left -= 1
            if self.left == 0:
                raise SoftTimeLimitExceeded
        return self.line


@pytest.mark.parametrize("base", [LockedTask, OnceTask])
def test_a_time_limit_at_any_moment_leaves_no_lock(app: Celery, base: Any) -> None:
    ran = []

    @app.task(shared=False, base=base, lock="one", once="one", once_period=3600.0)
    def work() -> None:
        ran.append(True)

    for at in numbers(1):
        interruption = Interruption(at)
        before = sys.gettrace()
        sys.settrace(interruption)
        try:
            work()
        except SoftTimeLimitExceeded:
            sys.settrace(before)
        else:
            break
        finally:
            sys.settrace(before)
        if base is OnceTask and ran:
            locks_of(app).force_release("one")  # it was done, and is kept
        until(lambda: not locks_of(app).inspect("one").holders)
        ran.clear()
    assert at > 5  # else there was nothing to interrupt


@pytest.mark.parametrize("setting", ["holdfast_url", "HOLDFAST_URL"])
def test_the_store_is_named_in_the_settings(setting: str) -> None:
    one = Celery("named", set_as_current=False)
    space = "holdfast_namespace" if setting.islower() else "HOLDFAST_NAMESPACE"
    one.config_from_object({setting: "memory://named", space: "shop"})
    with locks_of(one) as locks:
        assert locks.url == "memory://named"
        assert locks.namespace == "shop"


def test_a_manager_that_was_closed_is_followed_by_a_new_one(app: Celery) -> None:
    first = locks_of(app)
    assert locks_of(app) is first
    first.close()
    with locks_of(app).lock("x") as lease:
        assert lease.held


def test_a_child_that_is_forked_while_a_thread_asks_for_the_manager(app: Celery) -> None:
    locks_of(app)
    with managers._mutex:  # as another thread may have it
        child = multiprocessing.get_context("fork").Process(target=locks_of, args=(app,))
        child.start()
    child.join(60.0)
    stuck = child.is_alive()
    if stuck:
        child.kill()
        child.join()
    assert not stuck
    assert child.exitcode == 0


def test_without_a_store_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_URL", "")
    one = Celery("nameless", broker="memory://", set_as_current=False)

    @one.task(shared=False, base=LockedTask, lock="one")
    def work() -> None: ...

    with pytest.raises(holdfast.ConfigError, match="holdfast_url"):
        work()
    monkeypatch.setenv("HOLDFAST_URL", "memory://nameless")
    work()
    locks_of(one).close()


@pytest.mark.parametrize(
    ("base", "wrong"),
    [
        (LockedTask, {}),
        (LockedTask, {"lock": "{other}"}),
        (LockedTask, {"lock": "x", "busy": "perhaps"}),
        (LockedTask, {"lock": "x", "lock_options": {"ttl": -1}}),
        (LockedTask, {"lock": "x", "retry_in": -1}),
        (OnceTask, {"once": "x"}),
    ],
)
def test_settings_that_make_no_sense_are_refused(app: Celery, base: Any, wrong: Any) -> None:
    def work(number: int) -> None: ...

    with pytest.raises(holdfast.ConfigError):
        app.task(shared=False, base=base, **wrong)(work).bind(app)


def test_without_celery_it_says_what_to_install() -> None:
    assert "pip install 'holdfast-locks[celery]'" in said_without(
        "celery", "holdfast.contrib.celery"
    )
