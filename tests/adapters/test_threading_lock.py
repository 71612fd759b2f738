"""The locks that go by the interface of `threading`: each test is run on the originals as well."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import holdfast
from holdfast.adapters import ThreadingLock, ThreadingRLock
from worlds.threads import Job, eventually

Make = Callable[[], Any]
_numbers = itertools.count(1)


@pytest.fixture
def locks() -> Iterator[holdfast.Locks]:
    with holdfast.connect(f"memory://threading-{next(_numbers)}") as made:
        yield made


@pytest.fixture(params=["original", "adapter"])
def lock(request: pytest.FixtureRequest, locks: holdfast.Locks) -> Any:
    return threading.Lock() if request.param == "original" else ThreadingLock(locks, "x")


@pytest.fixture(params=["original", "adapter"])
def rlock(request: pytest.FixtureRequest, locks: holdfast.Locks) -> Any:
    return threading.RLock() if request.param == "original" else ThreadingRLock(locks, "r")


def test_acquire_and_release(lock: Any) -> None:
    assert not lock.locked()
    assert lock.acquire() is True
    assert lock.locked()
    assert lock.acquire(False) is False
    assert lock.acquire(blocking=False) is False
    assert lock.acquire(timeout=0.1) is False
    assert lock.acquire(True, 0.1) is False
    lock.release()
    assert not lock.locked()
    assert lock.acquire(timeout=5) is True
    lock.release()


def test_bad_arguments(lock: Any, rlock: Any) -> None:
    for one in (lock, rlock):
        with pytest.raises(ValueError, match="non-blocking"):
            one.acquire(False, 1)
        with pytest.raises(ValueError, match=r"non-negative|positive"):
            one.acquire(timeout=-2)
        with pytest.raises(OverflowError):
            one.acquire(timeout=1e100)


def test_an_unlocked_one_cannot_be_released(lock: Any, rlock: Any) -> None:
    for one in (lock, rlock):
        with pytest.raises(RuntimeError):
            one.release()
        one.acquire()
        one.release()
        with pytest.raises(RuntimeError):
            one.release()


def test_with(lock: Any, rlock: Any) -> None:
    for one in (lock, rlock):
        with one as entered:
            assert entered is True
            assert Job(one.acquire, False).result() is False
        with pytest.raises(KeyError), one:
            raise KeyError("its own")
        assert Job(one.acquire, False).result() is True


def test_another_thread_may_release_a_lock(lock: Any) -> None:
    Job(lock.acquire).result()
    assert lock.locked()
    lock.release()
    assert not lock.locked()


def test_a_waiter_gets_it(lock: Any) -> None:
    lock.acquire()
    waiting = Job(lock.acquire)
    assert not waiting.done()
    lock.release()
    assert waiting.result() is True
    lock.release()


def test_an_rlock_is_taken_again(rlock: Any) -> None:
    with rlock, rlock:
        assert rlock.acquire() is True
        rlock.release()
        assert Job(rlock.acquire, False).result() is False
    assert Job(rlock.acquire, False).result() is True


def test_another_thread_may_not_release_an_rlock(rlock: Any) -> None:
    rlock.acquire()
    assert isinstance(Job(rlock.release).error(), RuntimeError)
    rlock.release()


def test_threads_are_kept_apart(lock: Any) -> None:
    inside: list[int] = []
    counted: list[int] = []

    def work() -> None:
        for _ in range(20):
            with lock:
                inside.append(1)
                assert len(inside) == 1
                counted.append(1)
                inside.pop()

    jobs = [Job(work) for _ in range(8)]
    for job in jobs:
        job.result()
    assert len(counted) == 160


# What differs from the originals.


def test_processes_are_kept_apart_too(locks: holdfast.Locks) -> None:
    with holdfast.connect(locks.url) as others:
        mine, theirs = ThreadingLock(locks, "x"), ThreadingLock(others, "x")
        with mine:
            assert theirs.acquire(False) is False
            assert theirs.locked() is True
            assert theirs.lease is None
            assert mine.lease is not None
            assert mine.lease.token > 0


@pytest.mark.parametrize("kind", [ThreadingLock, ThreadingRLock])
def test_one_that_was_lost_says_so(locks: holdfast.Locks, kind: type[ThreadingLock]) -> None:
    lock = kind(locks, "x", ttl=0.2, renew=False)
    lock.acquire()
    lease = lock.lease
    assert lease is not None
    eventually(lambda: not lease.held)
    with pytest.raises(holdfast.LeaseLost):
        lock.release()

    def body() -> None:
        with lock:
            assert lock.lease is not None
            assert lock.lease.wait_lost(20.0)

    with pytest.raises(holdfast.LeaseLost):
        body()


def test_who_lost_it_does_not_release_the_next_ones(locks: holdfast.Locks) -> None:
    lock = ThreadingLock(locks, "x", ttl=30.0)
    lock.acquire()
    locks.force_release("x")
    assert lock.lease is not None
    with pytest.raises(holdfast.LeaseLost):
        lock.lease.renew()
    assert Job(lock.acquire).result() is True
    with pytest.raises(holdfast.LeaseLost):
        lock.release()
    assert lock.locked()
    lock.release()
    assert not lock.locked()


@pytest.mark.parametrize("kind", [ThreadingLock, ThreadingRLock])
def test_a_condition_is_refused(locks: holdfast.Locks, kind: type[ThreadingLock]) -> None:
    lock: Any = kind(locks, "x")
    with pytest.raises(holdfast.ConfigError, match="Condition"):
        threading.Condition(lock)


def test_bad_names_and_options_are_refused(locks: holdfast.Locks) -> None:
    with pytest.raises(holdfast.ConfigError):
        ThreadingLock(locks, "")
    with pytest.raises(holdfast.ConfigError):
        ThreadingRLock(locks, "x", ttl=0)


# What fails, or is interrupted.


@pytest.fixture
def one_unanswered(monkeypatch: pytest.MonkeyPatch, locks: holdfast.Locks) -> Callable[[], None]:
    """Returns a function after which the store leaves one release unanswered."""
    release = holdfast.Lease.release

    def fail_once(lease: holdfast.Lease) -> bool:
        monkeypatch.setattr(holdfast.Lease, "release", release)
        raise holdfast.BackendUnavailable("no answer")

    return lambda: monkeypatch.setattr(holdfast.Lease, "release", fail_once)


@pytest.mark.parametrize("kind", [ThreadingLock, ThreadingRLock])
def test_a_release_that_was_not_answered_may_be_tried_again(
    locks: holdfast.Locks, one_unanswered: Callable[[], None], kind: type[ThreadingLock]
) -> None:
    lock = kind(locks, "x")
    lock.acquire()
    one_unanswered()
    with pytest.raises(holdfast.BackendUnavailable):
        lock.release()
    assert lock.lease is not None
    assert lock.locked()
    lock.release()
    assert lock.lease is None
    assert not lock.locked()
    with pytest.raises(RuntimeError):
        lock.release()


@pytest.mark.parametrize("failing", [0, 1])
def test_one_of_two_releases_that_was_not_answered_may_be_tried_again(
    locks: holdfast.Locks, one_unanswered: Callable[[], None], failing: int
) -> None:
    lock = ThreadingRLock(locks, "x")
    lock.acquire()
    lock.acquire()
    for number in range(2):
        if number == failing:
            one_unanswered()
            with pytest.raises(holdfast.BackendUnavailable):
                lock.release()
        assert lock.locked()
        lock.release()
    assert not lock.locked()
    with pytest.raises(RuntimeError):
        lock.release()


@pytest.mark.parametrize("kind", [ThreadingLock, ThreadingRLock])
def test_an_exception_at_the_door_leaves_nothing(
    locks: holdfast.Locks, monkeypatch: pytest.MonkeyPatch, kind: type[ThreadingLock]
) -> None:
    lock = kind(locks, "x")

    def interrupted(lease: object) -> None:
        raise KeyError("at the door")

    with monkeypatch.context() as patch:
        patch.setattr(holdfast.Lease, "__enter__", interrupted)
        with pytest.raises(KeyError, match="at the door"), lock:
            pytest.fail("it was entered")
    assert_free(lock)


def test_an_exception_at_an_inner_door_leaves_the_outer_one(
    locks: holdfast.Locks, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = ThreadingRLock(locks, "x")

    def interrupted(lease: object) -> None:
        raise KeyError("at the door")

    with lock:
        with monkeypatch.context() as patch:
            patch.setattr(holdfast.Lease, "__enter__", interrupted)
            with pytest.raises(KeyError, match="at the door"), lock:
                pytest.fail("it was entered")
        assert lock.locked()
    assert_free(lock)


class Interrupted:
    """A mutex behind whose first release an exception comes from a signal's handler."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._told = False

    def __enter__(self) -> None:
        self._mutex.acquire()

    def __exit__(self, *error: object) -> None:
        self._mutex.release()
        if not self._told:
            self._told = True
            raise KeyError("by a signal")


@pytest.mark.parametrize("kind", [ThreadingLock, ThreadingRLock])
@pytest.mark.parametrize("verb", ["acquire", "__enter__"])
def test_an_exception_while_the_lease_is_noted_leaves_nothing(
    locks: holdfast.Locks, kind: type[ThreadingLock], verb: str
) -> None:
    lock = kind(locks, "x")
    mutex: Any = Interrupted()
    lock._mutex = mutex
    with pytest.raises(KeyError, match="by a signal"):
        getattr(lock, verb)()
    assert_free(lock)


@pytest.mark.parametrize("verb", ["acquire", "__enter__"])
def test_an_exception_before_the_lease_is_noted_leaves_nothing(
    locks: holdfast.Locks, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    lock = ThreadingLock(locks, "x")

    def interrupted(*arguments: object) -> None:
        raise KeyError("by a signal")

    with monkeypatch.context() as patch:
        patch.setattr(ThreadingLock, "_note", interrupted)
        with pytest.raises(KeyError, match="by a signal"):
            getattr(lock, verb)()
    assert_free(lock)


@pytest.mark.parametrize("verb", ["acquire", "__enter__"])
def test_an_exception_before_an_inner_lease_is_noted_leaves_the_outer_one(
    locks: holdfast.Locks, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    lock = ThreadingRLock(locks, "x")

    def interrupted(*arguments: object) -> None:
        raise KeyError("by a signal")

    with lock:
        with monkeypatch.context() as patch:
            patch.setattr(ThreadingLock, "_note", interrupted)
            with pytest.raises(KeyError, match="by a signal"):
                getattr(lock, verb)()
        assert lock.locked()
    assert_free(lock)


def assert_free(lock: ThreadingLock) -> None:
    """Checks that nobody holds it, here or at the store."""
    assert lock.lease is None
    assert not lock.locked()
    assert lock.acquire(False) is True
    lock.release()
    assert not lock.locked()
