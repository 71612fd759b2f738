"""A timer wheel: things that are due, in a few coarse slots, so that many come due together.

Adding and removing are constant-time and leave nothing behind, which a heap of ten thousand leases
renewed every ten seconds would not offer. A thing comes due a little early, never late: its time
is rounded down by at most an eighth of how far ahead it lies.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from math import floor, frexp, inf
from typing import Generic, TypeVar

Thing = TypeVar("Thing", bound=Hashable)

_FINEST = 2.0**-10  # about 1 ms


class Wheel(Generic[Thing]):
    __slots__ = ("_slots", "where")

    def __init__(self) -> None:
        self._slots: dict[float, dict[Thing, None]] = {}
        self.where: dict[Thing, float] = {}
        """When each thing comes due. To be looked at only."""

    def __len__(self) -> int:
        return len(self.where)

    def __contains__(self, thing: Thing) -> bool:
        return thing in self.where

    def add(self, thing: Thing, due: float, now: float) -> float:
        """Put it in, or move it; answers when it will come due."""
        if thing in self.where:
            self.remove(thing)
        slot = _slot(due, now)
        self._slots.setdefault(slot, {})[thing] = None
        self.where[thing] = slot
        return slot

    def add_all(self, things: Iterable[Thing], due: float, now: float) -> None:
        """Put in many that are due at the same time, none of which is in it."""
        slot = _slot(due, now)
        many = dict.fromkeys(things)
        if many:
            self._slots.setdefault(slot, {}).update(many)
            self.where.update(dict.fromkeys(many, slot))

    def remove(self, thing: Thing) -> bool:
        # An interrupt may come after any of these: first the slot, then the note of where it is, and
        # nothing that is missing is an error.
        slot = self.where.get(thing)
        if slot is None:
            return False
        things = self._slots.get(slot)
        if things is not None:
            things.pop(thing, None)
            if not things:
                self._slots.pop(slot, None)
        self.where.pop(thing, None)
        return True

    def next_due(self) -> float:
        """When the next thing comes due; infinity if there is none."""
        return min(self._slots, default=inf)

    def pop_due(self, now: float) -> list[Thing]:
        """Take out everything that is due."""
        due: list[Thing] = []
        for slot in sorted(slot for slot in self._slots if slot <= now):
            things = self._slots.pop(slot)
            for thing in things:
                self.where.pop(thing, None)
            due.extend(things)
        return due

    def things(self) -> list[Thing]:
        return list(self.where)


def _slot(due: float, now: float) -> float:
    ahead = due - now
    if ahead <= _FINEST:
        return due
    # The largest power of two that is at most an eighth of the way ahead.
    width = max(2.0 ** (frexp(ahead)[1] - 4), _FINEST)
    return max(floor(due / width) * width, now)
