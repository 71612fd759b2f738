"""`forking.py URL`: forks while it holds a lock, waits for another, and its stream is open.

The child uses the manager that it inherited. Prints "child" and "parent" when each has done its part.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time

import holdfast

LIMIT = 60


def main(url: str) -> None:
    signal.alarm(LIMIT)
    locks = holdfast.connect(url)
    lease = locks.lock("x", ttl=30.0).acquire()
    waited: list[holdfast.Lease] = []
    thread = threading.Thread(target=lambda: waited.append(locks.lock("x", ttl=30.0).acquire()))
    thread.start()
    while len(locks.inspect("x").waiters) != 1:
        time.sleep(0.01)
    child = os.fork()
    if child == 0:
        signal.alarm(LIMIT)
        with locks.lock("y") as own:
            assert own.held
        try:
            lease.release()
        except holdfast.LockNotOwned:
            print("child", flush=True)
        locks.close()
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert status == 0, status
    lease.renew()
    assert lease.release() is True
    thread.join(LIMIT)
    assert waited[0].token > lease.token
    assert waited[0].release() is True
    locks.close()
    print("parent", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
