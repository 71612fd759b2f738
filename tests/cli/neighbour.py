"""Another client of a store, which does not check what it calls itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Thread
from unittest import mock

import holdfast
from cli.stage import eventually

HOSTILE = "evil\x1b[31m\x9b2J\x07\x7f\nnext \u202eover"
"""A label with all that could harm a terminal."""


@contextmanager
def rude_client(url: str, label: str = HOSTILE) -> Iterator[holdfast.Locks]:
    """Yields a manager with a label that Holdfast would refuse."""
    with mock.patch("holdfast.checks.label", lambda text: text):
        locks = holdfast.connect(url, label=label)
    with locks:
        yield locks


@contextmanager
def waiter(locks: holdfast.Locks, name: str) -> Iterator[None]:
    """Someone in the lock's queue, who holds the lock once it is granted, until this is left."""
    before = len(locks.inspect(name).waiters)
    leases = []

    def wait() -> None:
        with suppress(holdfast.LockError):  # it was closed
            leases.append(locks.lock(name).acquire(timeout=None))

    thread = Thread(target=wait)
    thread.start()
    try:
        eventually(lambda: len(locks.inspect(name).waiters) > before, f"a waiter for {name}")
        yield
    finally:
        locks.close()
        thread.join(30)
