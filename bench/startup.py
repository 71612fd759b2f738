"""What it costs to begin: `import holdfast`, and `holdfast run` around a command that does nothing.

Each is a whole process, started in turns with a bare interpreter, which is the floor of both.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median

from .measure import Row, Setting, compare, difference, duration, interleave, ratio, url_of

IMPORT_TARGET = 0.060
RUN_TARGET = 7.0

BARE, IMPORT, IMPORT_AIO = "python -c pass", "import holdfast", "import holdfast.aio"
FILELOCK, RUN = "import filelock", "holdfast run x -- true"


def figure(setting: Setting) -> list[Row]:
    rounds = 8 if setting.quick else 40
    environment = {**os.environ, "HOLDFAST_URL": url_of(setting.folder / "locks.db")}
    programs = {
        BARE: [sys.executable, "-c", "pass"],
        IMPORT: [sys.executable, "-c", IMPORT],
        IMPORT_AIO: [sys.executable, "-c", IMPORT_AIO],
        FILELOCK: [sys.executable, "-c", FILELOCK],
    }
    run = [str(Path(sys.executable).with_name("holdfast")), "run", "x", "--", "true"]
    trouble = _trouble(run, environment)
    if trouble is None:
        programs[RUN] = run
    batches = {name: _batch(command, environment) for name, command in programs.items()}
    samples = interleave(batches, rounds, 1)

    bare = samples[BARE]
    seconds = {name: median(values) for name, values in samples.items()}
    beside = f"{BARE} {duration(seconds[BARE])}"

    def extra(name: str) -> float:
        return difference(samples[name], bare)

    rows = [
        Row(
            f"{IMPORT}, beyond bare Python",
            duration(extra(IMPORT)),
            beside,
            ratio(samples[IMPORT], bare),
            f"≤ {duration(IMPORT_TARGET)}",
            extra(IMPORT) <= IMPORT_TARGET,
            {"seconds": seconds, "samples": samples},
        )
    ]
    rows.extend(
        compare(f"  {name}", duration(extra(name)), beside, ratio(samples[name], bare))
        for name in (IMPORT_AIO, FILELOCK)
    )
    if trouble is not None:
        rows.append(Row(RUN, "skipped", trouble, None, f"≤ {RUN_TARGET:g} times", None, {}))
    else:
        times = ratio(samples[RUN], bare)
        met = times <= RUN_TARGET
        rows.append(
            Row(RUN, duration(seconds[RUN]), beside, times, f"≤ {RUN_TARGET:g} times", met, {})
        )
    return rows


def _batch(command: Sequence[str], environment: dict[str, str]) -> Callable[[int], None]:
    def batch(number: int) -> None:
        for _ in range(number):
            subprocess.run(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                check=True,
            )

    return batch


def _trouble(command: Sequence[str], environment: dict[str, str]) -> str | None:
    """Why this command cannot be measured, if it cannot."""
    try:
        done = subprocess.run(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError as error:
        return f"no such command yet ({error.strerror})"
    if done.returncode == 0:
        return None
    said = done.stderr.strip().splitlines()
    why = said[-1] if said else f"status {done.returncode}"
    return f"it fails: {why[:60]}"
