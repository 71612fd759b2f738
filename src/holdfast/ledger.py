"""The rules of a queue of holders and waiters: which of them is admitted, handed over to, passed over.

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
  step that meets it; that step also admits the next waiters.
- Nothing is ever re-created: a renewal or a release of an unknown owner returns that it is gone.
- A renewal never shortens.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from .entries import SEPARATOR, AcquireRequest, Claim, Entry, Rows, WakeUp
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


class _Occupancy(NamedTuple):
    """The use of a lock after everything due has been done: `used` of its capacity is taken by
    `holders`, and `head` is the first waiter that does not fit."""

    holders: list[Entry]
    used: int
    head: Entry | None


class Ledger:
    """One step on the queue of a store. Made anew for each transaction.

    `wakeups` are to be sent once the transaction stands; `blockers` has, for each owner that was
    found first in the queue, the holders on whose death it would be next.
    """

    __slots__ = ("_rows", "_settled", "blockers", "wakeups")

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._settled: dict[str, _Occupancy] = {}
        """The locks, by name, in which everything due has been done in this transaction."""
        self.wakeups: list[WakeUp] = []
        self.blockers: dict[str, list[Entry]] = {}

    # The steps.

    def acquire(
        self, request: AcquireRequest, process: str = "", address: str = ""
    ) -> Granted | Queued | Busy:
        """Grants the lock, enqueues the owner or returns `Busy`.

        The entry ends with `process`, unless that is empty; its waiter is woken at `address`."""
        rows = self._rows
        occupancy = self._settle(request.name)
        present = occupancy.holders[0] if occupancy.holders else occupancy.head
        if present is not None:
            known = rows.find(request.name, request.owner)
            if known is not None:
                return self._repeated(request, known, occupancy)
            if present.kind != request.kind or present.capacity != request.capacity:
                raise in_use_as(
                    shown(request.name),
                    request.owner,
                    (present.kind, present.capacity),
                    (request.kind, request.capacity),
                )
        fits = occupancy.used + request.weight <= request.capacity
        if fits and (occupancy.head is None or request.barge):
            entry = self._entry(request, process, address)
            self._grant(entry, request.ttl, True, occupancy.holders)
            rows.add(entry)
            return Granted(entry.token, request.ttl)
        if not request.queue:
            return Busy(self._remaining(occupancy.holders))
        entry = self._entry(request, process, address)
        entry.seq = rows.arrival(request.name)
        entry.expires = rows.now() + entry.patience
        rows.add(entry)
        if occupancy.head is None:
            self.blockers[request.owner] = occupancy.holders
        return Queued(self._remaining(occupancy.holders))

    def renew(self, claim: Claim) -> Renewed | Waiting | Gone:
        """Renews a lease, or a waiter's place in the queue; admits the next waiters."""
        rows = self._rows
        settled = self._settled.get(claim.name)
        if (
            settled is not None
            and settled.head is not None
            and settled.head.owner != claim.owner
            and rows.keep_waiting(claim.name, claim.owner)
        ):
            # One of many waiters in this transaction, and not the first in the queue.
            return Waiting(self._remaining(settled.holders))
        entry = rows.find(claim.name, claim.owner)
        if entry is None:
            return GONE
        now = rows.now()
        if entry.expires <= now:
            self._settle(entry.name)
            return GONE
        if entry.token == 0:
            return self._heartbeat(entry, now)
        entry.expires = max(entry.expires, now + claim.ttl)
        first = not entry.confirmed
        entry.confirmed = 1
        rows.save(entry, was_waiting=False)
        if first:
            # The new head may now watch this holder's process: wake it, so that it asks.
            head = self._settle(entry.name).head
            if head is not None:
                self._wake(head, 0)
        return Renewed(entry.token, claim.ttl)

    def release(self, name: str, owner: str) -> bool:
        """Removes the owner's entry, and admits the next waiters; returns whether it held."""
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
        """Ends every holder's lease, and admits the next waiters with tokens above theirs; returns the
        holders."""
        holders = self._settle(name).holders
        for entry in holders:
            self._rows.drop(entry)
        self._rows.mint()
        self._settle(name)
        return holders

    def state(self, name: str, last_token: int) -> LockState:
        """Returns the lock as `_settle` would leave it, but writes nothing."""
        rows = self._rows
        now = rows.now()
        alive = [entry for entry in rows.of(name) if entry.expires > now and rows.alive(entry)]
        return describe(name, alive, now, last_token)

    # Their parts.

    def _settle(self, name: str, asking: str = "") -> _Occupancy:
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
        for entry in dropped:
            rows.drop(entry)
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
        occupancy = self._settled[name] = _Occupancy(holders, used, head)
        return occupancy

    def _heartbeat(self, entry: Entry, now: float) -> Renewed | Waiting:
        """Renews a waiter's place in the queue, or grants it the lock."""
        rows = self._rows
        entry.expires = now + entry.patience
        rows.save(entry, was_waiting=True)
        occupancy = self._settle(entry.name, asking=entry.owner)
        for holder in occupancy.holders:
            if holder.owner == entry.owner:
                return Renewed(holder.token, holder.ttl)
        if entry.barge and occupancy.used + entry.weight <= entry.capacity:
            # Not the first in the queue, but allowed to overtake: the first was only woken.
            del self._settled[entry.name]
            self._grant(entry, entry.ttl, True, occupancy.holders)
            rows.save(entry, was_waiting=True)
            return Renewed(entry.token, entry.ttl)
        if occupancy.head is not None and occupancy.head.owner == entry.owner:
            self.blockers[entry.owner] = occupancy.holders
        return Waiting(self._remaining(occupancy.holders))

    def _repeated(
        self, request: AcquireRequest, known: Entry, occupancy: _Occupancy
    ) -> Granted | Queued:
        """Returns, for a request whose answer was lost, that answer again."""
        if (known.weight, known.capacity, known.kind) != (
            request.weight,
            request.capacity,
            request.kind,
        ):
            raise owner_used_again(request.owner, shown(known.name))
        now = self._rows.now()
        if known.token == 0:
            known.expires = now + known.patience
            self._rows.save(known, was_waiting=True)
            return Queued(self._remaining(occupancy.holders))
        known.expires = max(known.expires, now + request.ttl)
        known.confirmed = 1
        self._rows.save(known, was_waiting=False)
        return Granted(known.token, request.ttl)

    def _entry(self, request: AcquireRequest, process: str, address: str) -> Entry:
        return Entry(
            request.owner,
            request.name,
            0,
            0,
            0.0,
            request.ttl,
            request.weight,
            request.capacity,
            request.kind,
            int(request.barge),
            0,
            request.claim,
            request.patience,
            self._rows.wall(),
            process,
            address,
            "",
            request.label,
        )

    def _grant(self, entry: Entry, ttl: float, confirmed: bool, others: Sequence[Entry]) -> None:
        """Makes `entry` a holder. `others` are the holders, and with token 0 the next ones."""
        if entry.kind == "semaphore":
            taken = {other.token % other.capacity for other in others if other.token}
            entry.token = self._rows.mint(taken, entry.capacity)
        else:
            entry.token = self._rows.mint()
        entry.expires = self._rows.now() + ttl
        entry.confirmed = int(confirmed)
        entry.since = self._rows.wall()

    def _wake(self, entry: Entry, token: int) -> None:
        self.wakeups.append(WakeUp(entry.name, entry.owner, entry.process, entry.address, token))

    def _remaining(self, holders: Sequence[Entry]) -> float:
        """Returns the seconds until the last of the holders' leases ends."""
        if not holders:
            return 0.0
        return max(0.0, max(entry.expires for entry in holders) - self._rows.now())


def shown(name: str) -> str:
    """Returns a lock's name as its user knows it, without the namespace before it."""
    return name.rpartition(SEPARATOR)[2]


def describe(name: str, entries: Iterable[Entry], now: float, last_token: int) -> LockState:
    """Returns the state of a lock, made of the entries that have not ended."""
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
