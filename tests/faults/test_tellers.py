"""Telling of a loss, in threads: who tells, what is freed when, and interrupts in between."""

from __future__ import annotations

import time
from threading import Event, Thread
from typing import Any

import pytest

import holdfast
from holdfast._sync import opening as opening_module
from holdfast._sync.session import Session
from worlds.threads import Job, eventually


def test_nothing_is_freed_before_callbacks_are_called() -> None:
    """A listener, which is told first, takes its time; the body has ended meanwhile."""
    with holdfast.connect("memory://first") as others, holdfast.connect("memory://first") as locks:
        inside, go_on = Event(), Event()
        told: list[object] = []

        def slow(event: holdfast.Event) -> None:
            if event.kind == "lost":
                inside.set()
                go_on.wait(60.0)

        locks.on_event(slow)

        def body() -> None:
            with locks.lock("x", ttl=180.0) as lease:
                lease.on_lost(told.append)
                hold: Any = lease._hold
                Thread(target=hold._recall, args=("a test wants it",)).start()
                eventually(inside.is_set)

        assert isinstance(Job(body).error(), holdfast.LeaseLost)
        assert not told
        assert others.inspect("x").held
        go_on.set()
        eventually(lambda: not others.inspect("x").held)
        assert told


def interrupted(lease: object) -> None:
    raise KeyboardInterrupt


def test_a_telling_that_is_interrupted_in_close_is_finished_by_the_next() -> None:
    with holdfast.connect("memory://next") as others:
        locks = holdfast.connect("memory://next")
        lease = locks.lock("x", ttl=180.0).acquire()
        told: list[object] = []
        lease.on_lost(interrupted)
        lease.on_lost(told.append)
        with pytest.raises(KeyboardInterrupt):
            locks.close()
        locks.close()
        assert told == [lease]
        assert not others.inspect("x").held


def test_a_telling_that_was_interrupted_is_finished_by_close() -> None:
    """The alarm has other work."""
    locks = holdfast.connect("memory://alarm")
    session: Any = locks._session()
    busy, go_on = Event(), Event()

    def occupy() -> None:
        busy.set()
        go_on.wait(60.0)

    session.alarm.at(session.now(), occupy)
    eventually(busy.is_set)
    lease = locks.lock("x", ttl=0.2, renew=False).acquire()
    told: list[object] = []
    lease.on_lost(interrupted)
    lease.on_lost(told.append)
    time.sleep(0.25)
    with pytest.raises(KeyboardInterrupt):
        _ = lease.held
    assert not told
    closing = Job(locks.close)
    eventually(lambda: told)
    go_on.set()
    closing.result()
    assert not session.recalled


def test_an_interrupt_while_a_slot_is_kept() -> None:
    with holdfast.connect("memory://kept") as others, holdfast.connect("memory://kept") as locks:
        session: Any = locks._session()
        detach = session.backend.detach
        tries: list[None] = []

        def interrupts(*arguments: Any) -> Any:
            tries.append(None)
            if len(tries) == 1:
                raise KeyboardInterrupt
            return detach(*arguments)

        session.backend.detach = interrupts

        def work() -> None:
            lease = locks.once("job", 600.0, at_least=300.0, at_most=0.1, ttl=20.0)
            assert lease is not None
            with lease:
                eventually(lambda: not lease.held)

        with pytest.raises(KeyboardInterrupt):
            work()
        eventually(lambda: len(tries) >= 2)  # the exit that was interrupted asks for it, too
        eventually(lambda: others.inspect("job").holders[0].remaining > 200.0)
        eventually(lambda: not session.recalled)


def test_a_handler_that_opens_the_store_at_the_last_moment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    locks = holdfast.connect("memory://moment")
    real = Session
    inner: list[holdfast.Lease | None] = []

    def make(*arguments: Any) -> Any:
        monkeypatch.setattr(opening_module, "Session", real)
        inner.append(locks.lock("inner").try_acquire())  # as a handler would
        return real(*arguments)

    monkeypatch.setattr(opening_module, "Session", make)
    outer = locks.lock("outer").try_acquire()
    assert outer is not None
    assert inner[0] is not None
    assert outer._hold._session is inner[0]._hold._session
    locks.close()
    assert not inner[0].held
