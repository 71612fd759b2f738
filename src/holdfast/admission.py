"""Who of an ordered queue may hold the lock: the rule of the stores that order entries for us.

On etcd and ZooKeeper holders and waiters stand in one line, in the order in which they joined; new
ones join at its end. **The longest prefix whose weights fit into the capacity may hold the lock.**

Why that needs no look at who holds already, and no agreement between those who decide:

- Whoever is in the prefix stays in it for as long as it is in the line: what stands before it only
  ever gets less. So a look at an older line errs on the safe side, and two who decide at once agree.
- The weights of all who hold never add up to more than the capacity: take the last of them in line.
  When it was admitted, it fitted along with all that stood before it; the others who hold were
  among those.
- The first that does not fit stops all behind it, so a writer is not starved by readers.

A lock has one kind and capacity at a time, so entries of another do not stand in its line; should one
be there all the same (a foreign hand), it stops those behind it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Place(NamedTuple):
    """An entry in line. `shape` is the kind and the capacity as the store spells them."""

    weight: int
    capacity: int
    shape: str
    granted: bool


def admitted(line: Sequence[Place]) -> int:
    """How many, counted from the front, may hold the lock."""
    used = 0
    for number, place in enumerate(line):
        used += place.weight
        if used > place.capacity or place.shape != line[0].shape:
            return number
    return len(line)


def fits_behind(line: Sequence[Place], weight: int, capacity: int, shape: str) -> bool:
    """Whether a newcomer would be admitted at once."""
    return admitted([*line, Place(weight, capacity, shape, False)]) > len(line)


ALL = -1


def blocker(line: Sequence[Place], mine: int) -> int | None:
    """Whom the one at index `mine` has to watch: an index before it, `ALL`, or None if it is admitted.

    The first who is not admitted may become so by the going of anyone before it: it watches them
    all, unless there is only one. Everybody behind watches the one before it, for any change: when
    that one is granted the lock, or gone, it may itself be the first, or be admitted along with it.
    """
    free = admitted(line)
    if mine < free:
        return None
    if mine == free and mine > 1:
        return ALL
    return mine - 1
