"""Programs and questions for the tests of the gate."""

from __future__ import annotations

import fcntl
import os
import time

from holdfast.clock import BootClock
from holdfast.stores.sqlite.gate import Gate
from sqlite.processes import Process, Start, line

now = BootClock().now

HEAD = """
import os, signal, sys, threading, time
from holdfast.clock import BootClock
from holdfast.stores.sqlite.gate import Gate
from holdfast.errors import BackendUnavailable
now = BootClock().now
gate = Gate(sys.argv[1])
def say(*what): os.write(1, (" ".join(map(str, what)) + "\\n").encode())  # whole lines
"""
INSIDE = HEAD + "gate.enter(None); say('in'); sys.stdin.readline(); gate.leave(); say('out')\n"
# Two inside at once: the second one finds the marker, or the first one misses it.
CROWD = (
    HEAD
    + """
def hammer(rounds):
    for _ in range(rounds):
        try: gate.enter(now() + patience)
        except BackendUnavailable: continue
        try:
            os.close(os.open(sys.argv[1] + ".marker", os.O_CREAT | os.O_EXCL))
            os.unlink(sys.argv[1] + ".marker")
        except OSError: bad.append(1)
        gate.leave()
        done.append(1)
bad = []
done = []
count, rounds, patience = int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
threads = [threading.Thread(target=hammer, args=(rounds,)) for _ in range(count)]
for thread in threads: thread.start()
for thread in threads: thread.join()
say(len(done), *bad)
"""
)


def inside(start: Start) -> Process:
    process = start(INSIDE)
    assert line(process) == "in"
    return process


def threads() -> int:
    """Returns how many threads the kernel sees; `threading` does not know a gate's helper."""
    return len(os.listdir("/proc/self/task"))


def fewer_threads(count: int) -> bool:
    end = time.monotonic() + 20
    while threads() > count:
        if time.monotonic() > end:
            return False
        time.sleep(0.001)
    return True


def free(gate: Gate) -> bool:
    """Returns whether another process could enter now."""
    fd = os.open(gate.file, os.O_RDONLY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(fd)
    return True


def soon_free(gate: Gate) -> bool:
    end = time.monotonic() + 20
    while not free(gate):
        if time.monotonic() > end:
            return False
        time.sleep(0.001)
    return True
