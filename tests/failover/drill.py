"""A failover drill: a leader is killed, paused or cut off, and another one leads. How long was the gap?

The leader and the one who stands by are processes of their own, on one real store. The leader reaches
it through a proxy, so that it alone can be cut off.
"""

from __future__ import annotations

import json
import os
import queue
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from holdfast.chaos.servers.processes import end_group, freeze, start, thaw
from holdfast.chaos.servers.proxy import Proxy

TTL = 4.0
LIMIT = 60.0
TESTS = Path(__file__).resolve().parent.parent

KILLED, PAUSED, CUT_OFF = "killed", "paused", "cut off"


class Outcome(NamedTuple):
    """What came of a drill."""

    gap: float
    """Seconds from the fault until the next one led."""
    told: float | None
    """Seconds from the moment at which the old leader was told until the next one led; None: it was
    killed. Of a paused one, less than 0: it was told when it went on."""
    rose: bool
    """Whether the next leader's token is above the first one's."""


class Candidate:
    """A candidate in a process of its own."""

    def __init__(self, url: str, value: str, ttl: float) -> None:
        self._process = start(
            [sys.executable, "-m", "failover.candidate", url, value, str(ttl)],
            environment={"PYTHONPATH": str(TESTS)},
            output=subprocess.PIPE,
            errors=None,
        )
        self._lines: queue.Queue[dict[str, Any]] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(json.loads(line))

    def says(self, what: str) -> dict[str, Any]:
        """Waits for its next line, which has to be this one."""
        line = self._lines.get(timeout=LIMIT)
        assert line["what"] == what, line
        return line

    @property
    def pid(self) -> int:
        return self._process.pid

    def end(self) -> None:
        """Kills it, also if it stands still."""
        end_group(self._process)
        assert self._process.stdout is not None
        self._process.stdout.close()


@contextmanager
def proxied(url: str) -> Iterator[tuple[str, list[Proxy]]]:
    """Yields the URL by way of proxies, one for each server that it names; and the proxies."""
    proxies: list[Proxy] = []

    def through(match: re.Match[str]) -> str:
        proxies.append(Proxy(int(match[1])))
        return f"127.0.0.1:{proxies[-1].port}"

    try:
        yield re.sub(r"127\.0\.0\.1:(\d+)", through, url), proxies
    finally:
        for proxy in proxies:
            proxy.close()


def drill(url: str, fault: str, ttl: float = TTL) -> Outcome:
    """Has a leader meet with the fault, and returns what came of it."""
    with proxied(url) as (way, proxies):
        leader = Candidate(way if fault == CUT_OFF else url, "first", ttl)
        next_one = None
        try:
            leader.says("asked")
            first = leader.says("leads")
            next_one = Candidate(url, "second", ttl)
            next_one.says("asked")
            at = time.clock_gettime(time.CLOCK_BOOTTIME)
            if fault == KILLED:
                os.kill(leader.pid, signal.SIGKILL)
            elif fault == PAUSED:
                freeze(leader.pid)
            else:
                for proxy in proxies:
                    proxy.stalled = True
            second = next_one.says("leads")
            told = None
            if fault == PAUSED:
                thaw(leader.pid)
            if fault != KILLED:
                told = second["at"] - leader.says("told")["at"]
            return Outcome(second["at"] - at, told, second["token"] > first["token"])
        finally:
            leader.end()
            if next_one is not None:
                next_one.end()
