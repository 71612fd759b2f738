"""Threads that share one lease: its bodies come and go at the same moments, and none is overlooked."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any

import pytest

import holdfast
from holdfast._runtime.threads import current
from worlds.threads import Job

THREADS, ROUNDS, LOOKS = 8, 300, 3


@pytest.fixture
def switches() -> Iterator[None]:
    """Threads take turns as often as Python can."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


@pytest.mark.usefixtures("switches")
def test_no_body_is_overlooked() -> None:
    with holdfast.connect("memory://") as locks, locks.lock("x").acquire() as lease:

        def work() -> None:
            me = current()
            for _ in range(ROUNDS):
                with lease:
                    for _ in range(LOOKS):
                        assert any(body.runner is me for body in list(lease._hold._usage.bodies))

        for job in [Job(work) for _ in range(THREADS)]:
            job.result()
        assert lease.held
        assert len(lease._hold._usage.bodies) == 1
    assert not lease.held


def test_two_that_release_at_once_lose_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer to the second overtakes that to the first: it was released, not lost."""
    with holdfast.connect("memory://") as locks:
        lease = locks.lock("x").acquire()
        backend: Any = lease._hold._session.backend
        release = backend.release
        freed, overtaken = Event(), Event()

        def slow(*arguments: Any) -> bool:
            answer: bool = release(*arguments)
            if answer:
                freed.set()
                assert overtaken.wait(20.0)
            return answer

        monkeypatch.setattr(backend, "release", slow)
        lost: list[object] = []
        lease.on_lost(lost.append)
        first = Job(lease.release)
        assert freed.wait(20.0)
        second = lease.release()
        overtaken.set()
        assert sorted([first.result(), second]) == [False, True]
        assert lease.state == "released"
        assert not lost


def test_a_body_does_not_begin_while_the_last_one_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    with holdfast.connect("memory://") as locks:
        lease = locks.lock("x").acquire()
        backend: Any = lease._hold._session.backend
        release = backend.release

        def late(*arguments: Any) -> bool:
            monkeypatch.undo()
            with pytest.raises(holdfast.LeaseLost, match="being released"):
                Job(lease.__enter__).result()
            return bool(release(*arguments))

        with lease:
            monkeypatch.setattr(backend, "release", late)
        assert lease.state == "released"


@pytest.mark.usefixtures("switches")
def test_a_re_entrant_lock_is_not_taken_again_while_another_thread_releases_it() -> None:
    """A generator that was entered here may be left anywhere."""
    with holdfast.connect("memory://") as locks, ThreadPoolExecutor(1) as elsewhere:
        lock = locks.rlock("x")
        for _ in range(ROUNDS):
            left = elsewhere.submit(lock.acquire().release)
            again = lock.acquire()
            assert left.result()
            assert again.held
            assert locks.inspect("x").holders[0].token == again.token
            again.release()
            assert not locks.inspect("x").held
