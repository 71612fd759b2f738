"""Leftovers: locks on a store that nobody has any more, as its users can see them."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import holdfast

ATTEMPTS = 5
LIMIT = 60.0


def left_on(
    url: str, namespace: str, options: dict[str, Any], inside: Sequence[str] = ()
) -> list[str]:
    """Returns, in words, who still holds or awaits a lock of the namespace.

    The store is looked at by a process that is started `inside` a room, if that is given.
    """
    for _ in range(ATTEMPTS - 1):
        with suppress(holdfast.BackendUnavailable):  # it may still be getting over the faults
            return _look_from(inside, url, namespace, options)
        time.sleep(0.5)
    return _look_from(inside, url, namespace, options)


def _look_from(
    inside: Sequence[str], url: str, namespace: str, options: dict[str, Any]
) -> list[str]:
    if not inside:
        return _look(url, namespace, options)
    command = [*inside, sys.executable, "-m", __name__, url, namespace, json.dumps(options)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LIMIT)
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:]
        raise holdfast.BackendUnavailable(f"the store could not be looked at: {' '.join(last)}")
    found: list[str] = json.loads(done.stdout)
    return found


def _look(url: str, namespace: str, options: dict[str, Any]) -> list[str]:
    with holdfast.connect(url, namespace=namespace, **options) as locks:
        return [
            f"{one.owner} ({one.label}) still {verb} {state.name!r}, for {one.remaining:.1f} s"
            for state in locks.list()
            for verb, many in (("holds", state.holders), ("waits for", state.waiters))
            for one in many
        ]


if __name__ == "__main__":
    print(json.dumps(_look(sys.argv[1], sys.argv[2], json.loads(sys.argv[3]))))
