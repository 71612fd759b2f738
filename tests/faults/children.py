"""Forks, told to Python or not, and what a child of a process that holds a lock may be asked."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

import holdfast
import holdfast.aio
from faults.actors import Stage
from faults.program import drive, settle

CHILD_LIMIT = 40
"""Seconds after which a child counts as hung."""


def connect(world: str, url: str) -> Any:
    return holdfast.aio.connect(url) if world == "aio" else holdfast.connect(url)


def play(world: str, scene: Callable[..., Any], *arguments: Any) -> None:
    """Run a coroutine function in its world."""
    if world == "aio":
        asyncio.run(scene(*arguments))
    else:
        drive(scene(*arguments))


def fork(world: str, scene: Callable[..., Any], *arguments: Any) -> int:
    """A child that plays a scene and ends; answers its pid."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        signal.alarm(CHILD_LIMIT)
        play(world, scene, *arguments)
        code = 0
    except BaseException as error:
        os.write(2, f"the child: {error!r}\n".encode())
    finally:
        os._exit(code)


def ended_well(pid: int) -> None:
    _, status = os.waitpid(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    assert code != -signal.SIGALRM, "the child hung"
    assert code == 0, f"the child ended with {code}"


async def holds_nothing(lease: Any) -> None:
    """Checks that an inherited lease is of no use to the child."""
    assert lease.held is False
    assert lease.remaining() == 0.0
    calls: dict[str, Callable[[], Any]] = {
        "ensure": lease.ensure,
        "renew": lease.renew,
        "release": lease.release,
        "wait_lost": lease.wait_lost,
        "on_lost": lambda: lease.on_lost(print),
    }
    for verb, call in calls.items():
        token = None
        try:
            await settle(call())
        except holdfast.LockNotOwned as error:
            token = error.token
        assert token == lease.token, f"{verb} was allowed to the child"


async def still_held(lease: Any, stage: Stage) -> None:
    """To the parent its lease is what it was; and a stranger finds it held."""
    assert lease.held
    await settle(lease.renew())
    lease.ensure()
    stranger = stage.actor()
    assert stranger.attempt(lease.name) is None
    assert stranger.ask("inspect", name=lease.name)["holders"] == [lease.token]


def untold_fork(scene: Callable[[], Any]) -> int:
    """Forks without Python being told, as C code may; returns the pid of the child."""
    # No other thread may be asking for the interpreter's lock then: this one would hand it over in the
    # child, too, and wait for ever until somebody takes it.
    interval = sys.getswitchinterval()
    sys.setswitchinterval(60.0)
    time.sleep(0.05)
    pid: int = ctypes.PyDLL(None).fork()  # which keeps the interpreter's lock
    sys.setswitchinterval(interval)
    if pid:
        return pid
    code = 1
    try:
        signal.alarm(CHILD_LIMIT)
        scene()
        code = 0
    except BaseException as error:
        os.write(2, f"the child: {error!r}\n".encode())
    finally:
        os._exit(code)
