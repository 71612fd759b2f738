"""`python -m bench [FIGURE…] [--json FILE] [--quick] [--dir FOLDER]`: measure, and print a table."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sqlite3
import sys
import tempfile
import time
import traceback
from importlib import import_module
from pathlib import Path
from typing import Any

from .measure import ROOT, Row, Setting, file_system

FIGURES = {
    "uncontended": "acquire and release a lock that nobody else wants",
    "wakeup": "from the release in one process to the grant in another",
    "handaround": "eight processes and one lock",
    "waiters": "one lock, and a hundred to ten thousand tasks that wait for it",
    "crowd": "on each store: one lock, and a hundred to two thousand tasks that each take it once",
    "keeper": "ten thousand leases, renewed",
    "startup": "import",
    "command": "`holdfast run` on the embedded store, Redis and etcd, beside flock and etcdctl lock",
    "listing": "on each store: `holdfast ls` of ten thousand locks",
    "etcd_uncontended": "etcd: acquire and release, at first and after ten thousand times",
    "etcd_handoff": "etcd: 2, 8 and 32 processes and one lock",
    "etcd_wakeup": "etcd: from the release in one process to the grant in another",
    "etcd_keeper": "etcd: ten thousand leases, acquired and renewed",
    "redis_uncontended": "Redis: acquire and release, blocking, asyncio, 1,024 coroutines",
    "redis_handoff": "Redis: 8 and 32 processes and one lock",
    "redis_wakeup": "Redis: from the release in one process to the grant in another",
    "redis_keeper": "Redis: ten thousand leases, renewed",
    "redlock": "Redlock: five nodes, 64 coroutines, two nodes that hang",
    "simulator": "simulated runs a second",
    "zookeeper_uncontended": "ZooKeeper: acquire and release, the same name and fresh ones",
    "zookeeper_wakeup": "ZooKeeper: from the release in one process to the grant in another",
    "postgres_uncontended": "PostgreSQL: acquire and release, also among a million names",
    "postgres_handoff": "PostgreSQL: 2, 8 and 32 processes and one lock",
    "postgres_wakeup": "PostgreSQL: from the release in one process to the grant in another",
    "postgres_keeper": "PostgreSQL: ten thousand leases, renewed",
    "mariadb_uncontended": "MariaDB: acquire and release",
    "primitives": "on each store: a permit, a reader, four locks at once, beside a lock",
    "service": "the lock service on Redis: a pair of requests, 5,000 that wait, 1,000 listeners",
    "page": "the live page in Chromium: 10,000 locks, 1,000 changes a second",
    "failover": "a leader is killed, paused, cut off: the gap until the next one leads",
    "fences": "a fenced write beside the same write without a fence",
}

_MEMORY = ("tmpfs", "ramfs")
_HEAD = ("what", "ours", "beside", "ratio", "target", "met")
_WIDTHS = (42, 20, 44, 7, 9, 3)


def main() -> int:
    wanted = _arguments()
    parent = wanted.dir or _disk()
    report: dict[str, Any] = {"machine": _machine(parent), "quick": wanted.quick, "figures": {}}
    print("  ".join(f"{name}: {value}" for name, value in report["machine"].items()))
    if wanted.quick:
        print("Quick: too few samples to judge by.")
    failed = False
    try:
        for name in wanted.figures or FIGURES:
            print(f"\n{name}: {FIGURES[name]}\n{_line(_HEAD)}", flush=True)
            try:
                with tempfile.TemporaryDirectory(prefix="holdfast-bench-", dir=parent) as folder:
                    rows = import_module(f".{name}", __package__).figure(
                        Setting(Path(folder), wanted.quick)
                    )
            except Exception:
                traceback.print_exc()
                print(f"{name} could not be measured")
                failed = True
                continue
            for row in rows:
                print(_line(_cells(row)), flush=True)
            report["figures"][name] = [row._asdict() for row in rows]
    except KeyboardInterrupt:
        return 130
    finally:
        if wanted.json:
            wanted.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    return int(failed)


def _arguments() -> argparse.Namespace:
    listed = "\n".join(f"  {name:12} {what}" for name, what in FIGURES.items())
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description=f"Measure Holdfast. The figures:\n{listed}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("figures", nargs="*", metavar="FIGURE", help="which of them; all")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything measured there")
    parser.add_argument("--quick", action="store_true", help="does it run at all? in half a minute")
    parser.add_argument(
        "--dir", type=Path, metavar="FOLDER", help="measure on the file system of this folder"
    )
    wanted = parser.parse_args()
    unknown = [name for name in wanted.figures if name not in FIGURES]
    if unknown:
        parser.error(f"there is no figure {unknown[0]!r}; there are {', '.join(FIGURES)}")
    return wanted


def _disk() -> Path:
    """Returns the folder for temporary files, if it is on a disk, or another one that is."""
    candidates = [Path(tempfile.gettempdir()), Path("/var/tmp"), ROOT]
    for candidate in candidates:
        if os.access(candidate, os.W_OK) and file_system(candidate) not in _MEMORY:
            return candidate
    return candidates[0]


def _machine(folder: Path) -> dict[str, Any]:
    return {
        "date": time.strftime("%Y-%m-%d"),
        "cores": len(os.sched_getaffinity(0)),
        "load": round(os.getloadavg()[0], 1),
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "file system": file_system(folder),
    }


def _cells(row: Row) -> tuple[str, ...]:
    shown = "" if row.ratio is None else f"{row.ratio:.2f}"
    met = "" if row.met is None else "yes" if row.met else "NO"
    return (row.what, row.ours, row.other, shown, row.target, met)


def _line(cells: tuple[str, ...]) -> str:
    padded = (cell.ljust(width) for cell, width in zip(cells, _WIDTHS, strict=True))
    return " ".join(padded).rstrip()


if __name__ == "__main__":
    sys.exit(main())
