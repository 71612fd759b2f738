"""An interrupt (^C) at a place where it did lasting harm, found by sending many at random moments."""

from __future__ import annotations

import gc
import os
import signal
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import holdfast
import holdfast._sync.lock as lock_module
from holdfast._runtime import threads
from holdfast._runtime.threads import poller as poller_module
from holdfast._sync import hold, waiting
from holdfast._sync.closing import Closing
from holdfast._sync.entering import Exit
from holdfast._sync.hold import Hold
from holdfast._sync.keeper import Keeper
from holdfast._sync.reentrant import ReentrantHold
from holdfast._sync.session import Session
from holdfast._sync.usage import Usage
from holdfast.clock import BootClock
from holdfast.stores.memory import rows
from worlds.stalls import Stalls
from worlds.threads import Job, eventually


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
        with Stalls() as stalls:
            locks.close()
        took = time.monotonic() - started
        assert took < 4.5 + stalls.seconds, "close() waited for an attempt that had ended"


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


@pytest.mark.filterwarnings("error:.*never closed:ResourceWarning")
@pytest.mark.filterwarnings("ignore:the lease on:ResourceWarning")
@pytest.mark.parametrize(
    ("part", "step"), [(Session, "close"), (Hold, "release"), (Keeper, "close")]
)
def test_close_that_is_interrupted_is_finished_when_the_manager_is_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: Any, step: str
) -> None:
    """At the end of `with`, say, where nobody can call it again."""
    url = f"sqlite://{tmp_path}/locks.db"

    def interrupted() -> Any:
        locks = holdfast.connect(url)
        leases = [locks.lock(f"x{number}", ttl=90.0).acquire() for number in range(3)]
        interrupt_once(monkeypatch, part, step)
        with suppress(KeyboardInterrupt), locks:
            pass
        assert len(leases) == 3  # they are there until now
        assert locks._live is not None
        assert not locks._live.finished
        return locks._live

    session = interrupted()
    gc.collect()
    eventually(lambda: session.finished)
    with holdfast.connect(url) as others:
        for number in range(3):
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


class Stop(Exception):
    """Raised by a handler of a signal."""


@pytest.fixture
def stopping() -> Iterator[None]:
    """Has SIGUSR1 raise `Stop`."""

    def stop(number: int, frame: object) -> None:
        raise Stop

    before = signal.signal(signal.SIGUSR1, stop)
    yield
    signal.signal(signal.SIGUSR1, before)


def test_as_the_turn_to_open_is_taken(stopping: None, monkeypatch: pytest.MonkeyPatch) -> None:
    locks = holdfast.connect("memory://")
    turn = locks._opening._turn
    take = type(turn).take

    def interrupted(one: Any, within: float) -> bool:
        monkeypatch.undo()
        take(one, within)
        signal.raise_signal(signal.SIGUSR1)
        return True

    monkeypatch.setattr(type(turn), "take", interrupted)
    with pytest.raises(Stop):
        locks.lock("x").try_acquire()
    assert Job(locks.lock("x").try_acquire).result() is not None
    locks.close()


def test_a_handler_that_takes_a_lock_while_its_thread_opens(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    locks = holdfast.connect("memory://")
    opener = locks._opening._opener
    taken: list[holdfast.Lease | None] = []

    def make() -> Any:
        backend: Any = opener()
        if not taken:
            taken.append(None)
            taken[0] = locks.lock("inner").try_acquire()  # as a handler would
        return backend

    monkeypatch.setattr(locks._opening, "_opener", make)
    outer = locks.lock("outer").try_acquire()
    assert outer is not None
    assert taken[0] is not None
    assert taken[0].held
    assert outer._hold._session is taken[0]._hold._session
    locks.close()


def test_while_a_lease_is_freed_whose_max_hold_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    with holdfast.connect("memory://held") as others, holdfast.connect("memory://held") as locks:
        session: Any = locks._session()

        def body() -> None:
            with locks.lock("x", ttl=180.0, max_hold=1.0) as lease:
                eventually(lambda: not lease.held)
                interrupt_once(monkeypatch, session.backend, "release")

        with pytest.raises(KeyboardInterrupt):
            body()
        eventually(lambda: not others.inspect("x").held)


def test_while_an_attempt_of_which_nothing_is_known_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with holdfast.connect("memory://doubt") as others, holdfast.connect("memory://doubt") as locks:
        session: Any = locks._session()
        acquire = session.backend.acquire

        def lost(*arguments: Any) -> Any:
            acquire(*arguments)
            monkeypatch.setattr(session.backend, "acquire", acquire)
            interrupt_once(monkeypatch, session.backend, "release")
            raise holdfast.BackendUnavailable("the answer was lost")

        monkeypatch.setattr(session.backend, "acquire", lost)
        with pytest.raises(KeyboardInterrupt):
            locks.lock("x", ttl=180.0).acquire(timeout=1.0)
        eventually(lambda: not others.inspect("x").held)


def test_as_a_clean_up_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        holdfast.connect("memory://begins") as others,
        holdfast.connect("memory://begins") as locks,
    ):
        session: Any = locks._session()

        def body() -> None:
            with locks.lock("x", ttl=180.0, max_hold=1.0) as lease:
                eventually(lambda: not lease.held)
                interrupt_once(monkeypatch, Closing, "share_rest")

        with pytest.raises(KeyboardInterrupt):
            body()
        eventually(lambda: not others.inspect("x").held)
        assert not session.recalled


def test_before_the_first_line_of_exit_when_its_lease_has_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It was to be freed at the end of its body, which is over."""
    with holdfast.connect("memory://ended") as others, holdfast.connect("memory://ended") as locks:
        session: Any = locks._session()

        def run(thing: Any) -> None:
            with thing as lease:
                eventually(lambda: not lease.held)
                interrupt_once(monkeypatch, Exit, "__call__")

        for thing in (
            locks.lock("x", ttl=180.0, max_hold=1.0),
            locks.multi(["x", "y"], ttl=180.0, max_hold=1.0),
        ):
            with pytest.raises(KeyboardInterrupt):
                run(thing)
            eventually(lambda: not others.list())
            eventually(lambda: not session.recalled)


class Notes(list[Any]):
    """A list in which something was just noted when the interrupt came."""

    def append(self, one: Any) -> None:
        super().append(one)
        raise KeyboardInterrupt


def test_what_was_noted_for_a_call_is_forgotten_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with holdfast.connect("memory://") as locks:
        session: Any = locks._session()
        lease = locks.lock("x").acquire()
        session.renewals.under_way = Notes()
        with pytest.raises(KeyboardInterrupt):
            lease.renew()
        assert not session.renewals.under_way
        session.renewals.under_way = []

        hold: Any = lease._hold
        hold._watchers = Notes()
        with pytest.raises(KeyboardInterrupt):
            lease.wait_lost(10.0)
        assert not hold._watchers
        hold._watchers = None

        text = locks.lock("y").acquire().export()
        interrupt_once(monkeypatch, session, "now")
        with pytest.raises(KeyboardInterrupt):
            locks.adopt(text)
        assert not session.tickets
        locks.adopt(text).release()


def test_as_a_listener_is_told() -> None:
    """Its thread does not count as being inside a callback for ever, or `close` would not wait."""

    class Callers(set[Any]):
        def add(self, one: Any) -> None:
            super().add(one)
            raise KeyboardInterrupt

    with holdfast.connect("memory://") as locks:
        session: Any = locks._session()
        locks.on_event(lambda event: None)
        session.callers = Callers()
        with pytest.raises(KeyboardInterrupt):
            locks.lock("x").try_acquire()
        assert not session.callers
        session.callers = set()
        eventually(lambda: not locks.list())


def test_as_a_reentrant_lock_is_forgotten() -> None:
    class Reentrant(dict[Any, Any]):
        struck = False

        def get(self, key: Any, default: Any = None) -> Any:
            found = super().get(key, default)
            if found is not None and not self.struck:
                self.struck = True
                raise KeyboardInterrupt
            return found

    with holdfast.connect("memory://") as locks:
        session: Any = locks._session()
        session.reentrant = Reentrant()
        with pytest.raises(KeyboardInterrupt), locks.rlock("x"):
            pass
        assert session.reentrant.struck
        assert not session.reentrant
        assert not locks.inspect("x").held


def test_as_the_answer_to_a_release_is_taken_in(monkeypatch: pytest.MonkeyPatch) -> None:
    with holdfast.connect("memory://") as locks:
        session: Any = locks._session()
        lease = locks.lock("x").acquire()
        interrupt_once(monkeypatch, Hold, "_answered")
        with pytest.raises(KeyboardInterrupt):
            lease.release()
        assert lease.state == "released"
        assert not session.leases


def test_as_memory_notes_a_change_of_an_election(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other elections go on."""

    class Interrupted(deque[Any]):
        def append(self, change: Any) -> None:
            raise KeyboardInterrupt

    with holdfast.connect("memory://") as locks:
        with monkeypatch.context() as patch:
            patch.setattr(rows, "deque", Interrupted)
            with pytest.raises(KeyboardInterrupt):
                locks.election("x").campaign()
        with locks.election("y").campaign():
            pass


def test_nothing_comes_between_a_term_and_the_candidate() -> None:
    """A handler may raise wherever something is called: nobody would have the term, and it is kept."""
    with holdfast.connect("memory://") as locks:
        election = locks.election("x")
        behind: list[str] = []
        elected = False

        def watch(frame: Any, event: str, argument: Any) -> None:
            nonlocal elected
            if event == "return" and frame.f_code is lock_module.Lock.acquire.__code__:
                elected = True
            elif elected and frame.f_code is type(election).campaign.__code__:
                behind.append(event)

        sys.setprofile(watch)
        try:
            term = election.campaign()
        finally:
            sys.setprofile(None)
        assert elected
        assert behind == ["return"]
        term.resign()
