"""The choice of tests by `--store` and `--quick`, and their order.

A test that is parametrized with a member of `STORES` belongs to that store. Any other belongs to the
store that a word of its path names: `tests/_async/redis/`, `tests/redis_processes/`,
`tests/unit/test_redis_keys.py`.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from stores import STORES

TESTS = Path(__file__).parent
FENCES = "fences"
ALSO = {
    "faults": "sqlite",
    "gate": "sqlite",
    "manual": "memory",
    "mysql": "mariadb",
    "versioned": FENCES,
}
"""Words in the path of a test that mean a store without being its name."""

QUICK_STORES = frozenset({"memory", "redis", "sqlite"})
QUICK_FOLDERS = frozenset({"conformance", "docs", "sqlite", "unit"})
"""Folders that `make test-quick` runs, beside the conformance suite on `QUICK_STORES` and the tests
that stand in no folder."""

SHORT_STORES = frozenset({"memory", "sqlite"})
SHORT_FILES = frozenset({"test_contract.py"})
"""Files of the conformance suite that `make test-pythons` runs on every store; it runs all of it on
`SHORT_STORES`."""

LONG_FILES = (
    "sim/test_simulator.py",
    "surroundings/test_greenlets.py",
    "model/test_redlock_model.py",
    "faults/test_containers.py",
    "fences/test_random.py",
    "cli/test_run_descendants.py",
    "types/test_checkers.py",
    "fences/test_every_fence.py",
    "redis_processes/test_signals.py",
    "cli/test_run.py",
    "zookeeper/test_servers.py",
    "_async/test_unreachable.py",
    "_sync/test_unreachable.py",
    "cli/test_run_lost.py",
    "_async/etcd/test_ways_in.py",
    "etcd_processes/test_processes.py",
    "faults/test_paused.py",
    "redlock/test_real_faults.py",
    "zookeeper/test_processes.py",
    "chaos/test_picture.py",
)
"""Files that take longest, of those that compute and those that wait in turn."""


def family(store: str) -> str:
    """Returns the store that a variant belongs to: `redis` for `redis+cluster`."""
    return store.partition("+")[0]


FAMILIES = sorted({*map(family, STORES), FENCES})


def variant(item: pytest.Item) -> str | None:
    """Returns the member of `STORES` that `item` is parametrized with, if it is."""
    callspec = getattr(item, "callspec", None)
    for name in ("url", "fair_url"):
        if callspec is not None and name in callspec.params:
            return str(callspec.params[name])
    return None


def store_of(item: pytest.Item) -> str | None:
    """Returns the store that `item` belongs to, if it belongs to one."""
    found = variant(item)
    if found is not None:
        return family(found)
    words = [
        word
        for part in item.path.relative_to(TESTS).with_suffix("").parts
        for word in part.split("_")
    ]
    for word in words:
        if word in FAMILIES or word in ALSO:
            return ALSO.get(word, word)
    return None


def is_quick(item: pytest.Item) -> bool:
    """Returns whether `item` is one of the tests for everyday work."""
    found = variant(item)
    if found is not None:
        return found in QUICK_STORES
    folder, *rest = re.sub("^_(a)?sync/", "", item.path.relative_to(TESTS).as_posix()).split("/")
    return folder in QUICK_FOLDERS or (not rest and store_of(item) != FENCES)


def is_short(item: pytest.Item) -> bool:
    """Returns whether `item` is one of the tests for a Python on which not all of them are run."""
    found = variant(item)
    if found is not None:
        return found in SHORT_STORES or item.path.name in SHORT_FILES
    return item.path.parent.name in {"conformance", "unit"}


def longest_first(items: list[pytest.Item]) -> list[pytest.Item]:
    """Returns `items` in an order in which no long file is left for the end, by itself.

    The files that are known to be long come first, then those with the most tests.
    """
    sizes = Counter(item.path for item in items)
    places = {TESTS / name: place for place, name in enumerate(LONG_FILES)}
    return sorted(
        items, key=lambda item: (places.get(item.path, len(places)), -sizes[item.path], item.path)
    )
