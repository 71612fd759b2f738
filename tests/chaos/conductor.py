"""A conductor for the tests: opens a lab, says what it started, and waits to be ended."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from holdfast.chaos.faults import FAULTS, NAMESPACES
from holdfast.chaos.labs import open_lab
from holdfast.chaos.servers.janitor import janitor
from holdfast.chaos.servers.processes import children_of, start


def descendants(pid: int) -> list[int]:
    return [one for child in children_of(pid) for one in (child, *descendants(child))]


def folders() -> list[str]:
    told = janitor().told()
    return [line.partition(" ")[2] for line in told if line.startswith("folder ")]


def segments(paths: list[str]) -> list[str]:
    found = []
    for path in paths:
        file = Path(path, "data", "postmaster.pid")
        if file.exists():
            found.append(file.read_text().splitlines()[6].split()[1])
    return found


def main() -> None:
    lab = open_lab(sys.argv[1])
    start([sys.executable, "-c", "import time; time.sleep(1000)"])
    everything = descendants(os.getpid())
    known = {int(line.split()[1]) for line in janitor().told() if line.startswith("process ")}
    (cleaner,) = set(children_of(os.getpid())) - known
    said = {
        "janitor": cleaner,
        "processes": everything,
        "folders": folders(),
        "segments": segments(folders()),
        "faults": list(lab.faults),
        "possible": [
            name
            for name, fault in FAULTS.items()
            if name in lab.possible and (lab.rooms is not None or fault.tier != NAMESPACES)
        ],
    }
    print(json.dumps(said), flush=True)
    for _ in sys.stdin:
        more = start(["sleep", "1000"])
        print(json.dumps([more.pid]), flush=True)


if __name__ == "__main__":
    main()
