"""Ten thousand leases on Redis, kept by renewals: what that costs the process that holds them."""

from __future__ import annotations

import os
import sys
import time

import holdfast

from .measure import Child, Row, Setting, compare, say
from .redis_server import server

LEASES = 10_000
TTL = 6.0


def figure(setting: Setting) -> list[Row]:
    seconds = 6.0 if setting.quick else 20.0
    with (
        server(setting.folder) as port,
        Child("bench.redis_keeper", port, LEASES, seconds) as child,
    ):
        found = child.receive()
    cpu, size, threads, lost = found["cpu"], found["megabytes"], found["threads"], found["lost"]
    return [
        Row(
            f"{LEASES:,} leases, TTL {TTL:g} s: CPU",
            f"{cpu:.1%}",
            "one core",
            None,
            "≤ 3 %",
            cpu <= 0.03 and not lost,
            found,
        ),
        Row("  memory", f"{size:.1f} MB", "", None, "≤ 25 MB", size <= 25, found),
        Row("  threads beside the caller's", f"{threads}", "", None, "1", threads == 1, found),
        compare("  leases lost", f"{lost}", ""),
    ]


def _resident() -> float:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def _measure(port: int, number: int, seconds: float) -> dict[str, float]:
    with holdfast.connect(f"redis://127.0.0.1:{port}/0") as locks:
        locks.lock("warm").acquire().release()
        before = _resident()
        leases = [locks.lock(f"lease:{index}", ttl=TTL).acquire() for index in range(number)]
        time.sleep(TTL / 3)  # the first renewals come soon after each other
        began, used = time.monotonic(), time.process_time()
        time.sleep(seconds)
        cpu = (time.process_time() - used) / (time.monotonic() - began)
        lost = sum(not lease.held for lease in leases)
        result = {
            "cpu": cpu,
            "megabytes": _resident() - before,
            "threads": len(os.listdir("/proc/self/task")) - 1,
            "lost": lost,
        }
    return result


if __name__ == "__main__":
    say(_measure(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])))
