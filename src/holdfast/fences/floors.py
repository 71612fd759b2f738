"""Floors, as pure code: what is left of marks that were pruned.

- A resource that nothing is known of counts as one that has seen the floor, so forgetting never lets
  an old token back in. Like a mark, a floor has two numbers: for writers, and for readers.
- Floors are kept apart by *realm* (store and namespace), since 10^15 from one store says nothing about
  10^4 from another. A bare number is measured against all of them, and its floor counts for all.
- A lock that still has a mark when others of its realm are pruned, and whose token is lower than
  theirs, has a holder of long standing, who must not be shut out by them. It is given a floor *of its
  own*, which only its own marks raise, and which ends when no mark of the lock is left. There are as
  many as locks that are held, and used, for longer than marks are kept: few.
- A person can set floors anew, for one lock (then `prune` does not drop it) or for all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from .. import checks
from . import rules
from .rules import Credential, FencedLease, Mark

OWN = "\x01"
"""The first character of the key of a lock's own floor. No name has it."""


class Floor(NamedTuple):
    """The least that a resource without a mark counts as having seen."""

    highest: int = 0
    reader: int = 0
    pinned: bool = False
    """True if a person has set it for one lock."""


Floors = Mapping[str, Floor]
"""Floors by realm; the empty realm is for marks whose lock was never named. And, by `own`, those of
single locks."""


def realm(lock: str) -> str:
    """Returns the realm of a lock: store and namespace, within which tokens compare."""
    return lock.partition("/")[0]


def own(lock: str) -> str:
    """Returns the key of a lock's own floor."""
    return OWN + lock


def loaded(contents: Mapping[str, Any]) -> dict[str, Floor]:
    """Returns floors that were written as JSON; version 0.1 wrote the highest token alone."""
    return {
        where: Floor(floor) if isinstance(floor, int) else Floor(*floor)
        for where, floor in contents.items()
    }


def unknown(floors: Floors, given: Credential) -> Mark:
    """Returns the mark that stands for a resource of which the fence has none."""
    if not floors:
        return Mark()
    if given.lock:
        floor = floors.get(own(given.lock)) or _common(floors, given.lock)
    else:
        floor = highest(floors.values())
    return Mark(floor.highest, "", floor.reader)


def _common(floors: Floors, lock: str) -> Floor:
    """Returns the floor of a lock that has none of its own."""
    return highest(floors[where] for where in (realm(lock), "") if where in floors)


def highest(floors: Iterable[Floor | Mark]) -> Floor:
    writer = reader = 0
    for floor in floors:
        writer, reader = max(writer, floor.highest), max(reader, floor.reader)
    return Floor(writer, reader)


def prunable(mark: Mark) -> bool:
    """Returns True if the mark may become a floor."""
    return max(mark.highest, mark.reader) <= rules.latest()


def raised(floors: Floors, pruned: Iterable[Mark], living: Iterable[Mark] = ()) -> dict[str, Floor]:
    """Returns the floors as they are once the marks `pruned` have been forgotten.

    `living` are marks that stay: all, or at least those that are lower than a pruned one.
    """
    risen = dict(floors)
    holders: dict[str, int] = {}
    for mark in living:
        if mark.lock:
            holders[mark.lock] = max(holders.get(mark.lock, 0), mark.highest, mark.reader)
    for lock in holders:
        risen.setdefault(own(lock), _common(floors, lock))
    for mark in pruned:
        for where in (realm(mark.lock), own(mark.lock)):
            floor = risen.get(where)
            if floor is None and (where.startswith(OWN) or not (mark.highest or mark.reader)):
                continue
            higher = highest((floor or Floor(), mark))
            risen[where] = higher._replace(pinned=floor is not None and floor.pinned)
    for where in [where for where in risen if where.startswith(OWN)]:
        lock, floor = where[len(OWN) :], risen[where]
        common = _common(risen, lock)
        if floor[:2] == common[:2] or not (
            floor.pinned or (lock in holders and holders[lock] < max(common[:2]))
        ):
            del risen[where]
    return risen


def lock_named(lock: str | FencedLease | None) -> str | None:
    """Returns the identity of the lock whose floor is to be reset; None for all locks."""
    if lock is None:
        return None
    if not isinstance(lock, str):
        lock = rules.credential(lock).lock
    return checks.printable("lock, the identity of a lock,", lock, 10_000)


def reset(
    floors: Floors, lock: str | None, to: int
) -> tuple[dict[str, Floor], list[tuple[str, Floor]]]:
    """Returns the floors once those of one lock, or of all, are set to `to`; and what was there."""
    if lock is None:
        return ({"": Floor(to)} if to else {}), list(floors.items())
    was = floors.get(own(lock)) or _common(floors, lock)
    return {**floors, own(lock): Floor(to, 0, True)}, [(lock, was)]
