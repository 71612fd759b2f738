"""Corners that a review found: each of these failed once."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import holdfast
import holdfast.aio
from worlds.threads import eventually


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite://{tmp_path}/locks.db"


def run(code: str, url: str) -> None:
    """In a process of its own, which must end well and soon."""
    subprocess.run([sys.executable, "-c", code, url], check=True, timeout=60)


async def test_close_during_acquire_leaves_nobody_believing(url: str) -> None:
    locks, others = holdfast.aio.connect(url), holdfast.aio.connect(url)
    await locks.inspect("x")
    task = asyncio.create_task(locks.lock("x").acquire())
    await asyncio.sleep(0)  # its request is on its way
    await locks.close()
    (result,) = await asyncio.gather(task, return_exceptions=True)
    assert isinstance(result, holdfast.LockError)
    assert await others.lock("x").try_acquire() is not None
    await others.close()


def test_close_racing_acquire_among_threads_leaves_no_ghost(url: str) -> None:
    with holdfast.connect(url) as others:
        for turn in range(60):
            locks = holdfast.connect(url)
            locks.inspect("x")
            leases: list[holdfast.Lease] = []

            def work(locks: holdfast.Locks = locks, leases: list[holdfast.Lease] = leases) -> None:
                try:
                    while True:
                        leases[:] = [locks.lock("x").acquire()]
                        leases[0].release()
                except holdfast.LockError:
                    return

            threads = [threading.Thread(target=work) for _ in range(2)]
            for thread in threads:
                thread.start()
            time.sleep(0.001 * (turn % 5))
            locks.close()
            for thread in threads:
                thread.join()
            assert not any(lease.held for lease in leases)
            assert not others.inspect("x").held


def test_an_interrupt_right_after_begin_leaves_no_transaction_open(url: str) -> None:
    with holdfast.connect(url) as locks, holdfast.connect(url) as others:
        locks.inspect("x")
        session: Any = locks._session()
        store = session.backend._store
        real = store._connection

        class Interrupted:
            """A connection on which a signal comes during BEGIN."""

            def __getattr__(self, name: str) -> Any:
                return getattr(real, name)

            def execute(self, sql: str, *arguments: Any) -> Any:
                answer = real.execute(sql, *arguments)
                if sql == "BEGIN IMMEDIATE":
                    store._connection = real
                    raise KeyboardInterrupt
                return answer

        store._connection = Interrupted()
        with pytest.raises(KeyboardInterrupt):
            locks.inspect("x")
        others.inspect("x")
        locks.inspect("x")


def test_a_renewal_that_overtook_the_release_is_no_loss(url: str) -> None:
    with holdfast.connect(url) as locks:
        lost: list[object] = []
        lease = locks.lock("x").acquire()
        lease.on_lost(lost.append)
        session: Any = locks._session()
        renew, release = session.backend.renew, session.backend.release
        sent, released, applied = threading.Event(), threading.Event(), threading.Event()

        def slow_renew(*arguments: Any) -> Any:
            sent.set()
            released.wait(20)
            outcomes = renew(*arguments)
            threading.Timer(0.05, applied.set).start()
            return outcomes

        def slow_release(*arguments: Any) -> Any:
            answer = release(*arguments)
            released.set()
            applied.wait(20)
            return answer

        session.backend.renew, session.backend.release = slow_renew, slow_release
        session.look_at([lease.owner])  # rather than wait until it is due
        assert sent.wait(20)  # the keeper is on its way to the store
        assert lease.release() is True
        assert lost == []


async def test_a_body_that_does_not_yield_past_its_max_hold(url: str) -> None:
    async with holdfast.aio.connect(url) as locks:
        lease = await locks.lock("x", ttl=30.0, max_hold=0.1).acquire(timeout=10.0)
        time.sleep(0.15)
        assert not lease.held
        assert await lease.release() is False
        assert await locks.lock("x").try_acquire(timeout=10.0) is not None


async def test_no_cancellation_is_left_once_the_loss_was_handled(url: str) -> None:
    async with holdfast.aio.connect(url) as locks:

        async def work() -> None:
            async with locks.lock("x", ttl=0.1, renew=False, timeout=10.0) as lease:
                time.sleep(0.15)
                lease.ensure()

        with pytest.raises(holdfast.LeaseLost):
            await work()
        await asyncio.sleep(0.01)


def test_a_callback_that_exits_ends_neither_the_keeper_nor_the_alarm(url: str) -> None:
    with holdfast.connect(url) as locks, holdfast.connect(url) as operator:
        forced, kept = (locks.lock(name).acquire() for name in ("forced", "kept"))
        session = locks._session()
        forced.on_lost(lambda lease: sys.exit(1))
        renewals: list[holdfast.Event] = []
        operator.force_release("forced")
        session.look_at([forced.owner])
        assert forced.wait_lost(timeout=20.0)
        locks.on_event(renewals.append)
        for _ in range(3):
            renewals.clear()
            session.look_at([kept.owner])
            eventually(lambda: "kept" in [event.name for event in renewals])
        assert kept.held
        first = locks.lock("first", ttl=0.1, renew=False).acquire(timeout=10.0)
        first.on_lost(lambda lease: sys.exit(1))
        told: list[object] = []
        locks.lock("second", ttl=0.2, renew=False).acquire(timeout=10.0).on_lost(told.append)
        eventually(lambda: told)


def test_close_while_a_callback_uses_the_manager(url: str) -> None:
    locks = holdfast.connect(url)
    inside, closing = threading.Event(), threading.Event()
    refused: list[holdfast.LockError] = []

    def callback(lease: holdfast.Lease) -> None:
        inside.set()
        closing.wait(20)
        try:
            locks.inspect("x")
        except holdfast.LockError as error:
            refused.append(error)

    lease = locks.lock("x").acquire()
    lease.on_lost(callback)
    with holdfast.connect(url) as operator:
        operator.force_release("x")
    locks._session().look_at([lease.owner])
    assert inside.wait(20)
    thread = threading.Thread(target=locks.close, daemon=True)
    thread.start()
    eventually(lambda: locks.closed)
    closing.set()
    thread.join(20)
    assert not thread.is_alive()
    assert refused


def test_a_signals_handler_may_release(url: str) -> None:
    run(
        """
import random, signal, sys, time, holdfast
locks = holdfast.connect(sys.argv[1])
other = [locks.lock("other").acquire()]
def handler(*_):
    try:
        other[0].release()
        other[0] = locks.lock("other").acquire(timeout=0)
    except holdfast.LockError:
        pass
    signal.setitimer(signal.ITIMER_REAL, 0.0005 + random.random() * 0.001)
signal.signal(signal.SIGALRM, handler)
signal.setitimer(signal.ITIMER_REAL, 0.001)
end = time.monotonic() + 2
while time.monotonic() < end:
    try:
        with locks.lock("main"):
            pass
    except holdfast.LockError:
        pass
signal.signal(signal.SIGALRM, signal.SIG_IGN)  # set again by a handler, it would end Python
""",
        url,
    )


def test_a_fork_and_a_reopening_do_not_wait_for_each_other(url: str) -> None:
    run(
        """
import os, random, sys, threading, time, warnings, holdfast
warnings.simplefilter("ignore")
locks = holdfast.connect(sys.argv[1])
stop = False
def work():
    while not stop:
        with locks.lock("a"):
            pass
threads = [threading.Thread(target=work) for _ in range(2)]
for thread in threads: thread.start()
end = time.monotonic() + 3
while time.monotonic() < end:
    started = time.monotonic()
    child = os.fork()
    if not child:
        os._exit(0)
    assert time.monotonic() - started < 4, "it waited for a step that waited for it"
    time.sleep(random.random() * 0.001)
    os.waitpid(child, 0)
stop = True
for thread in threads: thread.join()
""",
        url,
    )


def test_watches_end_with_their_attempt(url: str) -> None:
    holder = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import sys, holdfast\n"
            "with holdfast.connect(sys.argv[1]) as locks, locks.lock('x'):\n"
            "    print(1, flush=True); input()",
            url,
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert holder.stdout is not None
    holder.stdout.readline()
    with holdfast.connect(url, heartbeat=0.005) as locks:

        def wait() -> None:
            for _ in range(100):
                assert locks.lock("x").try_acquire(timeout=0.006) is None

        threads = [threading.Thread(target=wait) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        session: Any = locks._session()
        eventually(lambda: session.backend._watches == {})
    holder.communicate(b"\n")


def test_the_folder_of_the_living_does_not_grow(url: str, tmp_path: Path) -> None:
    run(
        """
import multiprocessing, sys, warnings, holdfast
warnings.simplefilter("ignore")
def job():
    with holdfast.connect(sys.argv[1]) as locks, locks.lock("x"):
        pass
for _ in range(80):
    process = multiprocessing.get_context("fork").Process(target=job)
    process.start()
    process.join()
""",
        url,
    )
    assert len(os.listdir(tmp_path / "locks.db-live")) < 80
