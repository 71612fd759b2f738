"""What happened to the locks of a store between two looks at them. Values only."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from .model import LockState, Participant

GRANTED, ENDED, QUEUED, LEFT, CHANGED = "granted", "ended", "queued", "left", "changed"
UNREACHABLE, REACHED = "unreachable", "reached"


class Sighting(NamedTuple):
    """One thing that was seen of a lock from outside.

    `granted` and `ended` tell of a holder, `queued` and `left` of a waiter (who leaves to be granted is
    only told as granted), `changed` of a holder with another label or weight. `unreachable` and
    `reached` tell of the store: what happened in between is told behind `reached`.
    """

    kind: str
    name: str = ""
    """The lock's name; empty where it is of the store."""
    participant: Participant | None = None
    state: LockState | None = None
    """The lock as it was seen then."""
    detail: str = ""


def sightings(before: Iterable[LockState], now: Iterable[LockState]) -> Iterator[Sighting]:
    """Yields what must have happened between two lists of all locks, lock by lock.

    What ended comes before what began; holders come in the order of their tokens.
    """
    old = {state.name: state for state in before}
    new = {state.name: state for state in now}
    for name in sorted(old.keys() | new.keys()):
        was, is_ = old.get(name), new.get(name)
        if was is None or is_ is None or not _alike(was, is_):
            empty = LockState(name, (), (), 0)
            yield from _of_one(was or empty, is_ or empty)


def _alike(old: LockState, new: LockState) -> bool:
    """Tells whether nothing has happened to a lock; of ten thousand that is true of nearly all."""
    if len(old.holders) != len(new.holders) or len(old.waiters) != len(new.waiters):
        return False
    for had, has in zip(old.holders, new.holders, strict=True):
        if had.owner != has.owner or had.label != has.label or had.weight != has.weight:
            return False
    for waited, waits in zip(old.waiters, new.waiters, strict=True):
        if waited.owner != waits.owner:
            return False
    return True


def _of_one(old: LockState, new: LockState) -> Iterator[Sighting]:
    had = {holder.owner: holder for holder in old.holders}
    has = {holder.owner: holder for holder in new.holders}
    waited = {waiter.owner: waiter for waiter in old.waiters}
    waits = {waiter.owner: waiter for waiter in new.waiters}
    for owner, holder in had.items():
        if owner not in has:
            yield Sighting(ENDED, new.name, holder, new)
    for owner, waiter in waited.items():
        if owner not in waits and owner not in has:
            yield Sighting(LEFT, new.name, waiter, new)
    for holder in sorted(new.holders, key=lambda holder: holder.token):
        known = had.get(holder.owner)
        if known is None:
            yield Sighting(GRANTED, new.name, holder, new)
        elif (known.label, known.weight) != (holder.label, holder.weight):
            yield Sighting(CHANGED, new.name, holder, new)
    for owner, waiter in waits.items():
        if owner not in waited:
            yield Sighting(QUEUED, new.name, waiter, new)
