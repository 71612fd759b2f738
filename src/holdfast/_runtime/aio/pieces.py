"""Long work in pieces, between which the other tasks of the loop have their turns."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Generic, TypeVar

Item = TypeVar("Item")

PIECE = 32
"""Items that are dealt with in one go."""


class Pieces(Generic[Item]):
    """The items of `items`; before each piece of them the loop runs what else there is to do.

    A look at ten thousand locks takes a second or more, and renewals that wait for it come too late.
    """

    __slots__ = ("_items", "_left")

    def __init__(self, items: Iterable[Item]) -> None:
        self._items = iter(items)
        self._left = PIECE

    def __aiter__(self) -> Pieces[Item]:
        return self

    async def __anext__(self) -> Item:
        for item in self._items:
            self._left -= 1
            if not self._left:
                self._left = PIECE
                await asyncio.sleep(0)
            return item
        raise StopAsyncIteration
