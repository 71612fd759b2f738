"""`python -m faults.syncs URL MARKS`: grants, with a mark before and after each, for strace to see."""

from __future__ import annotations

import os
import sys
import time

import holdfast


def later() -> None:
    """Moves every clock that a token may come from two hours ahead."""
    wall, other = time.time_ns, time.clock_gettime_ns
    time.time_ns = lambda: wall() + 7200 * 10**9
    time.clock_gettime_ns = lambda clock: other(clock) + 7200 * 10**9


def main() -> None:
    url, path = sys.argv[1:]
    marks = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    locks = holdfast.connect(url)
    locks.inspect("x")
    with holdfast.connect(url) as other:
        other.inspect("x")  # so that nobody is the last to close, which waits for the disk
        for number in range(12):
            if number == 10:  # the next ceiling is due
                later()
                locks.close()
                locks = holdfast.connect(url)
                locks.inspect("x")
            os.write(marks, b"begin %d\n" % number)
            lease = locks.lock("x").acquire()
            os.write(marks, b"granted %d\n" % number)
            lease.release()
        os.write(marks, b"close\n")
        locks.close()


if __name__ == "__main__":
    main()
