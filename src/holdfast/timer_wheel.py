"""A timer wheel: items that are due, in a few coarse slots, so that many come due together.

Adding and removing are constant-time and leave nothing behind, which a heap of ten thousand leases
renewed every ten seconds would not offer. An item comes due a little early, never late: its time
is rounded down by at most an eighth of how far ahead it lies.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from math import floor, frexp, inf
from typing import Generic, TypeVar

Item = TypeVar("Item", bound=Hashable)

_FINEST = 2.0**-10  # about 1 ms


class TimerWheel(Generic[Item]):
    """Items by the time at which they come due."""

    __slots__ = ("_slots", "where")

    def __init__(self) -> None:
        self._slots: dict[float, dict[Item, None]] = {}
        self.where: dict[Item, float] = {}
        """The time at which each item comes due: its slot. Read-only for others."""

    def __len__(self) -> int:
        return len(self.where)

    def __contains__(self, item: Item) -> bool:
        return item in self.where

    def add(self, item: Item, due: float, now: float) -> float:
        """Adds `item`, or moves it; returns the time at which it will come due."""
        if item in self.where:
            self.remove(item)
        slot = _slot(due, now)
        self._slots.setdefault(slot, {})[item] = None
        self.where[item] = slot
        return slot

    def add_all(self, items: Iterable[Item], due: float, now: float) -> None:
        """Adds items that are due at the same time, none of which is in the wheel."""
        slot = _slot(due, now)
        many = dict.fromkeys(items)
        if many:
            self._slots.setdefault(slot, {}).update(many)
            self.where.update(dict.fromkeys(many, slot))

    def remove(self, item: Item) -> bool:
        """Removes `item`; returns False if the wheel does not have it."""
        # An interrupt may come after any of these: first the slot, then the note of where it is, and
        # nothing that is missing is an error.
        slot = self.where.get(item)
        if slot is None:
            return False
        items = self._slots.get(slot)
        if items is not None:
            items.pop(item, None)
            if not items:
                self._slots.pop(slot, None)
        self.where.pop(item, None)
        return True

    def next_due(self) -> float:
        """Returns the time at which the next item comes due; infinity if there is none."""
        return min(self._slots, default=inf)

    def pop_due(self, now: float) -> list[Item]:
        """Removes and returns the items that are due."""
        due: list[Item] = []
        for slot in sorted(slot for slot in self._slots if slot <= now):
            items = self._slots.pop(slot)
            for item in items:
                self.where.pop(item, None)
            due.extend(items)
        return due

    def things(self) -> list[Item]:
        """Returns all items."""
        return list(self.where)


def _slot(due: float, now: float) -> float:
    """Returns `due`, rounded down to the beginning of its slot."""
    ahead = due - now
    if ahead <= _FINEST:
        return due
    # The largest power of two that is at most an eighth of the way ahead.
    width = max(2.0 ** (frexp(ahead)[1] - 4), _FINEST)
    return max(floor(due / width) * width, now)
