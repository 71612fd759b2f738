"""The rule of admission to a lock whose queue the store itself keeps in order.

On etcd and ZooKeeper holders and waiters are in one queue, in the order in which they joined; new
ones join at its end. **The longest prefix whose weights fit into the capacity may hold the lock.**

Why the rule need not know which contenders hold already, and clients that apply it need not agree:

- A contender in the prefix stays in it for as long as it is in the queue: the queue before it only
  ever gets shorter. So an older copy of the queue errs on the safe side, and two clients that decide
  at the same time agree.
- The weights of all holders never add up to more than the capacity: take the last holder in the
  queue. When it was admitted, it fitted along with all contenders before it; the other holders were
  among them.
- The first contender that does not fit stops all behind it, so a writer is not starved by readers.

A lock has one kind and capacity at a time, so contenders of another are not in its queue; should one
be there all the same (put there by another program), it stops the contenders behind it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Contender(NamedTuple):
    """A holder or waiter in the queue. `shape` is its kind and capacity, as the store spells them."""

    weight: int
    capacity: int
    shape: str
    granted: bool


def admitted(queue: Sequence[Contender]) -> int:
    """Returns how many contenders, counted from the front, may hold the lock."""
    used = 0
    for number, contender in enumerate(queue):
        used += contender.weight
        if used > contender.capacity or contender.shape != queue[0].shape:
            return number
    return len(queue)


def fits_behind(queue: Sequence[Contender], weight: int, capacity: int, shape: str) -> bool:
    """Returns whether a newcomer would be admitted at once."""
    return admitted([*queue, Contender(weight, capacity, shape, False)]) > len(queue)


ALL = -1
"""The answer of `blocker` for a contender that has to watch all before it."""


def blocker(queue: Sequence[Contender], mine: int) -> int | None:
    """Returns the index of the contender that the one at index `mine` has to watch.

    Returns None if that one is admitted, and `ALL` if it has to watch every contender before it: the
    first that is not admitted may be admitted when any of them leaves (unless there is only one).

    One that could share the lock watches the last contender before it that wants all of it: for as
    long as that one is there it is not admitted, and all who wait for the same one come in together.
    Every other contender watches the one before it, for any change: when that one is granted the lock,
    or leaves, the watcher may itself be the first, or be admitted along with it.
    """
    count = admitted(queue)
    if mine < count:
        return None
    if mine == count and mine > 1:
        return ALL
    if queue[mine].weight < queue[mine].capacity:
        for number in range(mine - 1, -1, -1):
            if queue[number].weight == queue[number].capacity:
                return number
    return mine - 1
