"""`python -m etcd_processes.scenes SCENE URL`: a process that holds, waits or forks.

Each scene ends with status 0, or says on stderr what was wrong.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import time
from collections.abc import Callable

import holdfast
import holdfast.aio

CHILD_LIMIT = 10


def in_a_fork(work: Callable[[], None]) -> None:
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            signal.alarm(CHILD_LIMIT)
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
    """gRPC's asyncio side does not survive a fork: that is said, and blocking code is not affected."""

    async def parent() -> None:
        async with holdfast.aio.connect(url) as locks:
            lease = await locks.lock("x").acquire()
            in_a_fork(child)
            await lease.renew()
            assert await lease.release() is True

    def child() -> None:
        asyncio.events._set_running_loop(None)
        said = ""
        try:
            asyncio.run(anew())
        except holdfast.LockError as error:
            said = str(error)
        assert "forked" in said, "it worked, or said something else"
        with holdfast.connect(url) as locks:
            assert locks.lock("x").try_acquire() is None
            assert locks.lock("y").try_acquire() is not None

    async def anew() -> None:
        async with holdfast.aio.connect(url) as locks:
            await locks.lock("y").acquire()

    asyncio.run(parent())


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
