"""`python -m faults.sets URL LOG PROCESSES TURNS SEED`: many processes take overlapping sets of locks.

One parent that uses no store itself forks them all; each connects by itself. Every third one is
asyncio. Each prints the longest time that it waited for one of its sets.
"""

from __future__ import annotations

import asyncio
import gc
import os
import random
import sys
import time

import holdfast
import holdfast.aio
from faults.checker import Log

NAMES = [f"n{number}" for number in range(12)]
TOGETHER = 8
TIMEOUT = 60.0


def sets_of(chance: random.Random, turns: int) -> list[list[str]]:
    return [chance.sample(NAMES, chance.randint(2, 5)) for _ in range(turns)]


class Turn:
    """One set that was taken, in the log."""

    def __init__(self, log: Log, who: str, lease: holdfast.MultiLease | holdfast.aio.MultiLease):
        self._log, self._who, self._tokens = log, who, lease.tokens

    def enter(self) -> None:
        for name, token in self._tokens.items():
            self._log.write("in", self._who, name, token)

    def leave(self) -> None:
        for name, token in self._tokens.items():
            self._log.write("out", self._who, name, token)


def blocking(url: str, log: Log, who: str, sets: list[list[str]], ready: int, go: int) -> float:
    longest = 0.0
    with holdfast.connect(url) as locks:
        locks.inspect(NAMES[0])
        os.write(ready, b".")
        os.read(go, 1)
        for names in sets:
            began = time.monotonic()
            log.write("want", who)
            with locks.multi(names, timeout=TIMEOUT) as lease:
                longest = max(longest, time.monotonic() - began)
                turn = Turn(log, who, lease)
                turn.enter()
                lease.ensure()
                turn.leave()
    return longest


async def aio(url: str, log: Log, who: str, sets: list[list[str]], ready: int, go: int) -> float:
    longest = 0.0
    async with holdfast.aio.connect(url) as locks:
        await locks.inspect(NAMES[0])
        os.write(ready, b".")
        os.read(go, 1)
        for names in sets:
            began = time.monotonic()
            log.write("want", who)
            async with locks.multi(names, timeout=TIMEOUT) as lease:
                longest = max(longest, time.monotonic() - began)
                turn = Turn(log, who, lease)
                turn.enter()
                lease.ensure()
                turn.leave()
    return longest


def child(number: int, url: str, path: str, sets: list[list[str]], ready: int, go: int) -> int:
    log = Log(path)
    who = str(number)
    try:
        if number % 3 == 0:
            longest = asyncio.run(aio(url, log, who, sets, ready, go))
        else:
            longest = blocking(url, log, who, sets, ready, go)
    except BaseException as error:
        os.write(2, f"{who}: {error!r}\n".encode())
        os.write(ready, b"!")
        return 1
    log.write("quit", who)
    os.write(1, f"{longest:.3f}\n".encode())
    return 0


def main() -> None:
    url, path = sys.argv[1:3]
    processes, turns, seed = (int(text) for text in sys.argv[3:])
    chance = random.Random(seed)
    ready_read, ready_write = os.pipe()
    go_read, go_write = os.pipe()
    gc.freeze()
    pids = []
    answers = b""
    for number in range(processes):
        sets = sets_of(chance, turns)
        pid = os.fork()
        if pid == 0:
            os.close(go_write)
            os._exit(child(number, url, path, sets, ready_write, go_read))
        pids.append(pid)
        if number >= TOGETHER:
            answers += os.read(ready_read, 1)
    os.close(ready_write)
    while len(answers) < processes:
        answers += os.read(ready_read, 1)
    if b"!" in answers:
        sys.exit("not all could open the store")
    os.close(go_write)
    sys.exit(any([os.waitpid(pid, 0)[1] for pid in pids]))


if __name__ == "__main__":
    main()
