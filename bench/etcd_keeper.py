"""Ten thousand leases on etcd: what each costs to acquire, and all of them to keep."""

from __future__ import annotations

import os
import sys
import time
from statistics import median

import holdfast

from .etcd_server import server
from .measure import Child, Row, Setting, compare, say

LEASES = 10_000
TTL = 30.0
PART = 1_000


def figure(setting: Setting) -> list[Row]:
    number = 3_000 if setting.quick else LEASES
    with (
        server(setting.folder) as port,
        Child("bench.etcd_keeper", port, number, 2 * TTL / 3) as child,
    ):
        found = child.receive()
    first, last, cpu, lost = found["first"], found["last"], found["cpu"], found["lost"]
    return [
        Row(
            f"acquire: the last {PART:,} of {number:,}",
            f"{last * 1e3:.2f} ms",
            f"the first: {first * 1e3:.2f} ms",
            last / first,
            "≤ 1.3",
            last <= 1.3 * first,
            found,
        ),
        Row(
            f"{number:,} leases, TTL {TTL:g} s: CPU",
            f"{cpu:.1%}",
            "one core",
            None,
            "≤ 5 %",
            cpu <= 0.05 and not lost,
            found,
        ),
        compare("  threads beside the caller's", f"{found['threads']:.0f}", ""),
        compare("  leases lost", f"{lost:.0f}", ""),
    ]


def _measure(port: int, number: int, seconds: float) -> dict[str, float]:
    with holdfast.connect(f"etcd://127.0.0.1:{port}") as locks:
        locks.lock("warm").acquire().release()
        leases: list[holdfast.Lease] = []
        took: list[float] = []
        for index in range(number):
            began = time.perf_counter()
            leases.append(locks.lock(f"lease:{index}", ttl=TTL).acquire())
            took.append(time.perf_counter() - began)
        began, used = time.monotonic(), time.process_time()
        time.sleep(seconds)
        return {
            "first": median(took[:PART]),
            "last": median(took[-PART:]),
            "cpu": (time.process_time() - used) / (time.monotonic() - began),
            "threads": len(os.listdir("/proc/self/task")) - 1,
            "lost": sum(not lease.held for lease in leases),
        }


if __name__ == "__main__":
    say(_measure(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])))
