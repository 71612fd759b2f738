"""`python -m faults.memory_forks`: forks while threads are in the middle of using `memory://`."""

from __future__ import annotations

import os
import signal
import threading
import warnings

import holdfast
from faults.children import CHILD_LIMIT, ended_well

CHILDREN = 60


def child(locks: holdfast.Locks) -> None:
    signal.alarm(CHILD_LIMIT)
    for manager in (locks, holdfast.connect("memory://shared")):
        with manager.lock("x", timeout=5.0) as lease:
            assert [state.name for state in manager.list()] == ["x"], "the parent's are there too"
            assert lease.held
        manager.close()


def main() -> None:
    warnings.filterwarnings("ignore", category=DeprecationWarning, message=".*fork.*")
    over = threading.Event()
    locks = holdfast.connect("memory://shared")

    def work(number: int) -> None:
        while not over.is_set():
            with locks.lock(f"work {number % 2}", timeout=30.0):
                locks.list()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(CHILDREN):
            pid = os.fork()
            if not pid:
                code = 1
                try:
                    child(locks)
                    code = 0
                except BaseException as error:
                    os.write(2, f"the child: {error!r}\n".encode())
                finally:
                    os._exit(code)
            ended_well(pid)
    finally:
        over.set()
        for thread in threads:
            thread.join()
    locks.close()


if __name__ == "__main__":
    main()
