"""What `import holdfast` costs, in whole processes, started in turns with a bare interpreter."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from statistics import median

from .measure import Row, Setting, compare, difference, duration, interleave, ratio

IMPORT_TARGET = 0.060
BARE, IMPORT, IMPORT_AIO = "pass", "import holdfast", "import holdfast.aio"
FILELOCK = "import filelock"


def figure(setting: Setting) -> list[Row]:
    rounds = 8 if setting.quick else 40
    programs = (BARE, IMPORT, IMPORT_AIO, FILELOCK)
    samples = interleave({program: _batch(program) for program in programs}, rounds, 1)

    bare = samples[BARE]
    seconds = {name: median(values) for name, values in samples.items()}
    beside = f"python -c pass {duration(seconds[BARE])}"

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
    return rows


def _batch(program: str) -> Callable[[int], None]:
    def batch(number: int) -> None:
        for _ in range(number):
            subprocess.run([sys.executable, "-c", program], stdin=subprocess.DEVNULL, check=True)

    return batch
