"""`close()` from where nobody expects it: callbacks, signal handlers, bodies; and interrupted."""

from __future__ import annotations

import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import holdfast
from faults.actors import until
from holdfast._sync import opening
from holdfast._sync.session import Session
from worlds.descriptors import open_files


class SoftTimeLimit(Exception):
    """Raised by a signal's handler, as task queues do."""


@contextmanager
def alarm(handler: Any, seconds: float) -> Iterator[None]:
    before = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def hold_until_lost(locks: holdfast.Locks, inside: threading.Event, leave: threading.Event) -> None:
    """A body that ends when `leave` is set; it must have been told by then."""
    try:
        with locks.lock("body", ttl=30.0):
            inside.set()
            leave.wait(20)
    except holdfast.LeaseLost:
        return
    raise AssertionError("it was not told")


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite://{tmp_path}/locks.db"


def test_a_callback_of_close_may_close(url: str) -> None:
    locks = holdfast.connect(url)
    lease = locks.lock("x", ttl=30.0).acquire()
    lease.on_lost(lambda _: locks.close())
    locks.close()
    with holdfast.connect(url) as others:
        assert others.lock("x").try_acquire() is not None


def test_an_exception_from_a_handler_comes_out_and_the_next_close_finishes(url: str) -> None:
    locks = holdfast.connect(url)
    for number in range(5):
        locks.lock(f"x{number}", ttl=30.0).acquire()
    inside, leave = threading.Event(), threading.Event()
    body = partial(hold_until_lost, locks, inside, leave)

    thread = threading.Thread(target=body)
    thread.start()
    assert inside.wait(20)

    def handler(*_: object) -> None:
        raise SoftTimeLimit

    with pytest.raises(SoftTimeLimit), alarm(handler, 0.2):
        locks.close()  # it waits for the body
    leave.set()
    thread.join(20)
    locks.close()
    with holdfast.connect(url) as others:
        assert others.list() == []


def test_a_handler_may_close_while_close_waits_for_a_body(url: str) -> None:
    locks = holdfast.connect(url)
    inside, leave = threading.Event(), threading.Event()
    body = partial(hold_until_lost, locks, inside, leave)

    def handler(*_: object) -> None:
        locks.close()
        leave.set()

    thread = threading.Thread(target=body)
    thread.start()
    assert inside.wait(20)
    with alarm(handler, 0.1):
        locks.close()
    thread.join(20)
    with holdfast.connect(url) as others:
        assert others.list() == []


def test_a_handler_may_close_while_the_store_is_being_opened() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        locks = holdfast.connect(f"redis://127.0.0.1:{silent.getsockname()[1]}/0")
        closed: list[float] = []

        def handler(*_: object) -> None:
            began = time.monotonic()
            locks.close()
            closed.append(time.monotonic() - began)

        with pytest.raises(holdfast.LockError), alarm(handler, 0.2):
            locks.lock("x").acquire(timeout=3.0)
        assert closed
        assert closed[0] < 2.5  # it waits for nobody who is opening


@pytest.mark.parametrize("who", ["another thread", "a signal's handler"])
def test_it_is_closed_when_the_store_has_just_been_opened(
    url: str, monkeypatch: pytest.MonkeyPatch, who: str
) -> None:
    """Whoever closes sees no session yet; whoever opens must see that it is closed."""
    locks = holdfast.connect(url)
    sessions: list[Session] = []

    def make(*args: Any) -> Session:
        sessions.append(Session(*args))
        if who == "another thread":
            thread = threading.Thread(target=locks.close)
            thread.start()
            thread.join()
        else:
            locks.close()
        return sessions[0]

    with holdfast.connect(url) as others, others.lock("x"):
        monkeypatch.setattr(opening, "Session", make)
        with pytest.raises(holdfast.LockError, match="closed"):
            locks.lock("x").acquire(timeout=20.0)
        assert others.inspect("x").waiters == ()
    assert sessions[0].finished
    locks.close()


def test_an_exception_from_a_handler_leaves_no_store_open(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes when the store has just been opened, and nobody knows of that yet."""
    with holdfast.connect(url) as others, others.lock("x"):
        with holdfast.connect(url) as first, first.lock("y"):
            pass
        before = open_files(tmp_path)  # SQLite keeps some of a connection that was closed
        locks = holdfast.connect(url)

        def interrupted(*args: Any) -> Session:
            raise SoftTimeLimit

        with monkeypatch.context() as patch:
            patch.setattr(opening, "Session", interrupted)
            for _ in range(3):
                with pytest.raises(SoftTimeLimit):
                    locks.lock("y").acquire()
        assert open_files(tmp_path) == before
        with locks.lock("y"):
            pass
        locks.close()
        assert open_files(tmp_path) == before


def test_two_threads_that_close_from_their_own_bodies(url: str) -> None:
    locks = holdfast.connect(url)
    meet = threading.Barrier(2)
    lost: list[str] = []

    def body(name: str) -> None:
        try:
            with locks.lock(name, ttl=30.0):
                meet.wait(20)
                locks.close()
        except holdfast.LeaseLost:
            lost.append(name)

    threads = [threading.Thread(target=body, args=(name,)) for name in ("a", "b")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    until(lambda: sorted(lost) == ["a", "b"], "both to be told")
    with holdfast.connect(url) as others:
        assert others.list() == []


def test_a_lease_whose_end_was_interrupted_half_way_does_not_keep_close(url: str) -> None:
    locks = holdfast.connect(url)
    lease = locks.lock("x", ttl=30.0).acquire()
    session: Any = locks._session()
    lease.release()
    session.leases[lease.owner] = (
        lease._hold
    )  # as an exception between two lines of its end leaves it
    thread = threading.Thread(target=locks.close, daemon=True)
    thread.start()
    thread.join(20)
    assert not thread.is_alive()


def test_close_in_a_callback_while_another_thread_closes(url: str) -> None:
    """The one that closes waits for the keeper, which is inside the callback."""
    locks = holdfast.connect(url)
    lease = locks.lock("x", ttl=30.0, max_hold=0.2).acquire()
    inside, closing = threading.Event(), threading.Event()

    def close(_: object) -> None:
        inside.set()
        closing.wait(5.0)
        locks.close()

    lease.on_lost(close)
    assert inside.wait(20.0)
    thread = threading.Thread(target=locks.close, daemon=True)
    thread.start()
    closing.set()
    thread.join(20.0)
    assert not thread.is_alive()


def test_whoever_waits_for_a_close_that_was_interrupted_finishes_it(url: str) -> None:
    locks = holdfast.connect(url)
    leases = [locks.lock(f"{number}", ttl=180.0).acquire() for number in range(5)]
    session: Any = locks._session()
    release, inside, leave = session.backend.release, threading.Event(), threading.Event()

    def interrupted(*args: Any) -> Any:
        session.backend.release = release
        inside.set()
        leave.wait(20.0)
        raise SoftTimeLimit

    def close() -> None:
        with pytest.raises(SoftTimeLimit):
            locks.close()

    session.backend.release = interrupted
    first = threading.Thread(target=close, daemon=True)
    first.start()
    assert inside.wait(20.0)
    second = threading.Thread(target=locks.close, daemon=True)
    second.start()
    until(lambda: len(session.closing._callers) == 2, "both to be closing")
    leave.set()
    for thread in (first, second):
        thread.join(20.0)
        assert not thread.is_alive()
    assert not any(lease.held for lease in leases)
    with holdfast.connect(url) as others:
        assert others.list() == []
