"""The stores that the conformance suite runs on. A new backend joins by its line in `STORES`."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

_numbers = itertools.count(1)


@contextmanager
def memory(folder: Path) -> Iterator[str]:
    """The URL of a store of its own."""
    yield f"memory://conformance-{next(_numbers)}"


@contextmanager
def sqlite(folder: Path) -> Iterator[str]:
    yield f"sqlite://{folder}/locks.db"


STORES: dict[str, Callable[[Path], AbstractContextManager[str]]] = {
    "memory": memory,
    "sqlite": sqlite,
}
