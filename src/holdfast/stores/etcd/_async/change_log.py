"""The changes of elections, noted by the same transactions that make them.

Each note is a key of its own, and the revision that created it is the change's number. So one read has
all changes in their order, whatever etcd has compacted. The keys are on etcd leases that nobody keeps
alive, and that outlive the manager that made them.

A leader whose lease runs out leaves no note. Whoever observes the election finds that the leader of the
last note is not in the queue, and notes that nobody leads; unless somebody waits, who leads then.
"""

from __future__ import annotations

from ....clock import Clock
from ....model import NOBODY, Change
from ....settlement import ELECTION
from ..keys import Entry, Naming, Note, StoredEntry, decode_note
from ..wire import messages
from ..wire.messages import KeyValue
from .leases import CHANGES, Lease, Leases

KEPT = 86400.0 * 4 / 3
"""Seconds that an etcd lease for notes is given. It takes new ones for a quarter of that, so that each
is kept for a day."""
MOST = 64
"""The number of notes of one election beyond which the oldest are deleted."""
AT_ONCE = 32
"""Notes deleted in one transaction."""


class ChangeLog:
    """The notes of one namespace, as one manager writes and reads them."""

    def __init__(self, clock: Clock, naming: Naming, leases: Leases, token_base: int) -> None:
        self._clock = clock
        self._naming = naming
        self._leases = leases
        self.token_base = token_base

    async def lease(self, kind: str, deadline: float) -> Lease | None:
        """Returns the lease for a note about a lock of this kind; None if none is to be made."""
        return await self._leases.shared(CHANGES, KEPT, deadline) if kind == ELECTION else None

    def leader(
        self, lease: Lease | None, name: str, entry: Entry, changed: int = 0
    ) -> tuple[bytes, ...]:
        """Returns the operations that note a new leader; or its new value, in place of that which the
        revision `changed` left."""
        if lease is None:
            return ()
        key = self._naming.note(name, entry.owner, str(changed) if changed else "leads")
        note = Note(entry.owner, entry.token, self._clock.wall(), entry.label)
        return (messages.put(key, note.encode(), lease.on),)

    def nobody(self, lease: Lease, name: str, owner: str, token: int) -> bytes:
        """Returns the operation which notes that the term of `owner` has ended, and nobody leads."""
        key = self._naming.note(name, owner, "ended")
        return messages.put(key, Note("", token, self._clock.wall(), NOBODY).encode(), lease.on)

    def change(self, kv: KeyValue) -> Change | None:
        """Returns the change that a note is about; None for a key that is not ours."""
        note = decode_note(kv.value)
        if note is None:
            return None
        token = note.token or self.token_base + kv.created
        return Change(kv.created, token, note.owner, note.label, note.since)

    def present(self, leader: StoredEntry) -> Change:
        """Returns the change that made this one the leader, without its note."""
        token = leader.token(self.token_base)
        entry = leader.entry
        return Change(token - self.token_base, token, entry.owner, entry.label, entry.since)

    def old(self, notes: list[KeyValue]) -> list[bytes]:
        """Returns the operations that delete the oldest of too many notes."""
        return [messages.delete(kv.key) for kv in notes[: max(0, len(notes) - MOST)][:AT_ONCE]]
