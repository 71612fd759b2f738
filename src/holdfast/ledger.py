"""The rules of a queue of holders and waiters: who is admitted, handed over to, passed over.

One algorithm for every store that keeps its queue as rows of its own (memory, SQLite): it reads
and writes rows through `Rows`, inside one transaction of the store, and never looks at a clock or
a file by itself. Each public method here is one atomic step.

What must stay true:

- The holders' weights never add up to more than the capacity.
- A row becomes a holder in one place only, `_settle` and `acquire` through `_grant`, and its token
  is minted there, in the same transaction. Of a semaphore's holders no two have the same slot.
- Waiters are admitted in the order of their arrival; the first that does not fit stops the rest,
  so that a writer is not starved by readers. A waiter that `barge`s is only woken, never handed the
  lock; it takes it when it asks again. So may a newcomer that barges.
- A row that has expired, or whose process is dead, counts for nothing and is removed by the next
  step that meets it; that step also admits whoever comes next.
- Nothing is ever re-created: a renewal or a release of an unknown owner answers that it is gone.
- A renewal never shortens.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from .entries import SEPARATOR, Ask, Claim, Entry, Rows, Wake
from .model import (
    GONE,
    Busy,
    Gone,
    Granted,
    LockState,
    Participant,
    Queued,
    Renewed,
    Waiting,
    slot_of,
)
from .refusals import in_use_as, owner_used_again


class _Standing(NamedTuple):
    """A lock after everything due has been done."""

    holders: list[Entry]
    used: int
    head: Entry | None


class Ledger:
    """One step on the queue of a store. Made anew for each transaction.

    `wakes` is what to send once the transaction stands; `blockers` has, for each owner that was
    found first in line, the holders on whose death it would be next.
    """

    __slots__ = ("_rows", "blockers", "wakes")

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self.wakes: list[Wake] = []
        self.blockers: dict[str, list[Entry]] = {}

    # The steps.

    def acquire(self, ask: Ask, process: str = "", address: str = "") -> Granted | Queued | Busy:
        """Grant it, enqueue it or refuse it. The entry ends with `process`, if that is said; its
        waiter is woken at `address`."""
        rows = self._rows
        standing = self._settle(ask.name)
        present = standing.holders[0] if standing.holders else standing.head
        if present is not None:
            known = rows.find(ask.name, ask.owner)
            if known is not None:
                return self._repeated(ask, known, standing)
            if present.kind != ask.kind or present.capacity != ask.capacity:
                raise in_use_as(
                    shown(ask.name),
                    ask.owner,
                    (present.kind, present.capacity),
                    (ask.kind, ask.capacity),
                )
        fits = standing.used + ask.weight <= ask.capacity
        if fits and (standing.head is None or ask.barge):
            entry = self._entry(ask, process, address)
            self._grant(entry, ask.ttl, True, standing.holders)
            rows.add(entry)
            return Granted(entry.token, ask.ttl)
        if not ask.queue:
            return Busy(self._remaining(standing.holders))
        entry = self._entry(ask, process, address)
        entry.seq = rows.arrival(ask.name)
        entry.expires = rows.now() + entry.patience
        rows.add(entry)
        if standing.head is None:
            self.blockers[ask.owner] = standing.holders
        return Queued(self._remaining(standing.holders))

    def renew(self, claim: Claim) -> Renewed | Waiting | Gone:
        rows = self._rows
        entry = rows.find(claim.name, claim.owner)
        if entry is None:
            return GONE
        now = rows.now()
        if entry.expires <= now:
            self._settle(entry.name)
            return GONE
        if entry.token == 0:
            return self._heartbeat(entry, claim, now)
        entry.expires = max(entry.expires, now + claim.ttl)
        first = not entry.confirmed
        entry.confirmed = 1
        rows.save(entry, was_waiting=False)
        if first:
            # The new first in line may now watch this holder's process: tell it to look.
            head = self._settle(entry.name).head
            if head is not None:
                self._wake(head, 0)
        return Renewed(entry.token, claim.ttl)

    def release(self, name: str, owner: str) -> bool:
        """Free it, or leave the queue; True if a lease that had not ended was freed."""
        rows = self._rows
        held = rows.drop_held(name, owner)
        if not held:
            entry = rows.find(name, owner)
            if entry is None:
                return False
            rows.drop(entry)
        self._settle(name)
        return held

    def force_release(self, name: str) -> list[Entry]:
        """End every holder's lease; the next in line is admitted with a token above theirs."""
        holders = self._settle(name).holders
        for entry in holders:
            self._rows.drop(entry)
        self._rows.mint()
        self._settle(name)
        return holders

    def state(self, name: str, last_token: int) -> LockState:
        """What `_settle` would leave, but nothing is written."""
        rows = self._rows
        now = rows.now()
        alive = [entry for entry in rows.of(name) if entry.expires > now and rows.alive(entry)]
        return describe(name, alive, now, last_token)

    # Their parts.

    def _settle(self, name: str, asking: str = "") -> _Standing:
        """Remove who is dead or expired, admit who is next, and say how things stand then."""
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
                # It has the claim window to come and take it. One that is frozen is passed over then.
                if entry.expires > now + entry.claim:
                    entry.expires = now + entry.claim
                    rows.save(entry, was_waiting=True)
                head = entry
                break
            else:
                admitted.append(entry)
                holders.append(entry)
                used += entry.weight
        for entry in dropped:
            rows.drop(entry)
        for entry in admitted:
            if entry.owner == asking:
                self._grant(entry, entry.ttl, True, holders)
                if head is not None:
                    # It will not be confirmed any more, which is when the next in line is told to
                    # look whom it waits for now.
                    self._wake(head, 0)
            else:
                self._grant(entry, min(entry.claim, entry.ttl), False, holders)
                self._wake(entry, entry.token)
            rows.save(entry, was_waiting=True)
        return _Standing(holders, used, head)

    def _heartbeat(self, entry: Entry, claim: Claim, now: float) -> Renewed | Waiting:
        rows = self._rows
        entry.expires = now + entry.patience
        rows.save(entry, was_waiting=True)
        standing = self._settle(entry.name, asking=entry.owner)
        for holder in standing.holders:
            if holder.owner == entry.owner:
                return Renewed(holder.token, holder.ttl)
        if entry.barge and standing.used + entry.weight <= entry.capacity:
            # Not the first in line, but allowed to overtake: the first was only woken.
            self._grant(entry, entry.ttl, True, standing.holders)
            rows.save(entry, was_waiting=True)
            return Renewed(entry.token, entry.ttl)
        if standing.head is not None and standing.head.owner == entry.owner:
            self.blockers[entry.owner] = standing.holders
        return Waiting(self._remaining(standing.holders))

    def _repeated(self, ask: Ask, known: Entry, standing: _Standing) -> Granted | Queued:
        """The same request again, because its answer was lost: the same answer again."""
        if (known.weight, known.capacity, known.kind) != (ask.weight, ask.capacity, ask.kind):
            raise owner_used_again(ask.owner, shown(known.name))
        now = self._rows.now()
        if known.token == 0:
            known.expires = now + known.patience
            self._rows.save(known, was_waiting=True)
            return Queued(self._remaining(standing.holders))
        known.expires = max(known.expires, now + ask.ttl)
        known.confirmed = 1
        self._rows.save(known, was_waiting=False)
        return Granted(known.token, ask.ttl)

    def _entry(self, ask: Ask, process: str, address: str) -> Entry:
        return Entry(
            ask.owner,
            ask.name,
            0,
            0,
            0.0,
            ask.ttl,
            ask.weight,
            ask.capacity,
            ask.kind,
            int(ask.barge),
            0,
            ask.claim,
            ask.patience,
            self._rows.wall(),
            process,
            address,
            "",
            ask.label,
        )

    def _grant(self, entry: Entry, ttl: float, confirmed: bool, others: Sequence[Entry]) -> None:
        """`others` are the holders, and those who are about to be, as long as their token is 0."""
        if entry.kind == "semaphore":
            taken = {other.token % other.capacity for other in others if other.token}
            entry.token = self._rows.mint(taken, entry.capacity)
        else:
            entry.token = self._rows.mint()
        entry.expires = self._rows.now() + ttl
        entry.confirmed = int(confirmed)
        entry.since = self._rows.wall()

    def _wake(self, entry: Entry, token: int) -> None:
        self.wakes.append(Wake(entry.name, entry.owner, entry.process, entry.address, token))

    def _remaining(self, holders: Sequence[Entry]) -> float:
        if not holders:
            return 0.0
        return max(0.0, max(entry.expires for entry in holders) - self._rows.now())


def shown(name: str) -> str:
    """A lock's name as its user knows it, without the namespace before it."""
    return name.rpartition(SEPARATOR)[2]


def describe(name: str, entries: Iterable[Entry], now: float, last_token: int) -> LockState:
    """The state of a lock from its living rows."""
    holders: list[Participant] = []
    waiters: list[Participant] = []
    kind, capacity = "lock", 1
    for entry in entries:
        kind, capacity = entry.kind, entry.capacity
        (holders if entry.token else waiters).append(
            Participant(
                entry.owner,
                entry.label,
                entry.token,
                entry.since,
                max(0.0, entry.expires - now),
                entry.weight,
                slot_of(entry.token, entry.kind, entry.capacity),
            )
        )
    token = max((holder.token for holder in holders), default=last_token)
    return LockState(name, tuple(holders), tuple(waiters), token, kind, capacity)
