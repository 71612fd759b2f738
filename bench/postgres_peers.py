"""What stands beside ours on PostgreSQL: an advisory lock by hand, and pals, which is built on it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg

import holdfast

from .contest import Give, Take

OURS, ADVISORY, PALS = "holdfast", "raw advisory lock", "pals"
NUMBER = 4711
ENOUGH = 60_000
"""The ms for which pals waits for a lock."""


def ours(url: str) -> Take:
    lock = holdfast.connect(url).lock("bench")
    return lambda: lock.acquire().release


def advisory(url: str) -> Take:
    """Returns a lock of the session: it costs no write, and ends with its connection."""
    connection = psycopg.connect(url, autocommit=True)

    def give() -> None:
        connection.execute("SELECT pg_advisory_unlock(%s)", (NUMBER,))

    def take() -> Give:
        connection.execute("SELECT pg_advisory_lock(%s)", (NUMBER,))
        return give

    return take


def pals(url: str) -> Take:
    import pals as library  # type: ignore[import-not-found, import-untyped, unused-ignore]

    locker: Any = library.Locker("bench", url.replace("postgresql:", "postgresql+psycopg:"))

    def take() -> Give:
        lock = locker.lock("bench", acquire_timeout=ENOUGH)
        assert lock.acquire()
        release: Give = lock.release
        return release

    return take


KINDS: dict[str, Callable[[str], Take]] = {ADVISORY: advisory, PALS: pals, OURS: ours}
