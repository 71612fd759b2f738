"""The history of a run: what each process did, and when, one JSON object per line.

All processes append to one file, which has no name any more once they have it open, so that nothing is
left behind. Each line is one `write` to a descriptor with O_APPEND, so that lines never mix. Times are
of the boot clock, which all processes of a machine share, in seconds since the run began.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable
from typing import Any

from ..clock import system_clock

Event = dict[str, Any]
now = system_clock().now


def open_file() -> int:
    """Returns a descriptor of a new file without a name, to which several processes may append."""
    fd, path = tempfile.mkstemp(prefix="holdfast-chaos-")
    try:
        appending = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
    finally:
        os.close(fd)
        os.unlink(path)
    return appending


class History:
    """The writing side. `zero` is the time on the boot clock at which the run began."""

    def __init__(self, fd: int, zero: float) -> None:
        self._fd = fd
        self._zero = zero

    def now(self) -> float:
        """Returns the seconds since the run began."""
        return now() - self._zero

    def add(self, lane: str, kind: str, at: float | None = None, **fields: Any) -> float:
        """Appends an event, of this moment or of `at`; returns its time."""
        at = self.now() if at is None else at
        line = json.dumps({"at": round(at, 6), "lane": lane, "kind": kind, **fields})
        os.write(self._fd, line.encode() + b"\n")
        return at


class Reader:
    """The reading side, while others still write."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._place = 0

    def read(self) -> list[Event]:
        """Returns the events that were added since the last call."""
        pieces = []
        while piece := os.pread(self._fd, 1 << 20, self._place):
            end = piece.rfind(b"\n") + 1
            if not end:
                break
            self._place += end
            pieces.append(piece[:end])
        return [json.loads(line) for line in b"".join(pieces).splitlines()]


def in_order(events: Iterable[Event]) -> list[Event]:
    """Returns the events by their time; a fault that has ended is one event, with its end.

    One that hit nothing is no fault, but a `miss`.
    """
    faults: dict[int, Event] = {}
    kept = []
    for event in events:
        if event["kind"] != "fault":
            kept.append(event)
        elif (known := faults.get(event["number"])) is not None:
            known["until"] = event["until"]
            if event.get("missed"):
                known["kind"] = "miss"
        else:
            fault = {name: value for name, value in event.items() if name != "number"}
            faults[event["number"]] = fault
            kept.append(fault)
    return sorted(kept, key=lambda event: float(event["at"]))
