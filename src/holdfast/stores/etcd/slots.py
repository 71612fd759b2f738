"""The slots of semaphores: each holder has one, and a key that no other holder can have meanwhile.

The transaction that grants a permit also puts the key of a slot, on the condition that this is as it
was read: absent, or left over by an entry that somebody deleted by hand. It is on the lease of the
holder's entry and goes wherever that goes, so both end together.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from .keys import Naming, StoredEntry
from .wire import messages
from .wire.messages import KeyValue

SEMAPHORE = "semaphore"


def taken_slots(entries: Iterable[StoredEntry]) -> set[int]:
    """Returns the slots of the holders among `entries`."""
    return {one.entry.slot for one in entries if one.entry.slot is not None}


def free_slot(kind: str, taken: set[int]) -> int | None:
    """Returns the first slot that is not taken, for a holder of a semaphore; None for other locks."""
    if kind != SEMAPHORE:
        return None
    slot = 0
    while slot in taken:
        slot += 1
    return slot


def if_free(
    naming: Naming, name: str, slot: int | None, revisions: Mapping[bytes, int] | None = None
) -> bytes:
    """Returns the condition that a slot's key is as it was read, at one of `revisions`, or absent."""
    if slot is None:
        return b""
    key = naming.slot(name, slot)
    return messages.changed_at(key, (revisions or {}).get(key, 0))


def put_slot(
    naming: Naming, name: str, slot: int | None, owner: str, on: bytes
) -> tuple[bytes, ...]:
    """Returns the operation that gives `owner` a slot, on the lease that `on` says."""
    return () if slot is None else (messages.put(naming.slot(name, slot), owner.encode(), on),)


def delete_slot(naming: Naming, name: str, slot: int | None) -> tuple[bytes, ...]:
    """Returns the operation that takes a slot back."""
    return () if slot is None else (messages.delete(naming.slot(name, slot)),)


def read_slots(naming: Naming, name: str) -> bytes:
    """Returns the operation that reads the keys of all slots of a semaphore."""
    first = naming.slots(name)
    return messages.read(first, messages.after(first))


def revisions_of(keys: Iterable[KeyValue]) -> dict[bytes, int]:
    """Returns the revision that last changed each key."""
    return {kv.key: kv.changed for kv in keys}
