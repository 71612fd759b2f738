"""The tokens of the embedded store: the boot clock in µs above a base, below a ceiling.

Tokens rise whatever happens. They start from the wall clock at the first opening after a boot, and
from then on follow the boot clock, which no operator sets back; where the last one is ahead of the
clock, each is one more than the last until the clock has caught up. Ordinary commits do not wait for
the disk, so a power cut may undo the last of them; but a *ceiling* above all tokens in use was on the
disk before they were handed out, and after a reboot the tokens go on above the ceiling. So not even
a clock that was set back across a power cut repeats one.

A semaphore's token leaps to a free slot, by a µs for each taken one at the most. Unlike on Redis those
leaps do not add up, nor take other locks' tokens ahead of the clock: the step that leaps has read the
row of each holder, which takes longer than a µs.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

HEADROOM = 60_000_000
"""µs by which the ceiling is put ahead of the clock: one write that waits for the disk per minute."""

LEAST_HEADROOM = 100_000
"""The least distance from a token to the ceiling, where a burst has run ahead of the clock. Small: with
every new boot tokens leap up to the ceiling."""

_BOOTTIME = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class CeilingReached(Exception):
    """Raised where the next token needs a higher ceiling on the disk first: begin again, durably."""


def boot_microseconds() -> int:
    """Returns the boot clock, on which all processes of the machine agree and which never goes back."""
    return time.clock_gettime_ns(_BOOTTIME) // 1000


def boot_nanoseconds() -> Callable[[], int]:
    """Returns a function that reads the same clock in nanoseconds, and runs no Python code."""
    return partial(time.clock_gettime_ns, _BOOTTIME)


def is_clock_coarse() -> bool:
    """Returns whether the clock may show the same microsecond at two successive grants."""
    return time.clock_getres(_BOOTTIME) > 1e-6
