"""`close()` from a signal's handler, in the thread that is in the middle of a call: it does not wait
for that call, which waits for it; and nothing is left behind."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import holdfast
from faults.actors import until
from worlds.stalls import Stalls

LIMIT = 2.0
"""Seconds in which it returns: less than it waits for the attempts of others."""
STRIDE = 3
"""Calls from one that is interrupted to the next."""


class Handler:
    """What a signal's handler does: it closes the manager, and counts the seconds.

    Twice, since it may be called again; and with a `rest`, it takes its time afterwards.
    """

    def __init__(self, locks: holdfast.Locks, rest: float = 0.0) -> None:
        self._locks = locks
        self._rest = rest
        self.seconds = -1.0

    def __call__(self, *_: object) -> None:
        with Stalls() as stalls:
            began = time.monotonic()
            self._locks.close()
            self._locks.close()
            self.seconds = time.monotonic() - began
        self.seconds -= stalls.seconds
        time.sleep(self._rest)


def test_while_the_same_thread_waits(url: str) -> None:
    with holdfast.connect(url) as others:
        others.lock("x", ttl=20.0).acquire()
        locks = holdfast.connect(url)
        locks.lock("mine", ttl=20.0).acquire()
        session = locks._session()
        handler = Handler(locks)
        before = signal.signal(signal.SIGALRM, handler)
        main = threading.get_ident()

        def interrupt() -> None:
            until(lambda: session.tickets)
            time.sleep(0.2)  # into the queue, if there is one
            signal.pthread_kill(main, signal.SIGALRM)

        thread = threading.Thread(target=interrupt)
        thread.start()
        try:
            with pytest.raises(holdfast.LockError, match="closed"):
                locks.lock("x").acquire()
        finally:
            thread.join()
            signal.signal(signal.SIGALRM, before)
        assert 0.0 <= handler.seconds < LIMIT
        assert not others.inspect("mine").held
        until(lambda: session.finished)
        assert len(others.inspect("x").holders) == 1
        assert not others.inspect("x").waiters
        locks.close()


def closed_inside(
    locks: holdfast.Locks, call: Callable[[], object], number: int, rest: float = 0.0
) -> Handler | None:
    """Makes the call, inside which the manager is closed after so many calls; None: it had fewer."""
    handler = Handler(locks, rest)
    met = 0

    def watch(frame: FrameType, event: str, argument: object) -> None:
        nonlocal met
        if event in ("call", "c_return"):
            met += 1
            if met == number:
                sys.setprofile(None)
                handler()

    sys.setprofile(watch)
    try:
        call()
    except holdfast.LockError:
        pass  # as it should be, unless it came before that
    finally:
        sys.setprofile(None)
    return handler if met >= number else None


def test_a_handler_that_takes_its_time_in_the_middle_of_a_step(tmp_path: Path) -> None:
    """Longer than the store is given to answer: what is left is done when it has returned."""
    url = f"sqlite://{tmp_path}/locks.db"
    with holdfast.connect(url) as others:
        locks = holdfast.connect(url)
        locks.lock("kept", ttl=60.0).acquire()
        session: Any = locks._session()
        inside = session.backend.is_inside
        gate = session.backend._store._gate
        real = gate._attempt
        handler = Handler(locks, rest=6.0)

        def attempt() -> bool:
            gate._attempt = real
            entered: bool = real()
            assert inside(threading.get_ident())
            handler()
            return entered

        gate._attempt = attempt
        with pytest.raises(holdfast.LockError, match="closed"):
            locks.lock("wanted", ttl=60.0).acquire()
        assert 0.0 <= handler.seconds < LIMIT
        until(lambda: session.finished)
        assert not others.inspect("kept").held
        assert not others.inspect("wanted").held


def test_while_another_thread_closes(tmp_path: Path) -> None:
    """That waits for the attempt beneath the handler, which must not wait for it."""
    url = f"sqlite://{tmp_path}/locks.db"
    with holdfast.connect(url) as others:
        others.lock("x", ttl=20.0).acquire()
        locks = holdfast.connect(url)
        locks.lock("mine", ttl=60.0).acquire()
        session: Any = locks._session()
        handler = Handler(locks)
        closer = threading.Thread(target=locks.close)
        real = session.backend.wait

        def wait(*arguments: Any) -> Any:
            session.backend.wait = real
            closer.start()
            until(lambda: session.closing._under_way and not session.leases)
            handler()
            return real(*arguments)

        session.backend.wait = wait
        with pytest.raises(holdfast.LockError, match="closed"):
            locks.lock("x").acquire()
        closer.join(20.0)
        assert 0.0 <= handler.seconds < LIMIT
        assert session.finished
        assert not others.inspect("mine").held
        assert not others.inspect("x").waiters


@pytest.mark.parametrize("store", ["memory", "sqlite"])
@pytest.mark.parametrize("what", ["acquire", "multi", "release"])
def test_at_any_moment_of_a_call(what: str, store: str, tmp_path: Path) -> None:
    url = f"sqlite://{tmp_path}/locks.db" if store == "sqlite" else f"memory://{tmp_path.name}"
    left: dict[int, Any] = {}
    slow: dict[int, float] = {}
    with holdfast.connect(url) as others:
        number = 1
        while True:
            locks = holdfast.connect(url)
            names = [f"{what} {number} {part}" for part in "abc"]
            locks.lock(names[0], ttl=60.0).acquire()
            if what == "acquire":
                call: Callable[[], object] = locks.lock(names[1], ttl=60.0).acquire
            elif what == "multi":
                call = locks.multi(names[1:], ttl=60.0).acquire
            else:
                call = locks.lock(names[1], ttl=60.0).acquire().release
            handler = closed_inside(locks, call, number)
            locks.close()
            if handler is None:
                break
            if handler.seconds > LIMIT:
                slow[number] = handler.seconds
            if any(others.inspect(name).held for name in names):
                left[number] = [name for name in names if others.inspect(name).held]
            number += STRIDE
    assert number > 30
    assert not left
    assert not slow
