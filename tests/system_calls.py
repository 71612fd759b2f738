"""System calls by one name on every processor, for strace.

Some processors (aarch64) have only the newer twin of a call: `unlinkat`, never `unlink`. strace passes
over a name that begins with `?` if the processor does not have it, and counts each call by itself. The
C library of a processor uses one of the twins only, so a set of both is that call on all of them.
"""

from __future__ import annotations

import re

TWINS = {"link": ("linkat",), "rename": ("renameat", "renameat2"), "unlink": ("unlinkat",)}


def call_set(*calls: str) -> str:
    """Returns the set of `calls` and their twins, as strace's options want it."""
    every = [name for call in calls for name in (call, *TWINS.get(call, ()))]
    return ",".join(f"?{name}" for name in every)


def call_pattern(call: str) -> str:
    """Returns a regular expression for the names of `call` in what strace writes."""
    return "(?:" + "|".join(map(re.escape, (call, *TWINS.get(call, ())))) + ")"
