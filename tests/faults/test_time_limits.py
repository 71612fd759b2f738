"""A time limit by a signal's handler that raises TimeoutError comes out as it is, on every store.

It is an OSError. Taken for one of a socket, right behind a request, it had that request sent twice: the
reply to the one was then taken for that to the next, and a lock was granted that another held.
"""

from __future__ import annotations

import functools
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import holdfast
from faults.actors import run
from holdfast import interrupts
from holdfast.stores.redis.wire import blocking_connection
from stores import STORES


@pytest.mark.parametrize("store", sorted(STORES))
def test_it_comes_out_and_leaves_nothing_behind(store: str, tmp_path: Path) -> None:
    with STORES[store](tmp_path) as url:
        said = run("time_limits", url, "4", limit=150.0)
    assert said == "", said


@pytest.fixture
def limit() -> Iterator[Callable[[], None]]:
    """Yields what raises TimeoutError by way of a signal."""

    def over(*_: object) -> None:
        raise TimeoutError("the user's limit")

    before = signal.signal(signal.SIGUSR1, over)
    yield functools.partial(signal.raise_signal, signal.SIGUSR1)
    signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("call", ["write", "read"])
def test_right_behind_a_request_or_its_reply(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: Callable[[], None], call: str
) -> None:
    real = getattr(os, call)

    def interrupted(*arguments: Any) -> Any:
        done = real(*arguments)
        monkeypatch.setattr(blocking_connection, "os", os)
        limit()
        return done

    class Interrupted:
        """The module `os`, with one call behind which the signal comes."""

        def __getattr__(self, name: str) -> Any:
            return interrupted if name == call else getattr(os, name)

    with STORES["redis"](tmp_path) as url, holdfast.connect(url) as locks:
        with holdfast.connect(url) as others, others.lock("taken"):
            locks.inspect("taken")
            monkeypatch.setattr(blocking_connection, "os", Interrupted())
            with pytest.raises(TimeoutError, match="the user's limit"):
                locks.lock("free").acquire()
            assert locks.lock("taken").try_acquire() is None, "two holders"
        assert locks.lock("free").try_acquire(timeout=20.0) is not None, "a ghost holds it"


def handled(handler: Any) -> bool:
    """Returns whether the error of that handler is known as one."""
    before = signal.signal(signal.SIGUSR1, handler)
    try:
        signal.raise_signal(signal.SIGUSR1)
    except OSError as error:
        return interrupts.is_from_handler(error)
    finally:
        signal.signal(signal.SIGUSR1, before)
    return False


class Alarm:
    def __call__(self, *_: object) -> None:
        raise TimeoutError

    def ring(self, number: int, frame: object) -> None:
        self(number)


def disarmed(number: int, frame: object) -> None:
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    raise OSError("a handler that is none any more")


def named(who: str, number: int, frame: object, *, why: str = "") -> None:
    raise TimeoutError(who + why)


@pytest.mark.parametrize(
    "handler", [Alarm(), Alarm().ring, disarmed, functools.partial(named, "me")]
)
def test_the_error_of_a_handler_is_known(handler: Any) -> None:
    assert handled(handler)


def test_that_of_a_system_call_is_not_taken_for_it() -> None:
    for path in ("/no/such/file", "/"):
        with pytest.raises(OSError, match=path) as caught:
            os.unlink(path)
        interrupts.let_through(caught.value)
        assert not interrupts.is_from_handler(caught.value)
