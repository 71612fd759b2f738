"""Threads that share one lease: its bodies come and go at the same moments, and none is overlooked."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from threading import Event
from typing import Any

import pytest

import holdfast
from holdfast._runtime.threads import current
from holdfast._sync.keeper import Keeper
from holdfast._sync.lock import Lock
from worlds.threads import Job, eventually

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
        forget = Keeper.forget

        def late(keeper: Keeper, hold: Any) -> None:
            """Comes when the body is over, and before its lease is being released at the store."""
            monkeypatch.undo()
            with pytest.raises(holdfast.LeaseLost, match="being released"):
                Job(lease.__enter__).result()
            forget(keeper, hold)

        with lease:
            monkeypatch.setattr(Keeper, "forget", late)
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


def test_a_renewal_beside_a_release_is_told_no_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    """The store says that the lease is gone, before the release has heard that it was the reason."""
    with holdfast.connect("memory://") as locks:
        lease = locks.lock("x").acquire()
        backend: Any = lease._hold._session.backend
        release = backend.release

        def slow(*arguments: Any) -> bool:
            answer: bool = release(*arguments)
            with pytest.raises(holdfast.LeaseLost, match="being released"):
                Job(lease.renew).result()
            return answer

        monkeypatch.setattr(backend, "release", slow)
        lost: list[object] = []
        lease.on_lost(lost.append)
        assert lease.release()
        assert lease.state == "released"
        assert not lost


def test_two_that_enter_an_object_by_hand_at_once() -> None:
    """As an ExitStack does. One is refused, and the other leaves what it has entered itself."""
    noted, left = Event(), Event()

    class Slow(list[Any]):
        def append(self, one: Any) -> None:
            super().append(one)
            if len(self) > 1:
                noted.set()
                assert left.wait(20.0)

    with holdfast.connect("memory://") as locks:
        lock = locks.semaphore("x", permits=2)
        lock._by_hand = Slow()
        acquired = Event()
        to_enter = lock._to_enter

        def enter() -> None:
            second = ThisLock(lock._opening, lock._request)
            second._by_hand = lock._by_hand
            with ExitStack() as stack:
                stack.enter_context(second)

        class ThisLock(Lock):
            def _to_enter(self) -> holdfast.Lease:
                lease = to_enter()
                acquired.set()
                eventually(lambda: lock._by_hand)
                return lease

        job = Job(enter)
        assert acquired.wait(20.0)
        with ExitStack() as stack:
            lease = stack.enter_context(lock)
            eventually(lambda: noted.is_set() or job.done())
        left.set()
        assert not lease.held
        assert isinstance(job.error(), holdfast.ConfigError)
        assert not lock._by_hand
        assert not locks.inspect("x").held


def test_an_entry_by_hand_that_was_interrupted_is_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with holdfast.connect("memory://") as locks:
        lock = locks.lock("x")
        note = Lock._note_by_hand

        def interrupted(*arguments: Any) -> None:
            note(*arguments)
            raise KeyboardInterrupt

        monkeypatch.setattr(Lock, "_note_by_hand", interrupted)
        with pytest.raises(KeyboardInterrupt), ExitStack() as stack:
            stack.enter_context(lock)
        monkeypatch.undo()
        with ExitStack() as stack:
            assert stack.enter_context(lock).held
        assert not locks.inspect("x").held
