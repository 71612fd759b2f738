"""Long work in pieces: in a program of threads Python itself lets the others run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Generic, TypeVar

Item = TypeVar("Item")


class Pieces(Generic[Item]):
    """The items of `items`."""

    __slots__ = ("_items",)

    def __init__(self, items: Iterable[Item]) -> None:
        self._items = items

    def __iter__(self) -> Iterator[Item]:
        return iter(self._items)
