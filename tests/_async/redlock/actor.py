"""A client in a process of its own: `actor.py URL OPTIONS SEED [heedless]`.

Several at once in it take and give back locks, and say what they did and when, on a clock that all
processes of the machine share. After a line on its input it gets each lock once more, and ends.
"""

from __future__ import annotations

import json
import select
import sys
import threading
import time
from contextlib import suppress
from random import Random

from holdfast import aio as holdfast
from worlds.aio import Job, pause, run

TTL = 1.5
AT_ONCE = 2
SAYING = threading.Lock()


def now() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def say(what: str, **details: object) -> None:
    with SAYING:
        print(json.dumps({"what": what, **details}), flush=True)


def told_to_end() -> bool:
    return bool(select.select([sys.stdin], [], [], 0)[0])


async def turn(locks: holdfast.Locks, draw: Random) -> None:
    name = draw.choice(("x", "x", "y"))
    lock = locks.lock(name, ttl=TTL, renew=draw.random() < 0.6)
    # unasync: aio-only
    if draw.random() < 0.1:
        cancelled = Job(lock.try_acquire, 2.0)
        await pause(draw.choice((0.0, 0.0005, 0.05)))
        with suppress(holdfast.LockError):
            lease = await cancelled.cancelled()
            if lease is not None:
                await lease.release()
        return
    # unasync: end
    asked = now()
    try:
        lease = await lock.try_acquire(draw.choice((0.0, 0.5, 2.0)))
    except holdfast.LockError as error:
        say("trouble", at=now(), why=str(error))
        await pause(0.02)
        return
    if lease is None:
        return
    grant = {"lock": name, "token": lease.token}
    say("granted", **grant, asked=asked, at=now())
    for _ in range(draw.randrange(1, 4)):
        moment = now()
        if not lease.held:
            break
        say("seen", **grant, at=moment)
        say("write", **grant, at=now())
        await pause(draw.random() * 0.04)
    try:
        await lease.release()
    except holdfast.LockError as error:
        say("trouble", at=now(), why=str(error))
    if not lease.held:
        say("ended", **grant, at=now())


async def turns(locks: holdfast.Locks, draw: Random) -> None:
    while not told_to_end():
        await turn(locks, draw)


async def heedless(locks: holdfast.Locks) -> None:
    """Uses a plain lock: no holder checks that it still holds it."""
    asked = now()
    token = (await locks.lock("x", ttl=TTL, renew=False).acquire()).token
    say("granted", lock="x", token=token, asked=asked, at=now())
    while not told_to_end():
        say("write", lock="x", token=token, at=now())
        await pause(0.02)


async def main(url: str, options: str, seed: str, *rest: str) -> None:
    async with holdfast.connect(url, **json.loads(options)) as locks:
        say("ready", at=now())
        if "heedless" in rest:
            await heedless(locks)
        jobs = [Job(turns, locks, Random(f"{seed} {number}")) for number in range(AT_ONCE)]
        while not all(job.done() for job in jobs):
            await pause(0.01)
        for job in jobs:
            await job.result()
        for name in ("x", "y"):
            async with locks.lock(name, ttl=TTL, timeout=40.0) as lease:
                say("again", lock=name, token=lease.token, at=now())


if __name__ == "__main__":
    run(main, *sys.argv[1:])
