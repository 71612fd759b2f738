"""Case 4: fork. What the parent holds stays the parent's, and the child starts afresh."""

from __future__ import annotations

import os
import signal
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

import holdfast
from faults.actors import run, until
from faults.children import CHILD_LIMIT, ended_well
from holdfast import forks
from holdfast._runtime.threads import Poller, Signal
from holdfast.clock import BootClock
from holdfast.stores.sqlite.gate import Gate

SCENES = ["inherited", "anew", "ends", "killed", "orphaned", "apart", "several", "closed"]


@pytest.mark.parametrize("scene", SCENES)
def test_fork(scene: str, world: str, tmp_path: Path) -> None:
    run("forking", scene, world, str(tmp_path), limit=100.0)


def test_a_fork_inside_a_transaction_of_another_thread(world: str, tmp_path: Path) -> None:
    run("forking_threads", "midway", world, str(tmp_path), limit=100.0)


def test_many_forks_while_threads_are_at_work(tmp_path: Path) -> None:
    run("forking_threads", "busy", "blocking", str(tmp_path), limit=100.0)


def test_forks_do_not_wait_for_the_disk(world: str, tmp_path: Path) -> None:
    """Each fork closes the connection. As the last one of all it would write the log back, which may
    take seconds, outside of the gate: other processes would find the database locked."""
    calls = str(tmp_path / "calls")
    trace = ("strace", "-f", "-y", "-o", calls, "-e", "trace=fdatasync,fsync,write")
    run("forking", "often", world, str(tmp_path), limit=100.0, before=trace)
    whole = Path(calls).read_text()
    assert "sync(" in whole  # when the store was made
    _, begin, rest = whole.partition('/marks>, "begin"')
    between, over, _ = rest.partition('/marks>, "over"')
    assert begin
    assert over
    assert "sync(" not in between


@pytest.mark.parametrize("scene", ["untold", "untold_before_use"])
def test_fork_that_python_was_not_told_of(scene: str, tmp_path: Path) -> None:
    run("forking", scene, "blocking", str(tmp_path), limit=100.0)


def test_forks_that_python_was_not_told_of_while_threads_are_at_work(tmp_path: Path) -> None:
    run("forking_threads", "untold", "blocking", str(tmp_path), limit=100.0)


def test_threads_that_fork_at_once(tmp_path: Path) -> None:
    run("forking_threads", "crowded", "blocking", str(tmp_path), limit=100.0)


@pytest.mark.parametrize("first", ["parent", "child"])
def test_a_fork_while_a_new_store_is_made(first: str, tmp_path: Path) -> None:
    """The child goes on with it: the parent's store was damaged, had no log, or could not be made."""
    run("forked_making", first, str(tmp_path), limit=170.0)


def test_a_handler_that_raises_wherever_it_comes_in_the_hooks(tmp_path: Path) -> None:
    run("forking_interrupted", str(tmp_path), limit=100.0)


def test_memory_in_children_of_busy_threads() -> None:
    run("memory_forks", limit=100.0)


@pytest.mark.parametrize("way", ["close", "next"])
def test_a_generator_of_changes_stays_the_parents(way: str) -> None:
    """A child that ends it, or goes on with it, sends nothing by its parent's connection."""
    with holdfast.connect("memory://generator") as locks:
        changes = locks.election("boss").observe()
        assert next(changes) is None
        session: Any = locks._session()
        reader, writer = os.pipe()

        def note(*arguments: Any) -> None:
            os.write(writer, b"asked ")

        for verb in ("wait", "observe", "unobserve"):
            setattr(session.backend, verb, note)
        child = os.fork()
        if not child:
            try:
                if way == "close":
                    changes.close()
                else:
                    next(changes)
            except holdfast.LockError:
                os.write(writer, b"refused")
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        os.close(writer)
        with open(reader, "rb") as answers:
            assert answers.read() == (b"" if way == "close" else b"refused")
        for verb in ("wait", "observe", "unobserve"):
            delattr(session.backend, verb)
        changes.close()


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize("verb", ["acquire_all", "adopt"])
def test_a_child_that_goes_on_with_the_stores_answer_is_given_nothing(verb: str) -> None:
    """What was granted is its parent's: `multi`, and `adopt`, refuse it, rather than return a lease."""
    with holdfast.connect("memory://answered") as locks:
        exported = locks.lock("x", ttl=30.0).acquire().export()
        session: Any = locks._session()
        real = getattr(session.backend, verb)
        children: list[int] = []

        def forking(*arguments: Any) -> Any:
            answer = real(*arguments)
            if not children:
                children.append(os.fork())
                if children[0]:
                    ended_well(children[0])
            return answer

        setattr(session.backend, verb, forking)
        parent = os.getpid()
        lease: Any = None
        try:
            if verb == "adopt":
                lease = locks.adopt(exported)
            else:
                lease = locks.multi(["y", "z"], ttl=30.0).acquire(timeout=20.0)
        except holdfast.LockError:
            if os.getpid() == parent:
                raise
        finally:
            if os.getpid() != parent:
                os._exit(lease is not None)
        delattr(session.backend, verb)
        assert len(children) == 1
        lease.renew()
        assert lease.release() is True


@contextmanager
def taken_by_another_thread(mutex: Any) -> Iterator[None]:
    """Has another thread inside `mutex`."""
    inside, over = threading.Event(), threading.Event()

    def hold() -> None:
        with mutex:
            inside.set()
            over.wait(60.0)

    thread = threading.Thread(target=hold)
    thread.start()
    assert inside.wait(60.0)
    try:
        yield
    finally:
        over.set()
        thread.join()


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("part", ["session", "keeper", "pending_releases", "alarm"])
def test_a_child_that_goes_on_in_a_release_waits_for_no_thread_of_its_parent(
    part: str, fails: bool
) -> None:
    """Another thread may have been inside a mutex at the fork, and does not run in the child."""
    with holdfast.connect("memory://mutexes") as locks:
        lease = locks.lock("x", ttl=30.0).acquire()
        lease.on_lost(print)  # which sets the alarm
        session: Any = locks._session()
        real = session.backend.release
        children: list[int] = []
        owner = session if part == "session" else getattr(session, part)

        def forking(*arguments: Any) -> Any:
            if not children:
                mutex = session.mutex if part == "session" else owner._mutex
                with taken_by_another_thread(mutex):
                    children.append(os.fork())
                    if not children[0]:
                        signal.alarm(CHILD_LIMIT)
                        if fails:
                            raise holdfast.BackendUnavailable("no answer")
                        raise KeyboardInterrupt
                    ended_well(children[0])
            return real(*arguments)

        session.backend.release = forking
        parent = os.getpid()
        freed: Any = None
        try:
            with suppress(KeyboardInterrupt, holdfast.LockError):
                freed = lease.release()
        finally:
            if os.getpid() != parent:
                os._exit(lease.held or freed is not None)
        del session.backend.release
        assert freed is True


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_child_that_goes_on_in_close_waits_for_no_thread_of_its_parent() -> None:
    with holdfast.connect("memory://closing") as locks:
        locks.lock("x").acquire().release()
        pending: Any = locks._session().pending_releases
        with taken_by_another_thread(pending._mutex):
            child, code = os.fork(), 1
            if not child:
                try:
                    signal.alarm(CHILD_LIMIT)
                    pending.close()
                    code = 0
                finally:
                    os._exit(code)
            ended_well(child)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_child_that_goes_on_inside_a_mutex_comes_out_of_it() -> None:
    mutex = forks.mutex()
    child, code = -1, 1
    try:
        with mutex, mutex:
            child = os.fork()
        with taken_by_another_thread(mutex):  # it is free
            code = 0
    finally:
        if not child:
            os._exit(code)
    ended_well(child)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_child_that_goes_on_in_a_wait_waits_for_no_thread_of_its_parent() -> None:
    clock = BootClock()
    poller, waiter = Poller("test"), Signal(clock)
    parent, main = os.getpid(), threading.get_ident()
    children: list[int] = []

    def fork_here(*arguments: object) -> None:
        children.append(os.fork())
        if not children[0]:
            signal.alarm(CHILD_LIMIT)

    def disturb() -> None:
        until(lambda: poller._leading)
        with poller._mutex:
            signal.pthread_kill(main, signal.SIGUSR1)
            until(lambda: children)
            status = os.waitid(os.P_PID, children[0], os.WEXITED | os.WNOWAIT)
            assert status is not None
        waiter.set()

    before = signal.signal(signal.SIGUSR1, fork_here)
    thread = threading.Thread(target=disturb)
    thread.start()
    outcome: object = None
    try:
        outcome = poller.attend(waiter, clock.now() + 60.0)
    except holdfast.LockError as error:
        outcome = error
    finally:
        if os.getpid() != parent:
            os._exit(not isinstance(outcome, holdfast.LockError))
    thread.join()
    signal.signal(signal.SIGUSR1, before)
    ended_well(children[0])
    assert outcome is True
    poller.close()


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_child_that_waited_in_vain_at_the_gate_keeps_its_files(tmp_path: Path) -> None:
    """The thread that waited for it in the kernel closed a number that was another file's by then."""
    gate, rival = Gate(str(tmp_path / "locks.db")), Gate(str(tmp_path / "locks.db"))
    rival.enter()
    real = gate._reopen
    reader, writer = os.pipe()
    children: list[int] = []

    def forking() -> None:
        children.append(os.fork())
        if children[0]:
            os.close(writer)
            os.read(reader, 1)
            rival.leave()
            ended_well(children[0])
        else:
            signal.alarm(CHILD_LIMIT)
        real()

    vars(gate)["_reopen"] = forking
    parent = os.getpid()
    code = 1
    try:
        gate.enter(BootClock().now() + 1.0)
    except holdfast.LockError:
        if os.getpid() == parent:
            raise
        files = [os.open(os.devnull, os.O_RDONLY) for _ in range(8)]
        os.write(writer, b"waited")
        until(lambda: len(os.listdir("/proc/self/task")) == 1)  # until it has ended
        for fd in files:
            os.close(fd)
        code = 0
    finally:
        if os.getpid() != parent:
            os._exit(code)
    gate.leave()
    os.close(reader)
    for one in (gate, rival):
        one.close()


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_child_of_one_who_detaches_sends_nothing() -> None:
    """A signal's handler forks while the slot of a period is kept, and raises in the child."""

    class Interrupt(Exception):
        pass

    with holdfast.connect("memory://detached") as locks:
        lease = locks.once("job", 100.0)
        assert lease is not None
        session: Any = locks._session()
        detach = session.backend.detach
        pids: list[int] = []
        children: list[int] = []

        def forking(*arguments: Any) -> Any:
            pids.append(os.getpid())
            if not children:
                child = os.fork()
                children.append(child)
                if not child:
                    raise Interrupt
            return detach(*arguments)

        session.backend.detach = forking
        parent = os.getpid()
        kept = False
        try:
            with suppress(Interrupt):
                kept = lease.release()
        finally:
            if os.getpid() != parent:
                os._exit(len(pids) - 1)  # the calls that were made here
        _, status = os.waitpid(children[0], 0)
        del session.backend.detach
        assert kept is True
        assert status == 0


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize("where", ["on its way into", "inside"])
def test_a_child_that_goes_on_in_a_step_leaves_the_file_alone(where: str, tmp_path: Path) -> None:
    """It took over what its parent held, and that ended with the child; or it committed the step of its
    parent a second time, without the locks on the file."""
    with holdfast.connect(f"sqlite://{tmp_path}/locks.db") as locks:
        lease = locks.lock("x").acquire()
        session: Any = locks._session()
        store = session.backend._store
        part, name = (
            (store._gate, "enter") if where == "on its way into" else (store, "_checked_connection")
        )
        real = getattr(part, name)
        children: list[int] = []

        def forking(*arguments: Any, **options: Any) -> Any:
            if not children:
                children.append(os.fork())
                if not children[0]:
                    delattr(part, name)
            return real(*arguments, **options)

        setattr(part, name, forking)
        parent = os.getpid()
        code, other = 1, lease
        try:
            other = locks.lock("y").acquire()
        except holdfast.LockError:
            try:
                store._connection.execute("SELECT count(*) FROM entry")
            except (
                AttributeError,
                sqlite3.DatabaseError,
            ):  # there is none, or it is of no more use
                code = 0
        finally:
            if os.getpid() != parent:
                os._exit(code)
        delattr(part, name)
        ended_well(children[0])
        lease.renew()
        other.renew()
        with holdfast.connect(f"sqlite://{tmp_path}/locks.db") as others:
            assert others.lock("x").try_acquire() is None
            assert others.lock("y").try_acquire() is None
