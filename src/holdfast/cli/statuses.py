"""The exit statuses that are ours. All others are the command's own."""

SOMETHING_WRONG = 1
"""The doctor has found that a guarantee does not hold."""
USAGE = 2
UNREACHABLE = 69
"""The store did not answer, so nothing was run."""
INTERNAL = 70
"""A mistake in Holdfast itself; its traceback is on stderr."""
NOT_WRITTEN = 74
"""The output could not be written, as to a disk that is full."""
BUSY = 75
LOST = 76
"""The lease ended under the command, which was then ended too."""
NOT_ENDED = 77
"""The lease ended under the command, of which something could not be ended and may still run."""
CANNOT_RUN = 126
NOT_FOUND = 127


def ended_by(signal: int) -> int:
    """As a shell shows it."""
    return 128 + signal
