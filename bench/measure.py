"""How everything here is measured: side by side, in turns, and compared pair by pair.

A machine that others use is twice as slow in one second as in the next, so a time by itself says
little. What is compared therefore takes turns in short batches within one run; each batch is divided
by the batch of the other that ran next to it, and the median of these ratios is the figure.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from types import TracebackType
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent


class Setting(NamedTuple):
    """What a figure is told."""

    folder: Path
    """An empty folder of its own, on the file system that is measured."""
    quick: bool


class Row(NamedTuple):
    """One line of the table."""

    what: str
    ours: str
    other: str
    """The floor, or the library, that ours stands beside."""
    ratio: float | None
    target: str
    met: bool | None
    """None: there is no target, the line is there to compare."""
    numbers: dict[str, Any]
    """What the line was made from, for the JSON file."""


def compare(what: str, ours: str, other: str, ratio: float | None = None, **numbers: Any) -> Row:
    """A line without a target."""
    return Row(what, ours, other, ratio, "", None, numbers)


Samples = dict[str, list[float]]
Batch = Callable[[int], object]
"""Does as many turns as it is told."""


def times(turn: Callable[[], object]) -> Batch:
    def batch(number: int) -> None:
        for _ in range(number):
            turn()

    return batch


def interleave(batches: Mapping[str, Batch], rounds: int, number: int) -> Samples:
    """Seconds for one turn of each, `rounds` times, in batches of `number` turns.

    Who begins changes from round to round, so that nobody always runs after the same neighbour.
    """
    names = list(batches)
    for name in names:
        batches[name](number)  # warm
    samples: Samples = {name: [] for name in names}
    for index in range(rounds):
        start = index % len(names)
        for name in names[start:] + names[:start]:
            batch = batches[name]
            began = time.perf_counter()
            batch(number)
            samples[name].append((time.perf_counter() - began) / number)
    return samples


def ratio(ours: Sequence[float], other: Sequence[float]) -> float:
    """The median of the paired ratios."""
    return median(a / b for a, b in zip(ours, other, strict=True))


def difference(ours: Sequence[float], other: Sequence[float]) -> float:
    """The median of the paired differences."""
    return median(a - b for a, b in zip(ours, other, strict=True))


def quantile(values: Sequence[float], part: float) -> float:
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * part), len(ordered) - 1)]


def jain(shares: Sequence[float]) -> float:
    """Jain's index of fairness: 1 when all have the same, 1/n when one has it all."""
    squares = sum(share * share for share in shares)
    return sum(shares) ** 2 / (len(shares) * squares) if squares else 0.0


def duration(seconds: float) -> str:
    """For people: 53 µs, 0.24 ms, 25 ms, 1.20 s."""
    if seconds < 100e-6:
        return f"{seconds * 1e6:.1f} µs"
    if seconds < 1e-3:
        return f"{seconds * 1e6:.0f} µs"
    if seconds < 1.0:
        return f"{seconds * 1e3:.3g} ms"
    return f"{seconds:.2f} s"


class Child:
    """A process of the same interpreter that runs `python -m MODULE ARGS…` and speaks in JSON lines.

    It is ended, if it has not ended by itself, when the `with` is left.
    """

    def __init__(self, module: str, *args: object, pass_fds: Sequence[int] = ()) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, *map(str, args)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            pass_fds=pass_fds,
        )

    def send(self, message: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message) + "\n")
        self._process.stdin.flush()

    def receive(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"a measuring process ended early, status {self._process.wait()}")
        return json.loads(line)

    def __enter__(self) -> Child:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(timeout=30 if error is None else 0.1)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()


def say(message: object) -> None:
    """In a child: answer the parent."""
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def url_of(file: Path) -> str:
    return f"sqlite://{file}"


def file_system(path: Path) -> str:
    """The type of the file system that `path` is on, such as ext4 or tmpfs."""
    device = os.stat(path).st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    with open("/proc/self/mountinfo", encoding="utf-8") as mounts:
        for line in mounts:
            left, _, right = line.partition(" - ")
            if left.split()[2] == wanted:
                return right.split()[0]
    return "unknown"
