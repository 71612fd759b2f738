"""Forks of a process that holds a lock, on every store that is a server."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import holdfast
import holdfast.aio
from faults.actors import until
from faults.children import ended_well
from holdfast.stores.mysql import sockets
from holdfast.stores.redis.wire import pool
from stores import STORES, UNFAIR

TESTS = Path(__file__).parent.parent
SERVERS = sorted(set(STORES) - {"memory", "sqlite"})


@pytest.mark.parametrize("how", ["blocking", "aio", "untold"])
@pytest.mark.parametrize("store", SERVERS)
def test_a_child_holds_nothing_and_has_a_connection_of_its_own(
    store: str, how: str, tmp_path: Path
) -> None:
    run(store, how, tmp_path)


@pytest.mark.parametrize("store", sorted(set(SERVERS) - set(UNFAIR)))
def test_a_child_of_a_waiter_leaves_the_queue_to_its_parent(store: str, tmp_path: Path) -> None:
    run(store, "raises", tmp_path)


def test_a_child_of_a_waiter_does_not_wait_on(tmp_path: Path) -> None:
    run("redis", "returns", tmp_path)


@pytest.mark.parametrize("store", sorted(set(STORES) - {"memory"}))
def test_a_child_that_leaves_the_loop_costs_its_parent_nothing(store: str, tmp_path: Path) -> None:
    run(store, "leaves", tmp_path)


@pytest.mark.parametrize("world", ["blocking", "aio"])
@pytest.mark.parametrize("store", sorted(STORES))
def test_a_child_that_goes_on_inside_a_call_costs_its_parent_nothing(
    store: str, world: str, tmp_path: Path
) -> None:
    """It was forked at some line of it, and holds nothing of what its parent is granted."""
    with STORES[store](tmp_path) as url:
        play("faults.forked_inside", world, url, "12")


def watched(loop: Any) -> list[int]:
    """Returns the descriptors that asyncio's loop waits for and that are connected by TCP."""
    found = []
    for fd in loop._selector.get_map():
        with suppress(OSError), socket.socket(fileno=os.dup(fd)) as sock:
            if sock.family in (socket.AF_INET, socket.AF_INET6):
                found.append(fd)
    return found


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize(
    "store", ["etcd", "http", "redis", "redis+cluster", "redis+sentinel", "redlock"]
)
async def test_the_loop_of_a_child_has_no_socket_of_its_parent(store: str, tmp_path: Path) -> None:
    with STORES[store](tmp_path) as url:
        async with holdfast.aio.connect(url) as locks, locks.lock("x") as lease:
            loop = asyncio.get_running_loop()
            assert watched(loop) != []
            child = os.fork()
            if not child:
                os._exit(len(watched(loop)))
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
            await lease.renew()


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_child_that_leaves_a_round_of_redlock_gives_nothing_back(tmp_path: Path) -> None:
    """A signal's handler forks in the middle of an acquire, and raises in the child."""

    class Interrupt(Exception):
        pass

    with STORES["redlock"](tmp_path) as url, holdfast.connect(url) as locks:
        first = locks.lock("first").acquire()
        session: Any = locks._session()
        wire = session.backend._wire
        fan_out = wire.fan_out
        children: list[int] = []

        def forking(*arguments: Any, **options: Any) -> Any:
            used = fan_out(*arguments, **options)
            if not children:
                children.append(os.fork())
                if not children[0]:
                    raise Interrupt
            return used

        wire.fan_out = forking
        parent = os.getpid()
        lease: Any = None
        try:
            with suppress(Interrupt):
                lease = locks.lock("x").acquire(timeout=20.0)
        finally:
            if os.getpid() != parent:
                os._exit(lease is not None)
        del wire.fan_out
        ended_well(children[0])
        lease.renew()
        assert lease.release() is True
        assert first.release() is True


def forget_idle(store: str, backend: Any) -> tuple[Any, str]:
    """Ends the idle connections of a manager; returns what has the function that opens the next one,
    and its name."""
    if store in ("postgres", "mariadb"):
        connections = backend._store._steps
        while connections._idle:
            connections._drop(connections._idle.pop())
        return connections, "_new"
    wire = backend._wire
    if store == "redis":
        wire._pool._close_idle()
        return pool, "Connection"
    if store == "redlock":
        for socket_set in wire._idle:
            socket_set.close()
        return wire._opener, "fill"
    for idle in (wire._pools if store == "http" else wire._idle).values():
        wire._close_idle(idle)
    return wire, "_open"


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize("store", ["etcd", "http", "mariadb", "postgres", "redis", "redlock"])
def test_a_child_that_goes_on_while_its_parent_connects_asks_for_nothing(
    store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection that it opens is its own, so what it asked would be done for its parent."""
    with (
        STORES[store](tmp_path) as url,
        holdfast.connect(url) as locks,
        holdfast.connect(url) as rival,
    ):
        locks.lock("x").acquire().release()
        rival.inspect("x")
        owner, name = forget_idle(store, locks._session().backend)
        real = getattr(owner, name)
        children: list[int] = []
        seen: list[Any] = []

        def forking(*arguments: Any) -> Any:
            if threading.current_thread() is not threading.main_thread():
                return real(*arguments)
            monkeypatch.undo()
            made = real(*arguments) if name == "_new" else None
            children.append(os.fork())
            if children[0]:
                ended_well(children[0])
                seen.extend(rival.inspect("x").holders)
            return made or real(*arguments)

        parent = os.getpid()
        lease: Any = None
        monkeypatch.setattr(owner, name, forking)
        try:
            lease = locks.lock("x", ttl=30.0).acquire(timeout=20.0)
        except holdfast.LockError:
            if os.getpid() == parent:
                raise
        finally:
            if os.getpid() != parent:
                os._exit(lease is not None)
        assert len(children) == 1
        assert seen == []
        lease.renew()
        assert lease.release() is True


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_child_that_goes_on_in_a_handshake_of_pymysql_has_no_part_in_it() -> None:
    """The handshake is one call, in which the handler of a signal runs."""
    children: list[int] = []
    over = threading.Event()
    untouched: list[bool] = []
    parent, main = os.getpid(), threading.get_ident()

    def fork_here(*arguments: object) -> None:
        children.append(os.fork())
        if children[0]:
            os.waitid(os.P_PID, children[0], os.WEXITED | os.WNOWAIT)
            over.set()

    def serve(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection:
            while not over.wait(0.01):
                if not children and connection.recv(4096):
                    signal.pthread_kill(main, signal.SIGUSR1)
                    until(lambda: children)
            connection.setblocking(False)
            try:
                untouched.append(connection.recv(4096) != b"")
            except BlockingIOError:
                untouched.append(True)

    before = signal.signal(signal.SIGUSR1, fork_here)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        deadline = sockets.Deadline(time.monotonic)
        deadline.at = time.monotonic() + 10.0
        tls = sockets.TimedContext(ssl.PROTOCOL_TLS_CLIENT)
        tls.check_hostname = False
        sock = sockets.connect(socket.AF_INET, listener.getsockname(), deadline)
        outcome: object = None
        try:
            tls.wrap_socket(sock)
        except OSError as error:
            outcome = error
        finally:
            if os.getpid() != parent:
                os._exit(not isinstance(outcome, OSError) or isinstance(outcome, TimeoutError))
        thread.join()
    signal.signal(signal.SIGUSR1, before)
    ended_well(children[0])
    assert untouched == [True]
    assert isinstance(outcome, OSError)


def run(store: str, how: str, tmp_path: Path) -> None:
    with STORES[store](tmp_path) as url:
        play("faults.forked_client", how, url)


def play(*arguments: str) -> None:
    """Runs a program of these tests."""
    done = subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=TESTS,
        capture_output=True,
        text=True,
        timeout=100.0,
        check=False,
    )
    assert done.returncode == 0, done.stderr
