"""A time limit by a signal's handler that raises TimeoutError comes out as it is, on every store.

It is an OSError. Taken for one of a socket, right behind a request, it had that request sent twice: the
reply to the one was then taken for that to the next, and a lock was granted that another held.
"""

from __future__ import annotations

import functools
import gc
import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from weakref import ref

import pytest

import holdfast
from faults.actors import run
from holdfast import interrupts
from holdfast.stores.etcd.wire.http2 import blocking
from holdfast.stores.http.wire import blocking_connection as http_connection
from holdfast.stores.redis.wire import blocking_connection
from holdfast.stores.sqlite import location
from holdfast.stores.sqlite.lockfiles import mode_of
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


def test_as_the_embedded_store_reads_which_boot_this_is(
    monkeypatch: pytest.MonkeyPatch, limit: Callable[[], None]
) -> None:
    """Taken for an answer, it would begin a new boot in the store, and forget this one."""

    def interrupted(*arguments: Any) -> Any:
        limit()

    monkeypatch.setattr(location, "text_of", interrupted)
    with pytest.raises(TimeoutError, match="the user's limit"):
        location.clock_identity()


def test_as_the_embedded_store_looks_at_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: Callable[[], None]
) -> None:
    """A store that seems not to be there is made anew."""
    real = os.stat

    def interrupted(*arguments: Any, **options: Any) -> Any:
        monkeypatch.setattr(os, "stat", real)
        limit()

    monkeypatch.setattr(os, "stat", interrupted)
    with pytest.raises(TimeoutError, match="the user's limit"):
        mode_of(str(tmp_path))
    assert mode_of(str(tmp_path))
    assert not mode_of(f"{tmp_path}/nothing")


@pytest.mark.parametrize("there", [True, False])
def test_as_links_are_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: Callable[[], None], there: bool
) -> None:
    """A link that is taken for none would part a file from what is kept beside it."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    path = f"{tmp_path}/link/file"
    if there:
        Path(path).touch()
    real = os.lstat

    def interrupted(one: Any, **options: Any) -> Any:
        if os.fspath(one) == f"{tmp_path}/link":
            monkeypatch.setattr(os, "lstat", real)
            limit()
        return real(one, **options)

    monkeypatch.setattr(os, "lstat", interrupted)
    with pytest.raises(TimeoutError, match="the user's limit"):
        interrupts.real_path(path)
    assert interrupts.real_path(path) == f"{tmp_path}/real/file"


def test_as_the_folder_of_the_embedded_store_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: Callable[[], None]
) -> None:
    """`os.makedirs` takes it for the answer that what is there is no folder."""
    real = os.mkdir

    def interrupted(path: Any, *rest: Any) -> None:
        monkeypatch.setattr(os, "stat", behind)
        real(path, *rest)

    looked = os.stat

    def behind(*arguments: Any, **options: Any) -> Any:
        monkeypatch.setattr(os, "mkdir", real)
        monkeypatch.setattr(os, "stat", looked)
        limit()
        return looked(*arguments, **options)

    monkeypatch.setattr(os, "mkdir", interrupted)
    with pytest.raises(TimeoutError, match="the user's limit"):
        location.prepare(f"{tmp_path}/locks.db")
    assert location.prepare(f"{tmp_path}/a/b/locks.db") == f"{tmp_path}/a/b/locks.db"
    assert mode_of(f"{tmp_path}/a/b") & 0o777 == 0o700


def test_as_a_url_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Handlers raise other errors, too, for which a URL may be refused."""

    def over(*_: object) -> None:
        raise ValueError("the user's limit")

    def interrupted(text: bytes) -> bytes:
        signal.raise_signal(signal.SIGUSR1)
        return text

    before = signal.signal(signal.SIGUSR1, over)
    try:
        monkeypatch.setattr(location, "_unquote", interrupted)
        with pytest.raises(ValueError, match="the user's limit") as raised:
            holdfast.connect("sqlite:///var/locks.db")
        assert type(raised.value) is ValueError
    finally:
        signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("what", ["redis", "etcd", "http"])
def test_as_close_interrupts_who_listens(what: str, limit: Callable[[], None]) -> None:
    class Socket:
        def shutdown(self, how: int) -> None:
            limit()

    kind: Any = {
        "redis": blocking_connection.Connection,
        "etcd": blocking.BlockingConnection,
        "http": http_connection.Connection,
    }[what]
    connection = kind.__new__(kind)
    connection._socket = Socket()
    if what == "redis":
        connection._pid = os.getpid()
    with pytest.raises(TimeoutError, match="the user's limit"):
        connection.interrupt()


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


def renamed(*rest: Any) -> None:
    rest = rest[0]
    raise TimeoutError(rest)


def deaf(*_: object) -> None:
    def late(*rest: Any) -> None:
        rest = rest[0]
        raise TimeoutError(rest)

    late(0)


@pytest.mark.parametrize(
    "handler", [Alarm(), Alarm().ring, disarmed, functools.partial(named, "me"), deaf]
)
def test_the_error_of_a_handler_is_known(handler: Any) -> None:
    assert handled(handler)


def test_one_that_drops_its_arguments_is_known_all_the_same() -> None:
    assert handled(renamed)


def test_what_was_interrupted_is_not_kept(limit: Callable[[], None]) -> None:
    """By a cycle of the error and a frame, until the next collection."""

    class Thing:
        pass

    def interrupted() -> ref[Thing]:
        thing = Thing()
        try:
            limit()
        except OSError as error:
            kept.append(ref(thing))
            interrupts.let_through(error)
        raise AssertionError

    kept: list[ref[Thing]] = []
    gc.disable()
    try:
        with suppress(TimeoutError):
            interrupted()
        assert kept[0]() is None
    finally:
        gc.enable()


def test_mysql_works_while_one_is_handled(tmp_path: Path, limit: Callable[[], None]) -> None:
    """A connection that broke is no error of the handler, though it has that one as its context."""
    with STORES["mariadb"](tmp_path) as url, holdfast.connect(url) as locks:
        locks.inspect("x")
        (connection,) = locks._session().backend._store._steps._idle  # type: ignore[attr-defined]
        connection._connection._sock.shutdown(socket.SHUT_RD)
        lease = None
        try:
            limit()
        except TimeoutError:
            lease = locks.lock("x").try_acquire(timeout=20.0)
        assert lease is not None


def test_that_of_a_system_call_is_not_taken_for_it() -> None:
    for path in ("/no/such/file", "/"):
        with pytest.raises(OSError, match=path) as caught:
            os.unlink(path)
        interrupts.let_through(caught.value)
        assert not interrupts.is_from_handler(caught.value)


@pytest.mark.parametrize("handler", ["walking", "dropping"])
def test_a_handler_that_does_not_keep_the_frame_is_known(handler: str) -> None:
    def walking(number: int, frame: Any) -> None:
        while frame is not None:
            frame = frame.f_back
        raise TimeoutError

    def dropping(number: int, frame: Any) -> None:
        del frame
        raise TimeoutError

    assert handled({"walking": walking, "dropping": dropping}[handler])


def test_an_error_that_is_not_known_to_be_one_of_a_handler_leaves_no_reply_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As that of a handler which was written in C."""
    monkeypatch.setattr(interrupts, "is_from_handler", lambda error: False)
    for real in (os.write, os.read):

        class Interrupted:
            """The module `os`, with one call behind which an error comes."""

            def __getattr__(self, name: str, real: Any = real) -> Any:
                if name != real.__name__:
                    return getattr(os, name)

                def interrupted(*arguments: Any) -> Any:
                    real(*arguments)
                    monkeypatch.setattr(blocking_connection, "os", os)
                    raise TimeoutError

                return interrupted

        with (
            STORES["redis"](tmp_path) as url,
            holdfast.connect(url) as locks,
            holdfast.connect(url) as others,
            others.lock("taken"),
        ):
            locks.inspect("taken")
            monkeypatch.setattr(blocking_connection, "os", Interrupted())
            with pytest.raises(holdfast.BackendUnavailable):
                locks.lock("free").acquire()
            assert locks.lock("taken").try_acquire() is None, "two holders"


@pytest.mark.parametrize("error", [TimeoutError, SystemExit])
def test_one_that_comes_in_a_callback_is_no_error_of_the_callback(
    error: type[BaseException],
) -> None:
    """SIGTERM's handler often calls `sys.exit()`, and a program that does not end then is killed."""

    def over(*_: object) -> None:
        raise error

    def heard(_: object) -> None:
        signal.raise_signal(signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, over)
    try:
        with holdfast.connect("memory://") as locks:
            remove = locks.on_event(heard)
            with pytest.raises(error):
                locks.lock("x").acquire()
            remove()
            assert locks.lock("x").try_acquire(timeout=20.0) is not None, "a ghost holds it"
    finally:
        signal.signal(signal.SIGUSR1, before)
