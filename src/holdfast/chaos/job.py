"""The job of a worker: all that its conductor tells it."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

VARIABLE = "HOLDFAST_CHAOS_JOB"
"""The environment variable in which it is handed over: not among the arguments, which everybody sees,
since a URL may have a password in it."""


class Job(NamedTuple):
    lane: str
    library: str
    world: str
    """`blocking` or `asyncio`."""
    url: str
    namespace: str
    locks: tuple[str, ...]
    ttl: float
    hold: float
    """The most seconds between a look and a write."""
    rest: float
    """The most seconds between two attempts."""
    long: float
    """The share of holds that are long: of up to two TTLs or so."""
    least: float
    """The seconds for which a lock is held at least."""
    patience: float
    """Seconds that an attempt waits for the lock."""
    seed: str
    life: int
    """How often it has been started, this time included: it is started again after it was killed."""
    zero: float
    history: int
    """The descriptor of the history."""
    registers: int
    """The descriptor of the socket to the registers."""
    options: dict[str, Any]
    """Options of `connect()`, or of the library."""

    def dumps(self) -> str:
        return json.dumps(self._asdict())


def loads(text: str) -> Job:
    """Returns a job from its JSON."""
    fields = json.loads(text)
    return Job(**{**fields, "locks": tuple(fields["locks"])})
