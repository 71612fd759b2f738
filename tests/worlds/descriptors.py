"""To wait for a descriptor, whatever its number: `select.select` stops at 1,024."""

from __future__ import annotations

import select
from typing import Protocol


class HasDescriptor(Protocol):
    def fileno(self) -> int: ...


def readable(thing: int | HasDescriptor, seconds: float) -> bool:
    """Whether there is something to read, now or within that time."""
    poll = select.poll()
    poll.register(thing, select.POLLIN)
    return bool(poll.poll(seconds * 1000))
