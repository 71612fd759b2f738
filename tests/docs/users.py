"""The user that the examples of the docs run as."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache

NOBODY = 65534
"""A user who owns nothing: what runs for him runs for everybody."""


@cache
def as_somebody() -> list[str]:
    """Returns the words before a command that run it as that user.

    He may read everything, since Python itself may be in a folder that is root's alone. None where we
    are not root, nor where even that is forbidden.
    """
    reads = "-all,+dac_read_search"
    command = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    command += [f"--inh-caps={reads}", f"--ambient-caps={reads}"]
    probe = [*command, sys.executable, "-c", "import holdfast.cli.__main__"]
    if os.geteuid() or subprocess.run(probe, capture_output=True, check=False).returncode:
        return []
    return command
