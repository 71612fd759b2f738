"""Waits in a queue, is handed the lock, gives it back: to be killed at any system call on the way."""

from __future__ import annotations

import sys

import holdfast

if __name__ == "__main__":
    locks = holdfast.connect(sys.argv[1])
    lock = locks.lock("x", ttl=0.4)
    for _ in range(2):
        lock.acquire(timeout=5.0).release()
    locks.close()
    print("done", flush=True)
