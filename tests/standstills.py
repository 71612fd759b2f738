"""Machines that stand still because others on the same host take their processors.

No test begins while that goes on: leases of seconds say nothing then. What was under way when it began
may fail, and says below its failure for how long nothing ran. No test is run a second time for that.
"""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

LOOK = 0.5
"""Seconds between two looks at the machine."""
SPAN = 1.0
"""Seconds over which it is measured what others take."""
SHARE = 0.25
"""The share of the processors' time that others may take while a test begins."""
LONGEST = 900.0
"""Seconds that one process waits for calm, all its tests together."""
KEPT = 1200.0
"""Seconds for which what was seen is kept: longer than a test may take."""


class Look(NamedTuple):
    """What was seen of the machine at one moment."""

    at: float
    late: float
    """Seconds by which this look came too late: nothing ran meanwhile, or not we."""
    stolen: float
    load: float
    memory: int
    """Bytes of memory that are available."""


def stolen() -> float:
    """Returns the seconds of processor time that other machines have taken since this one began."""
    try:
        ticks = int(Path("/proc/stat").read_text().split(maxsplit=9)[8])
    except (OSError, ValueError, IndexError):
        return 0.0
    return ticks / os.sysconf("SC_CLK_TCK")


class Calm:
    """The wait for a machine that runs, before each test; it is a plugin of those that run tests."""

    def __init__(
        self,
        now: Callable[[], float] = time.monotonic,
        pause: Callable[[float], object] = time.sleep,
        taken: Callable[[], float] = stolen,
        processors: int = os.cpu_count() or 1,
    ) -> None:
        self._now, self._pause, self._taken = now, pause, taken
        self._processors = processors
        self._at, self._before = now(), taken()
        self._left = LONGEST

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self) -> None:
        if self._now() - self._at >= SPAN and self._share() > SHARE:
            self._wait()

    def _wait(self) -> None:
        while self._left > 0:
            began = self._now()
            self._pause(SPAN)
            self._left -= self._now() - began
            if self._share() <= SHARE:
                return

    def _share(self) -> float:
        """Returns what others have taken of this machine's processors since this was last asked."""
        now, taken = self._now(), self._taken()
        share = (taken - self._before) / ((now - self._at) * self._processors)
        self._at, self._before = now, taken
        return share


class Standstills:
    """The looks at the machine; it is a plugin of the process that people started."""

    def __init__(self) -> None:
        self._looks: deque[Look] = deque(maxlen=round(KEPT / LOOK))
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="standstills", daemon=True)

    def pytest_sessionstart(self) -> None:
        self._thread.start()

    def pytest_sessionfinish(self) -> None:
        self._over.set()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            report.sections.append(("the machine meanwhile", self.told(report.duration)))

    def told(self, seconds: float) -> str:
        """Returns in words what was seen in these last seconds."""
        since = time.time() - seconds - 2 * LOOK
        looks = [look for look in list(self._looks) if look.at >= since]
        if not looks:
            return "it was not looked at"
        worst = max(looks, key=lambda look: look.late)
        until = time.strftime("%T", time.gmtime(worst.at))
        lines = [
            f"longest standstill: {worst.late:.1f} s, until {until} UTC",
            f"taken by other machines: {looks[-1].stolen - looks[0].stolen:.1f} s of processor time",
            f"load: up to {max(look.load for look in looks):.1f}",
            f"memory available: {min(look.memory for look in looks) >> 20} MB at the least",
            *(f"free in {place}: {free >> 20} MB" for place, free in _room().items()),
        ]
        return "\n".join(lines)

    def _watch(self) -> None:
        due = time.monotonic() + LOOK
        while not self._over.wait(max(due - time.monotonic(), 0.0)):
            now = time.monotonic()
            self._looks.append(look(now - due))
            due = now + LOOK


def look(late: float) -> Look:
    """Looks at the machine now."""
    return Look(time.time(), late, stolen(), os.getloadavg()[0], _available())


def _available() -> int:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) << 10 for line in lines if "MemAvailable" in line), 0)


def _room() -> dict[str, int]:
    places = [place for place in ("/dev/shm", "/tmp") if os.path.isdir(place)]
    return {place: shutil.disk_usage(place).free for place in places}
