"""Leftovers: locks on a store that nobody has any more, as its users can see them."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any

import holdfast

ATTEMPTS = 5


def left_on(url: str, namespace: str, options: dict[str, Any]) -> list[str]:
    """Returns, in words, who still holds or awaits a lock of the namespace."""
    for _ in range(ATTEMPTS - 1):
        with suppress(holdfast.BackendUnavailable):  # it may still be getting over the faults
            return _look(url, namespace, options)
        time.sleep(0.5)
    return _look(url, namespace, options)


def _look(url: str, namespace: str, options: dict[str, Any]) -> list[str]:
    with holdfast.connect(url, namespace=namespace, **options) as locks:
        return [
            f"{one.owner} ({one.label}) still {verb} {state.name!r}, for {one.remaining:.1f} s"
            for state in locks.list()
            for verb, many in (("holds", state.holders), ("waits for", state.waiters))
            for one in many
        ]
