"""`python -m etcd_processes.scenes SCENE URL`: a process that holds, waits or forks.

Each scene ends with status 0, or says on stderr what was wrong.
"""

from __future__ import annotations

import asyncio
import faulthandler
import os
import signal
import sys
import threading
import time
from collections.abc import Callable

import holdfast
import holdfast.aio

CHILD_LIMIT = 40


def in_a_fork(work: Callable[[], None]) -> None:
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            faulthandler.dump_traceback_later(CHILD_LIMIT, exit=True)
            work()
            code = 0
        except BaseException as error:
            os.write(2, f"the child: {error!r}\n".encode())
        finally:
            os._exit(code)
    _, status = os.waitpid(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    assert code == 0, f"the child ended with {code}"


def blocking(url: str) -> None:
    """Forked while locks are held and waited for, with a watch open: the child starts afresh."""
    locks = holdfast.connect(url)
    lease = locks.lock("x").acquire()
    waiter = threading.Thread(target=lambda: locks.lock("x").acquire().release())
    waiter.start()
    while not locks.inspect("x").waiters:
        time.sleep(0.002)

    def child() -> None:
        assert not lease.held
        try:
            lease.release()
        except holdfast.LockNotOwned:
            pass
        else:
            raise AssertionError("it released what its parent holds")
        assert locks.lock("x").try_acquire() is None
        mine = locks.lock("y").acquire()
        rival = threading.Thread(target=lambda: locks.lock("y").acquire().release())
        rival.start()
        while not locks.inspect("y").waiters:
            time.sleep(0.002)
        assert mine.release() is True
        rival.join()
        locks.close()

    for _ in range(3):
        in_a_fork(child)
    lease.renew()
    assert lease.release() is True
    waiter.join()
    locks.close()


def aio(url: str) -> None:
    """Forked while one task holds a lock and another waits: the child has a loop of its own."""

    async def parent() -> None:
        async with holdfast.aio.connect(url) as locks:
            lease = await locks.lock("x").acquire()
            waiter = asyncio.create_task(locks.lock("x").acquire())
            while not (await locks.inspect("x")).waiters:  # noqa: ASYNC110
                await asyncio.sleep(0.002)
            for _ in range(3):
                in_a_fork(child)
            await lease.renew()
            assert await lease.release() is True
            assert await (await waiter).release() is True

    def child() -> None:
        asyncio.events._set_running_loop(None)
        asyncio.run(anew())
        with holdfast.connect(url) as locks:
            assert locks.lock("x").try_acquire() is None
            assert locks.lock("y").try_acquire() is not None

    async def anew() -> None:
        async with holdfast.aio.connect(url) as locks:
            assert await locks.lock("x").try_acquire() is None
            lease = await locks.lock("y").acquire()
            assert await lease.release() is True

    asyncio.run(parent())


def busy(url: str) -> None:
    """Forked while threads are in the middle of calls: every child works, and so does the parent."""
    locks = holdfast.connect(url)
    over = threading.Event()
    wrong: list[BaseException] = []

    def work(name: str) -> None:
        try:
            while not over.is_set():
                locks.lock(name).acquire(timeout=20.0).release()
        except BaseException as error:
            wrong.append(error)

    def child() -> None:
        mine = locks.lock(f"child {os.getpid()}").acquire(timeout=5.0)
        assert mine.release() is True

    threads = [threading.Thread(target=work, args=(f"busy {n % 3}",)) for n in range(6)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(100):
            in_a_fork(child)
    finally:
        over.set()
        for thread in threads:
            thread.join()
    assert not wrong, wrong
    locks.close()


class Interrupt(Exception):
    """Raised by the signal handler of `interrupted`."""


def interrupted(url: str) -> None:
    """A signal handler raises between any two lines of the main thread: nobody is stuck for it."""
    locks = holdfast.connect(url)
    over = threading.Event()
    wrong: list[BaseException] = []
    turns = [0, 0]
    interrupts = 0

    def work(number: int) -> None:
        try:
            while not over.is_set():
                locks.lock("shared" if number else "other").acquire(timeout=20.0).release()
                turns[number] += 1
        except BaseException as error:
            wrong.append(error)

    def interrupt(*_: object) -> None:
        raise Interrupt

    threads = [threading.Thread(target=work, args=(number,)) for number in (0, 1)]
    for thread in threads:
        thread.start()
    signal.signal(signal.SIGALRM, interrupt)
    until = time.monotonic() + float(os.environ.get("HOLDFAST_INTERRUPTS", "8"))
    delay = 0.0
    while time.monotonic() < until:
        delay = (delay + 0.000137) % 0.004
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.0002 + delay)
            while True:
                with locks.lock("shared", timeout=20.0):
                    pass
        except Interrupt:
            interrupts += 1
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0.0)
    before = list(turns)
    limit = time.monotonic() + 40.0
    while min(turns) < min(before) + 20 and not wrong:
        assert time.monotonic() < limit, f"stuck after {interrupts} interrupts: {turns}"
        time.sleep(0.01)
    over.set()
    for thread in threads:
        thread.join(40.0)
        assert not thread.is_alive(), "a thread is stuck"
    assert not wrong, wrong
    assert locks.lock("shared").acquire(timeout=40.0).release() is True
    locks.close()
    print(interrupts, flush=True)


def hold(url: str) -> None:
    """Holds a lock until it is killed."""
    lease = holdfast.connect(url).lock("x", ttl=2.0).acquire(timeout=20.0)
    print(lease.token, flush=True)
    time.sleep(60.0)


def wait(url: str) -> None:
    """Waits until it is killed."""
    holdfast.connect(url, claim_window=1.0).lock("x").acquire()
    print("granted", flush=True)
    time.sleep(60.0)


if __name__ == "__main__":
    globals()[sys.argv[1]](sys.argv[2])
