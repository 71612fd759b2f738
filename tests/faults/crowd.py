"""`python -m faults.crowd URL LOG PROCESSES TURNS KILLS SEED`: many processes on one lock.

One parent that uses no store itself forks them all, which is quicker than to start two hundred
Pythons; each connects by itself. Every third one is asyncio. They open the store and join the queue a
few at a time, and get their first turns once all of them wait. Some are killed on the way, after so
many lines of the log as chance wants.
"""

from __future__ import annotations

import asyncio
import gc
import os
import random
import signal
import sys
import time

import holdfast
import holdfast.aio
import holdfast.stores.sqlite._async.backend  # now, and not in each child
import holdfast.stores.sqlite._sync.backend
import holdfast.stores.sqlite.mailbox
from faults.checker import Log
from holdfast.chaos.servers.processes import freeze

NAME = "x"
TOGETHER = 8
LONGEST_WAIT = 250.0
"""Seconds: two hundred processes get along slowly on a machine that has other work."""

STARVED = 1.0
"""Seconds without the processor, between a grant and its release, after which the claim window may have
passed before the lease was ever renewed: two hundred processes wake up on two processors."""


def blocking(url: str, log: Log, who: str, turns: int, ready: int, go: int) -> None:
    with holdfast.connect(url) as locks:
        locks.inspect(NAME)
        os.write(ready, b".")
        os.read(go, 1)
        lock = locks.lock(NAME, timeout=LONGEST_WAIT)
        for _ in range(turns):
            log.write("want", who, NAME)
            lease = lock.acquire()
            granted = time.monotonic()
            log.write("in", who, NAME, lease.token)
            lease.ensure()
            log.write("out", who, NAME, lease.token)
            assert lease.release() is True or time.monotonic() > granted + STARVED
        log.write("quit", who)


async def aio(url: str, log: Log, who: str, turns: int, ready: int, go: int) -> None:
    async with holdfast.aio.connect(url) as locks:
        await locks.inspect(NAME)
        os.write(ready, b".")
        os.read(go, 1)
        lock = locks.lock(NAME, timeout=LONGEST_WAIT)
        for _ in range(turns):
            log.write("want", who, NAME)
            lease = await lock.acquire()
            granted = time.monotonic()
            log.write("in", who, NAME, lease.token)
            lease.ensure()
            log.write("out", who, NAME, lease.token)
            assert await lease.release() is True or time.monotonic() > granted + STARVED
        log.write("quit", who)


def child(number: int, url: str, path: str, turns: int, ready: int, go: int) -> int:
    log = Log(path)
    who = str(number)
    try:
        if number % 3 == 0:
            asyncio.run(aio(url, log, who, turns, ready, go))
        else:
            blocking(url, log, who, turns, ready, go)
    except BaseException as error:
        os.write(2, f"{who}: {error!r}\n".encode())
        os.write(ready, b"!")
        return 1
    return 0


def main() -> None:
    url, path = sys.argv[1:3]
    processes, turns, kills, seed = (int(text) for text in sys.argv[3:])
    chance = random.Random(seed)
    ready_read, ready_write = os.pipe()
    go_read, go_write = os.pipe()
    gc.freeze()
    pids = []
    answers = b""
    for number in range(processes):
        pid = os.fork()
        if pid == 0:
            os.close(go_write)
            os._exit(child(number, url, path, turns, ready_write, go_read))
        pids.append(pid)
        if number >= TOGETHER:
            answers += os.read(ready_read, 1)
    os.close(ready_write)
    while len(answers) < processes:
        answers += os.read(ready_read, 1)
    if b"!" in answers:
        sys.exit("not all could open the store")
    log = Log(path)
    locks = holdfast.connect(url)
    log.write("want", "first", NAME)
    lease = locks.lock(NAME).acquire(timeout=5.0)
    log.write("in", "first", NAME, lease.token)
    # Nobody gets a turn before everybody is in the queue, so all have the same chance.
    for begun in range(0, processes, TOGETHER):
        os.write(go_write, b"." * TOGETHER)
        while len(locks.inspect(NAME).waiters) < min(begun + TOGETHER, processes):
            check_all_run(pids)
            time.sleep(0.005)
    log.write("out", "first", NAME, lease.token)
    lease.release()
    log.write("quit", "first")
    locks.close()
    lines = sorted(chance.randrange(processes, processes * turns * 2) for _ in range(kills))
    victims = chance.sample(range(processes), kills)
    killed = set()
    for line, victim in zip(lines, victims, strict=True):
        while lines_of(path) < line:
            check_all_run([pid for pid in pids if pid not in killed])
            time.sleep(0.001)
        freeze(pids[victim])  # or it gets the lock after the line that says that it was killed
        log.write("kill", str(victim))
        os.kill(pids[victim], signal.SIGKILL)
        killed.add(pids[victim])
    failed = [pid for pid in pids if os.waitpid(pid, 0)[1] != 0 and pid not in killed]
    print(len(killed), "killed,", len(failed), "failed")
    sys.exit(bool(failed))


def check_all_run(pids: list[int]) -> None:
    """Ends this program if one of these processes has failed: the others would wait for it."""
    for pid in pids:
        ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if ended is not None and ended.si_status != 0:
            sys.exit("one of the processes failed")


def lines_of(path: str) -> int:
    with open(path, "rb") as file:
        return file.read().count(b"\n")


if __name__ == "__main__":
    main()
