"""What a signal's handler raises while a thread is started, or a connection opened, comes out as it is;
and what was begun is ended with the manager."""

from __future__ import annotations

import errno
import os
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import current_thread, main_thread
from types import SimpleNamespace
from typing import Any

import pytest
from psycopg.pq import Conninfo

import holdfast
from faults.actors import until
from holdfast.clock import system_clock
from holdfast.stores import resolving
from holdfast.stores.etcd.wire import threads
from holdfast.stores.etcd.wire.failures import Failure
from holdfast.stores.etcd.wire.threads import Wire
from holdfast.stores.redis.address import Address
from holdfast.stores.redis.wire.blocking_connection import Connection
from holdfast.stores.redlock.wire import threads_opening
from holdfast.stores.zookeeper.client import Client
from stores import STORES


class TimeIsUpError(Exception):
    """The user's own exception."""


class Strike:
    """A signal whose handler raises, right behind the next call of some function."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._patch = patch

    def behind(self, owner: Any, name: str) -> None:
        real: Callable[..., Any] = getattr(owner, name)

        def struck(*arguments: Any) -> Any:
            if current_thread() is not main_thread():
                return real(*arguments)  # the handler would run in another place
            self._patch.setattr(owner, name, real)
            done = real(*arguments)
            signal.raise_signal(signal.SIGUSR1)
            return done

        self._patch.setattr(owner, name, struck)


@pytest.fixture
def strike(monkeypatch: pytest.MonkeyPatch) -> Iterator[Strike]:
    def over(*_: object) -> None:
        raise TimeIsUpError

    before = signal.signal(signal.SIGUSR1, over)
    yield Strike(monkeypatch)
    signal.signal(signal.SIGUSR1, before)


def test_as_redlock_opens_its_sockets(tmp_path: Path, strike: Strike) -> None:
    with STORES["redlock"](tmp_path) as url, holdfast.connect(url) as locks:
        locks.inspect("x")
        wire = locks._session().backend._wire  # type: ignore[attr-defined]
        for socket_set in list(wire._idle):
            socket_set.close()
        strike.behind(threads_opening, "start_new_thread")
        with pytest.raises(TimeIsUpError):
            locks.lock("x").acquire()
        assert locks.lock("x").try_acquire(timeout=20.0) is not None


def test_as_a_name_is_looked_up(strike: Strike) -> None:
    strike.behind(resolving, "start_new_thread")
    now = system_clock().now
    with pytest.raises(TimeIsUpError):
        resolving.resolve("localhost", 80, now() + 20.0, now)
    assert resolving.resolve("localhost", 80, now() + 20.0, now)


def test_as_etcd_opens_a_watch(tmp_path: Path, strike: Strike) -> None:
    """Nobody has the stream then: its thread and its connection would be there for ever."""
    with STORES["etcd"](tmp_path) as url, holdfast.connect(url) as others:
        locks = holdfast.connect(url)
        locks.inspect("x")
        wire = locks._session().backend._wire  # type: ignore[attr-defined]
        with others.lock("x"):
            strike.behind(Wire, "watch")
            with pytest.raises(TimeIsUpError):
                locks.lock("x").acquire(timeout=20.0)
        (stream,) = wire._streams
        locks.close()
        until(lambda: stream._over and not wire._streams, "the end of its thread")


@pytest.fixture
def waited(tmp_path: Path) -> Iterator[Any]:
    """Yields the wire of a manager of etcd that has waited for a lock."""
    with (
        STORES["etcd"](tmp_path) as url,
        holdfast.connect(url) as others,
        holdfast.connect(url) as locks,
        others.lock("x"),
    ):
        assert locks.lock("x").try_acquire(timeout=0.1) is None
        wire = locks._session().backend._wire  # type: ignore[attr-defined]
        until(lambda: wire._streams and all(one._opened for one in wire._streams), "a stream")
        yield wire


def test_a_connection_to_redis_that_a_forked_child_ends_is_still_its_parents() -> None:
    clock = system_clock()
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = Address("127.0.0.1", server.getsockname()[1], "", 0, "", "", None)
        connection = Connection(address, clock, clock.now() + 30.0)
        peer, _ = server.accept()
        with peer:
            pid = os.fork()
            if not pid:
                connection.interrupt()
                os._exit(0)
            assert os.waitpid(pid, 0) == (pid, 0)
            assert connection.is_alive()
            connection.interrupt()
            assert not connection.is_alive()
        connection.close()


def test_a_connection_to_zookeeper_that_a_forked_child_drops_is_still_its_parents() -> None:
    client: Any = Client.__new__(Client)
    client._pid = os.getpid()
    ours, peer = socket.socketpair()
    with ours, peer:
        client._connection = SimpleNamespace(_socket=ours)
        pid = os.fork()
        if not pid:
            client.drop_connection()
            os._exit(0)
        assert os.waitpid(pid, 0) == (pid, 0)
        peer.sendall(b"x")
        assert ours.recv(1) == b"x"
        client.drop_connection()
        assert ours.recv(1) == b""


def test_a_watch_of_etcd_is_closed_in_a_forked_child(waited: Any) -> None:
    """There it has no thread to wait for."""
    pid = os.fork()
    if not pid:
        for stream in waited._streams:
            stream.close()
        os._exit(0)
    try:
        until(lambda: os.waitpid(pid, os.WNOHANG) == (pid, 0), "the end of the child")
    except BaseException:
        os.kill(pid, signal.SIGKILL)
        raise


def test_a_watch_of_etcd_without_a_thread(waited: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was made for it is not kept: it is tried again and again."""

    def none_left(*_: Any) -> None:
        raise RuntimeError("can't start new thread")

    before = list(waited._streams)
    monkeypatch.setattr(threads, "start_new_thread", none_left)
    with pytest.raises(Failure, match="new thread"):
        waited.watch([], print, print)
    assert list(waited._streams) == before


def test_a_waiter_of_etcd_with_no_descriptor_for_its_watch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits all the same, and its watch is tried again."""
    refused: list[bool] = []

    def too_many(*_: Any) -> None:
        refused.append(True)
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with (
        STORES["etcd"](tmp_path) as url,
        holdfast.connect(url) as others,
        holdfast.connect(url) as locks,
    ):
        locks.inspect("x")
        held = others.lock("x").acquire()
        watches = locks._session().backend._watches  # type: ignore[attr-defined]
        with monkeypatch.context() as patch:
            patch.setattr(socket, "socketpair", too_many)
            assert locks.lock("x").try_acquire(timeout=1.0) is None
            assert refused
        watch = watches.add(b"x", b"y", 0, print, print)
        until(lambda: watch.confirmed, "the watch")
        held.release()
        with locks.lock("x", timeout=30.0):
            pass


def test_as_an_observer_is_noted_on_etcd(tmp_path: Path, strike: Strike) -> None:
    with STORES["etcd"](tmp_path) as url, holdfast.connect(url) as locks:
        locks.inspect("x")
        observer = locks._session().backend._observer  # type: ignore[attr-defined]
        real = observer._tickets

        class Struck(dict[str, Any]):
            def setdefault(self, *_: Any) -> Any:
                observer._tickets = real
                signal.raise_signal(signal.SIGUSR1)

        observer._tickets = Struck()
        with pytest.raises(TimeIsUpError):
            next(iter(locks.election("x").observe()))


def test_as_an_address_of_postgresql_is_read(strike: Strike) -> None:
    strike.behind(Conninfo, "parse")
    with pytest.raises(TimeIsUpError):
        holdfast.connect("postgresql://someone@127.0.0.1:1/x?application_name=y")
