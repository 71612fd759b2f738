"""A client in a process of its own: `actor.py URL OPTIONS SEED [heedless]`.

It takes and gives back locks, and says what it did and when, on a clock that all processes
of the machine share. After a line on its input it gets each lock once more, and ends.
"""

from __future__ import annotations

import json
import select
import sys
import time
from random import Random

import holdfast

TTL = 1.5


def now() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def say(what: str, **details: object) -> None:
    print(json.dumps({"what": what, **details}), flush=True)


def told_to_end() -> bool:
    return bool(select.select([sys.stdin], [], [], 0)[0])


def turn(locks: holdfast.Locks, draw: Random) -> None:
    name = draw.choice(("x", "x", "y"))
    asked = now()
    try:
        lease = locks.lock(name, ttl=TTL, renew=draw.random() < 0.6).try_acquire(
            draw.choice((0.0, 0.5, 2.0))
        )
    except holdfast.LockError as error:
        say("trouble", at=now(), why=str(error))
        time.sleep(0.02)
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
        time.sleep(draw.random() * 0.04)
    try:
        lease.release()
    except holdfast.LockError as error:
        say("trouble", at=now(), why=str(error))
    if not lease.held:
        say("ended", **grant, at=now())


def heedless(locks: holdfast.Locks) -> None:
    """A plain lock: nobody looks whether it is still held."""
    asked = now()
    token = locks.lock("x", ttl=TTL, renew=False).acquire().token
    say("granted", lock="x", token=token, asked=asked, at=now())
    while not told_to_end():
        say("write", lock="x", token=token, at=now())
        time.sleep(0.02)


def main(url: str, options: str, seed: str, *rest: str) -> None:
    draw = Random(int(seed))
    with holdfast.connect(url, **json.loads(options)) as locks:
        say("ready", at=now())
        if "heedless" in rest:
            heedless(locks)
        while not told_to_end():
            turn(locks, draw)
        for name in ("x", "y"):
            with locks.lock(name, ttl=TTL, timeout=40.0) as lease:
                say("again", lock=name, token=lease.token, at=now())


if __name__ == "__main__":
    main(*sys.argv[1:])
