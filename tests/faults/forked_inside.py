"""`python -m faults.forked_inside WORLD URL ROUNDS`: forks inside calls, and the child goes on there.

As if the handler of a signal forked, and returned, at any line of ours. The child must not believe that
it holds anything, and its parent must lose nothing.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import holdfast
import holdfast.aio
from faults.actors import until
from faults.children import CHILD_LIMIT, connect, ended_well, play
from faults.program import settle
from holdfast import forks

OURS = str(Path(holdfast.__file__).parent)
FIRST = 60
"""Lines in which a call has not sent anything yet: a child that is forked there asks for itself."""
LAST = 60
"""Lines before the end of a call, in which it has its answer already: a child that is forked there may
be given a lease, which it does not hold."""

NO_LOOP = "no running event loop"
"""What asyncio itself says in a child that was forked inside a loop."""
CHILD_TIME = 0.05


class Fork:
    """A fork at the line `at` that this thread comes to of those in `folder`, which is ours."""

    def __init__(self, at: int, folder: str = OURS) -> None:
        self.at = at
        self.folder = folder
        self.lines = 0
        self.where = ""
        self.child: int | None = None
        """Its pid; 0 in the child."""

    def __enter__(self) -> Fork:
        sys.settrace(self._enter)
        return self

    def __exit__(self, *exception: object) -> None:
        sys.settrace(None)

    def _enter(self, frame: FrameType, event: str, argument: Any) -> Any:
        return self._step if frame.f_code.co_filename.startswith(self.folder) else None

    def _step(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line":
            self.lines += 1
            if self.lines == self.at:
                self.where = f"{frame.f_code.co_filename}:{frame.f_lineno}"
                self.child = self.fork()
                if not self.child:
                    signal.alarm(CHILD_LIMIT)
        return self._step

    def fork(self) -> int:
        return os.fork()


async def forked_call(at: int, what: Callable[[], Any], lease: Any = None) -> tuple[int, Any]:
    """Makes a call of which a child that is forked at line `at` goes on as well, and is looked at.

    `lease` is the one that the call is about; none if it acquires one. Returns how many lines the call
    took, and its outcome.
    """
    with Fork(at) as fork:
        try:
            outcome = await settle(what())
        except BaseException as error:
            if fork.child == 0:
                if isinstance(error, holdfast.LockError) or str(error) == NO_LOOP:
                    os._exit(0)
                complain(fork, error)
            raise
    if fork.child == 0:
        await judge(fork, outcome, lease)
    if fork.child:
        children.append(fork.child)
    return fork.lines, outcome


async def judge(fork: Fork, outcome: Any, lease: Any) -> None:
    """Ends the child; with an error if it may believe that it holds what its parent holds."""
    if lease is None and outcome.held:
        # One that it asked for itself: it was forked before anything was sent.
        well = outcome._hold._session.generation == forks.current() and fork.at <= FIRST
        well = well and await settle(outcome.release())
    elif lease is None:
        well = fork.lines - fork.at <= LAST
    else:
        well = not lease.held
    if not well:
        complain(fork, outcome)
    os._exit(0)


def complain(fork: Fork, outcome: object) -> None:
    os.write(2, f"the child of {fork.where}: {outcome!r}\n".encode())
    os._exit(1)


def reap(world: str) -> None:
    """Waits for the children; in asyncio one may wait for ever, for a thread that it does not have."""
    while children:
        child = children.pop()
        if world == "aio":
            time.sleep(CHILD_TIME)
            os.kill(child, signal.SIGALRM)
            _, status = os.waitpid(child, 0)
            assert os.waitstatus_to_exitcode(status) in (0, -signal.SIGALRM)
        else:
            ended_well(child)


children: list[int] = []


async def calls(world: str, locks: Any, rival: Any, at: dict[str, int]) -> dict[str, int]:
    """Makes each call once, with a fork at its line `at`; returns how many lines each took."""
    lock = locks.lock("x", ttl=30.0)
    took: dict[str, int] = {}
    took["acquire"], lease = await forked_call(at.get("acquire", 0), lock.acquire)
    took["renew"], _ = await forked_call(at.get("renew", 0), lease.renew, lease)
    took["release"], freed = await forked_call(at.get("release", 0), lease.release, lease)
    assert freed is True

    busy = rival.lock("x", ttl=30.0).acquire()

    def free() -> None:
        until(lambda: rival.inspect("x").waiters)
        busy.release()

    thread = threading.Thread(target=free)
    thread.start()
    took["wait"], lease = await forked_call(at.get("wait", 0), lambda: lock.acquire(timeout=60.0))
    thread.join()
    await settle(lease.renew())
    assert await settle(lease.release()) is True
    reap(world)
    return took


async def scene(world: str, url: str, rounds: int) -> None:
    locks, rival = connect(world, url), holdfast.connect(url)
    other = await settle(locks.lock("other", ttl=30.0).acquire())
    await calls(world, locks, rival, {})
    took = await calls(world, locks, rival, {})  # nothing is done for the first time now
    chance = random.Random(f"{world} {rounds}")
    for number in range(rounds):
        share = (number + chance.random()) / rounds
        await calls(world, locks, rival, {call: 1 + int(share * took[call]) for call in took})
        await settle(other.renew())
    assert await settle(other.release()) is True
    await settle(locks.close())
    rival.close()


if __name__ == "__main__":
    world, url, rounds = sys.argv[1:]
    play(world, scene, world, url, int(rounds))
