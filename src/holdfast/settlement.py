"""The settlement of a lock: ended entries go, the next waiters are admitted, changes are noted.

One algorithm for every store that keeps its queue as rows of its own (memory, SQLite): it reads
and writes rows through `Rows`, inside one transaction of the store, and never looks at a clock or
a file by itself. `ledger` has the steps that are made of it.

What must stay true:

- The holders' weights never add up to more than the capacity.
- A row becomes a holder in one place only, `_grant`, and its token is minted there, in the same
  transaction. Of a semaphore's holders no two have the same slot.
- Waiters are admitted in the order of their arrival; the first that does not fit stops the rest,
  so that a writer is not starved by readers. A waiter that `barge`s is only woken, never handed the
  lock; it takes it when it asks again. So may a newcomer that barges.
- A row that has expired, or whose process is dead, counts for nothing and is removed by the next
  step that meets it; that step also admits the next waiters.
- Each leader of an election, and each time after which nobody leads, is noted in the same
  transaction; and its observers are woken.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import NamedTuple

from .entries import Entry, Rows, WakeUp
from .model import NOBODY, Change

ELECTION = "election"
"""The kind of lock whose changes are noted."""


class Occupancy(NamedTuple):
    """The use of a lock after everything due has been done: `used` of its capacity is taken by
    `holders`, and `head` is the first waiter that does not fit."""

    holders: list[Entry]
    used: int
    head: Entry | None


class AllBut:
    """Every slot of a semaphore but one."""

    __slots__ = ("_slot",)

    def __init__(self, slot: int) -> None:
        self._slot = slot

    def __contains__(self, slot: object) -> bool:
        return slot != self._slot


class Settlement:
    """The settlement of the locks of one step. Made anew for each transaction.

    `wakeups` are to be sent once the transaction stands.
    """

    __slots__ = ("_rows", "_settled", "wakeups")

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._settled: dict[str, Occupancy] = {}
        """The locks, by name, in which everything due has been done in this transaction."""
        self.wakeups: list[WakeUp] = []

    def _settle(self, name: str, asking: str = "") -> Occupancy:
        """Removes dead and expired entries, admits the next waiters, and returns what there is then.

        A waiter whose owner is `asking` gets the lock for its TTL, others for the claim window."""
        rows = self._rows
        now = rows.now()
        holders: list[Entry] = []
        admitted: list[Entry] = []
        dropped: list[Entry] = []
        used = 0
        head: Entry | None = None
        for entry in rows.of(name):
            if entry.expires <= now or not rows.alive(entry):
                dropped.append(entry)
            elif entry.token:
                holders.append(entry)
                used += entry.weight
            elif used + entry.weight > entry.capacity:
                head = entry
                break
            elif entry.barge and entry.owner != asking:
                self._wake(entry, 0)
                # It has the claim window to come and take it. A frozen waiter is passed over then.
                if entry.expires > now + entry.claim:
                    entry.expires = now + entry.claim
                    rows.save(entry, was_waiting=True)
                head = entry
                break
            else:
                admitted.append(entry)
                holders.append(entry)
                used += entry.weight
        ended: Entry | None = None
        for entry in dropped:
            rows.drop(entry)
            if entry.token and entry.kind == ELECTION:
                ended = entry
        if ended is not None and not holders:
            self._note_nobody(ended)
        for entry in admitted:
            if entry.owner == asking:
                self._grant(entry, entry.ttl, True, holders)
                if head is not None:
                    # This grant needs no confirmation, which is when the new head would be woken to
                    # ask which holder it waits for now.
                    self._wake(head, 0)
            else:
                self._grant(entry, min(entry.claim, entry.ttl), False, holders)
                self._wake(entry, entry.token)
            rows.save(entry, was_waiting=True)
        occupancy = self._settled[name] = Occupancy(holders, used, head)
        return occupancy

    def _grant(
        self,
        entry: Entry,
        ttl: float,
        confirmed: bool,
        others: Sequence[Entry],
        slot: int | None = None,
    ) -> None:
        """Makes `entry` a holder. `others` are the holders, and with token 0 the next ones; `slot` is
        that which a semaphore's holder is to have, if it is to have a certain one."""
        if entry.kind == "semaphore":
            taken: Container[int]
            if slot is None:
                taken = {other.token % other.capacity for other in others if other.token}
            else:
                taken = AllBut(slot)
            entry.token = self._rows.mint(taken, entry.capacity)
        else:
            entry.token = self._rows.mint()
        entry.expires = self._rows.now() + ttl
        entry.confirmed = int(confirmed)
        entry.since = self._rows.wall()
        if entry.kind == ELECTION:
            self._note_leader(entry, entry.token)

    def _note_leader(self, entry: Entry, number: int) -> None:
        """Notes that `entry` leads, or has another value from now on."""
        self._note(entry.name, Change(number, entry.token, entry.owner, entry.label, entry.since))

    def _note_nobody(self, entry: Entry) -> None:
        """Notes that the term of `entry` has ended, and nobody leads."""
        number = self._rows.mint()
        self._note(entry.name, Change(number, entry.token, "", NOBODY, self._rows.wall()))

    def _note(self, name: str, change: Change) -> None:
        """Notes a change of an election, and wakes all who observe it."""
        for observer in self._rows.note(name, change):
            self.wakeups.append(observer)

    def _wake(self, entry: Entry, token: int) -> None:
        self.wakeups.append(WakeUp(entry.name, entry.owner, entry.process, entry.address, token))

    def _remaining(self, holders: Sequence[Entry]) -> float:
        """Returns the seconds until the last of the holders' leases ends."""
        if not holders:
            return 0.0
        return max(0.0, max(entry.expires for entry in holders) - self._rows.now())
