"""An interrupt (^C) at a place where it did lasting harm, found by sending many at random moments."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

import holdfast
import holdfast._sync.lock as lock_module
from holdfast._runtime import threads
from holdfast._runtime.threads import poller as poller_module
from holdfast._sync import hold, waiting
from holdfast._sync.entering import Exit
from holdfast._sync.hold import Hold
from holdfast._sync.keeper import Keeper
from holdfast._sync.reentrant import ReentrantHold
from holdfast._sync.session import Session
from holdfast._sync.usage import Usage
from holdfast.clock import BootClock
from worlds.threads import eventually


def interrupt_once(patch: pytest.MonkeyPatch, owner: Any, name: str) -> None:
    """The next call of it is interrupted at its very entry; those after it are not."""
    real = getattr(owner, name)

    def interrupted(*arguments: Any) -> Any:
        patch.setattr(owner, name, real)
        raise KeyboardInterrupt

    patch.setattr(owner, name, interrupted)


def test_while_an_attempt_that_found_it_busy_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"sqlite://{tmp_path}/locks.db"
    with holdfast.connect(url) as others, others.lock("x"):
        locks = holdfast.connect(url)
        locks.inspect("x")
        interrupt_once(monkeypatch, Session, "leave")
        with pytest.raises(KeyboardInterrupt):
            locks.lock("x").try_acquire()
        session: Any = locks._session()
        assert not session.leases
        assert not session.tickets
        started = time.monotonic()
        locks.close()
        assert time.monotonic() - started < 4.5, "close() waited for an attempt that had ended"


def test_while_an_attempt_that_timed_out_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"sqlite://{tmp_path}/locks.db?heartbeat=0.1"
    with holdfast.connect(url) as others, holdfast.connect(url) as locks:
        lease = others.lock("x").acquire()
        locks.inspect("x")
        interrupt_once(monkeypatch, Session, "leave")
        with pytest.raises(KeyboardInterrupt):
            locks.lock("x").try_acquire(timeout=0.3)
        assert not others.inspect("x").waiters, "a ghost waits"
        lease.release()
        assert others.lock("x").try_acquire(timeout=10.0) is not None, "a ghost holds it"


@pytest.mark.parametrize("step", ["current", "_step_down"])
def test_on_the_way_to_and_from_the_lead(monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    """Somebody else has to lead then, or no wake-up is ever read again."""
    clock = BootClock()
    poller = threads.Poller("test")
    read, write = os.pipe()
    signal = threads.Signal(clock)

    def ready() -> None:
        os.read(read, 1)
        signal.set()

    poller.watch(read, ready)
    interrupt_once(monkeypatch, poller_module if step == "current" else threads.Poller, step)
    with pytest.raises(KeyboardInterrupt):
        poller.attend(threads.Signal(clock), clock.now() + 0.01)
    os.write(write, b"x")
    assert poller.attend(signal, clock.now() + 10.0), "nobody polls"
    poller.close()
    os.close(write)


@pytest.mark.parametrize(
    ("part", "step"),
    [(Keeper, "forget"), (Hold, "_release_quietly"), (Hold, "release"), (Hold, "_freed")],
)
def test_while_with_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: Any, step: str
) -> None:
    """Code that left `with` has no lease to release again, and the keeper would go on renewing it."""
    url = f"sqlite://{tmp_path}/locks.db"
    with holdfast.connect(url) as others, holdfast.connect(url) as locks:
        with pytest.raises(KeyboardInterrupt), locks.lock("x"):
            interrupt_once(monkeypatch, part, step)
        assert others.lock("x").try_acquire() is not None
        session: Any = locks._session()
        assert not session.leases


@pytest.mark.parametrize(
    ("part", "step"), [(Session, "clean_up"), (Hold, "release"), (Keeper, "close")]
)
def test_close_that_is_interrupted_is_finished_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: Any, step: str
) -> None:
    """And meanwhile nothing is renewed."""
    url = f"sqlite://{tmp_path}/locks.db"
    locks = holdfast.connect(url)
    leases = [locks.lock(f"x{number}", ttl=90.0).acquire() for number in range(20)]
    leases[0].on_lost(lambda lease: None)
    session: Any = locks._session()
    interrupt_once(monkeypatch, part, step)
    with pytest.raises(KeyboardInterrupt):
        locks.close()
    session.keeper.keep(leases[-1]._hold, 0.0)  # as if it were due
    ends = [lease._hold._deadline for lease in leases]
    locks.close()
    assert [lease._hold._deadline for lease in leases] == ends
    assert not any(lease.held for lease in leases)
    with holdfast.connect(url) as others:
        for number in range(20):
            assert others.lock(f"x{number}").try_acquire() is not None


@pytest.mark.parametrize("step", ["__call__", "_leave"])
@pytest.mark.parametrize("kind", ["lock", "rlock"])
def test_before_the_first_line_of_exit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, step: str
) -> None:
    """Nothing of ours has run then, and Python does not call it again: the keeper frees it."""
    url = f"sqlite://{tmp_path}/locks.db"
    with holdfast.connect(url) as others, holdfast.connect(url) as locks:
        lock = getattr(locks, kind)("x", ttl=3.0)
        with pytest.raises(KeyboardInterrupt), lock:
            interrupt_once(monkeypatch, Exit, step)
        assert others.lock("x").try_acquire(timeout=20.0) is not None
        session: Any = locks._session()
        assert not session.leases


def test_before_the_first_line_of_an_inner_exit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"sqlite://{tmp_path}/locks.db"
    with holdfast.connect(url) as others, holdfast.connect(url) as locks:
        lock = locks.rlock("x", ttl=3.0)
        with lock as lease:
            with pytest.raises(KeyboardInterrupt), lock:
                interrupt_once(monkeypatch, Exit, "__call__")
            end = lease._hold._deadline
            eventually(lambda: lease._hold._deadline > end + 0.5)  # renewed, and not freed
            assert lease.held
            assert others.lock("x").try_acquire() is None
        assert others.lock("x").try_acquire() is not None


def test_on_the_way_out_of_acquire(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody has got the lease then."""
    url = f"sqlite://{tmp_path}/locks.db"
    with holdfast.connect(url) as others, holdfast.connect(url) as locks:

        def obtain(*arguments: Any) -> Any:
            waiting.obtain(*arguments)
            raise KeyboardInterrupt

        monkeypatch.setattr(lock_module, "obtain", obtain)
        with pytest.raises(KeyboardInterrupt):
            locks.lock("x", ttl=3.0).acquire()
        monkeypatch.undo()
        assert others.lock("x").try_acquire(timeout=20.0) is not None


def test_callbacks_that_an_exception_kept_from_being_called_are_called_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"sqlite://{tmp_path}/locks.db"
    with holdfast.connect(url) as locks:
        lease = locks.lock("x", ttl=2.0, max_hold=1.0).acquire()
        told: list[object] = []
        lease.on_lost(told.append)
        interrupt_once(monkeypatch, hold, "tell_lost")
        with pytest.raises(KeyboardInterrupt):
            lease._hold._end("it is a test")
        assert not told
        eventually(lambda: told == [lease])


@pytest.mark.parametrize(("part", "step"), [(Usage, "end"), (ReentrantHold, "release")])
def test_while_an_inner_body_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: Any, step: str
) -> None:
    """The acquisition of each body of a re-entrant lock is given up, once."""
    url = f"sqlite://{tmp_path}/locks.db"
    with holdfast.connect(url) as others, holdfast.connect(url) as locks:
        lock = locks.rlock("x", ttl=30.0)
        with lock as lease:
            with pytest.raises(KeyboardInterrupt), lock:
                interrupt_once(monkeypatch, part, step)
            assert lease._hold._usage.depth == 1
            assert lease.held
        assert others.lock("x").try_acquire(timeout=20.0) is not None


def test_as_a_body_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It never runs, so nobody waits for its end."""
    url = f"sqlite://{tmp_path}/locks.db"
    with holdfast.connect(url) as others, holdfast.connect(url) as locks:
        lock = locks.rlock("x", ttl=30.0)
        begin = Usage.begin

        def interrupted(usage: Usage, body: Any) -> bool:
            monkeypatch.undo()
            begin(usage, body)
            raise KeyboardInterrupt

        with lock as lease:
            monkeypatch.setattr(Usage, "begin", interrupted)
            with pytest.raises(KeyboardInterrupt), lock:
                pass
            assert len(lease._hold._usage.bodies) == 1
            assert lease.held
        assert others.lock("x").try_acquire() is not None


def test_as_a_lease_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was released is not kept for ever among what is held."""
    with holdfast.connect("memory://") as locks:
        lease = locks.lock("x").acquire()
        session = lease._hold._session

        class Watches(list[Any]):
            def clear(self) -> None:
                raise KeyboardInterrupt

        lease._hold._usage.watches = Watches()
        with pytest.raises(KeyboardInterrupt):
            lease.release()
        assert lease.state == "released"
        assert not session.leases


def test_leases_that_come_and_go_leave_no_watch() -> None:
    with holdfast.connect("memory://") as locks:
        lock = locks.rlock("x")
        holds: list[Hold] = []
        for _ in range(10):
            with pytest.warns(ResourceWarning, match="was dropped"):
                holds.append(lock.acquire()._hold)
        assert not holds[-1]._usage.watches
