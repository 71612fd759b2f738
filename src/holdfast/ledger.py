"""The steps on a queue of holders and waiters, for stores that keep it as rows (memory, SQLite).

Each public method here is one atomic step: it does what is due at the lock (`settlement`), and what
was asked for.

What must stay true, beside the rules of `settlement`:

- Nothing is ever re-created: a renewal or a release of an unknown owner returns that it is gone.
- A renewal never shortens.
- A lease that is adopted is never free in between, and passes nobody by who waits.
"""

from __future__ import annotations

from collections.abc import Iterable

from .entries import SEPARATOR, AcquireRequest, Claim, Entry, Rows, WakeUp
from .model import (
    GONE,
    Busy,
    Change,
    Gone,
    Granted,
    LockState,
    Observation,
    Outcome,
    Participant,
    Queued,
    Renewed,
    Waiting,
    slot_of,
)
from .refusals import in_use_as, owner_used_again
from .settlement import ELECTION, Occupancy, Settlement


class Ledger(Settlement):
    """One step on the queue of a store. Made anew for each transaction.

    `blockers` has, for each owner that was found first in the queue, the holders on whose death it
    would be next.
    """

    __slots__ = ("blockers",)

    def __init__(self, rows: Rows) -> None:
        super().__init__(rows)
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

    def renew_all(self, claims: Iterable[Claim]) -> list[Outcome]:
        """Renews leases and places in queues; returns one outcome for each claim, in order."""
        by_name: dict[str, list[Claim]] = {}
        for claim in claims:
            by_name.setdefault(claim.name, []).append(claim)
        outcomes: dict[str, Outcome] = {}
        for group in by_name.values():
            self._renew_group(group, outcomes)
        return [outcomes[claim.owner] for claim in claims]

    def _renew_group(self, claims: list[Claim], outcomes: dict[str, Outcome]) -> None:
        """Renews what `claims`, all for one lock, are to; adds the outcomes, by owner.

        What one waiter's heartbeat has to see to at the lock is then done. So if all others are waiters
        too, and not the first in the queue, their places are renewed together.
        """
        for number, claim in enumerate(claims, start=1):
            outcome = outcomes[claim.owner] = self.renew(claim)
            if not isinstance(outcome, Waiting):
                continue
            head = self._settled[claim.name].head
            others = [
                other.owner
                for other in claims[number:]
                if head is not None and other.owner != head.owner
            ]
            if others and self._rows.keep_waiting(claim.name, others):
                outcomes.update(dict.fromkeys(others, outcome))
                claims = [other for other in claims[number:] if other.owner not in outcomes]
            else:
                claims = claims[number:]
            break
        else:
            return
        for claim in claims:
            outcomes[claim.owner] = self.renew(claim)

    def renew(self, claim: Claim) -> Renewed | Waiting | Gone:
        """Renews a lease, or a waiter's place in the queue; admits the next waiters."""
        rows = self._rows
        token = rows.renew_held(claim)
        if token is not None:
            return Renewed(token, claim.ttl)
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
        if rows.drop_held(name, owner):
            self._settle(name)
            return True
        entry = rows.find(name, owner)
        if entry is None:
            return False
        held = bool(entry.token) and entry.expires > rows.now()
        rows.drop(entry)
        self._settle_after(entry)
        return held

    def force_release(self, name: str, above: int = 0) -> list[Entry]:
        """Ends every holder's lease, and admits the next waiters with tokens above theirs and `above`;
        returns the holders."""
        holders = self._settle(name).holders
        for entry in holders:
            self._rows.drop(entry)
        self._rows.mint(above=above)
        if holders:
            self._settle_after(holders[0])
        return holders

    def amend(self, name: str, owner: str, weight: int, text: str | None) -> bool:
        """Gives a lease less weight, or its label another text; returns whether it was held."""
        rows = self._rows
        entry = self._held(name, owner)
        if entry is None:
            return False
        if weight:
            entry.weight = min(weight, entry.weight)
        changed = text is not None and text != entry.label.text
        if text is not None:
            entry.label = entry.label._replace(text=text)
        rows.rewrite(entry)
        if changed and entry.kind == ELECTION:
            self._note_leader(entry, rows.mint())
        self._settle(name)
        return True

    def detach(self, name: str, owner: str, ttl: float) -> bool:
        """Lets a lease end after `ttl`, and not with its process; returns whether it was held."""
        rows = self._rows
        entry = self._held(name, owner)
        if entry is None:
            return False
        entry.expires = rows.now() + ttl
        entry.kept_until = rows.wall() + ttl
        entry.confirmed = 1
        entry.process = entry.tether = ""
        rows.rewrite(entry)
        return True

    def adopt(
        self, request: AcquireRequest, giver: str, process: str = "", address: str = ""
    ) -> Granted | Gone:
        """Grants the lease of `giver` to the owner of the request, in its place."""
        rows = self._rows
        occupancy = self._settle(request.name)
        known = rows.find(request.name, request.owner)
        if known is not None:
            answer = self._repeated(request, known, occupancy)
            return answer if isinstance(answer, Granted) else GONE
        given = self._held(request.name, giver)
        if given is None:
            return GONE
        terms = (given.kind, given.capacity, given.weight)
        if terms != (request.kind, request.capacity, request.weight):
            raise in_use_as(
                shown(request.name),
                request.owner,
                (given.kind, given.capacity),
                (request.kind, request.capacity),
            )
        rows.drop(given)
        entry = self._entry(request, process, address)
        slot = slot_of(given.token, given.kind, given.capacity)
        self._grant(entry, request.ttl, True, occupancy.holders, slot)
        rows.add(entry)
        del self._settled[request.name]
        if occupancy.head is not None:
            self._wake(occupancy.head, 0)  # it may watch another holder's process now
        return Granted(entry.token, request.ttl)

    def observe(self, name: str, after: int, observer: WakeUp, until: float) -> Observation:
        """Returns what has changed since the change of that number, and has the observer woken by the
        next one, until `until`."""
        rows = self._rows
        holders = self._settle(name).holders
        rows.observe(name, observer, until)
        changes = tuple(rows.changes(name, after))
        if not changes and holders and holders[0].token > after:
            # A leader of long ago: its change is not kept any more.
            leader = holders[0]
            changes = (
                Change(leader.token, leader.token, leader.owner, leader.label, leader.since),
            )
        return Observation(changes, self._remaining(holders))

    def unobserve(self, name: str, owner: str) -> None:
        """Ends what `observe` began."""
        self._rows.unobserve(name, owner)

    def settle(self, name: str) -> None:
        """Does what is due at a lock, and nothing else."""
        self._settle(name)

    def state(self, name: str, last_token: int) -> LockState:
        """Returns the lock as `_settle` would leave it, but writes nothing."""
        rows = self._rows
        now = rows.now()
        alive = [entry for entry in rows.of(name) if entry.expires > now and rows.alive(entry)]
        return describe(name, alive, now, last_token)

    # Their parts.

    def _held(self, name: str, owner: str) -> Entry | None:
        """Returns the entry of `owner` if it holds the lock."""
        entry = self._rows.find(name, owner)
        if entry is None or not entry.token or entry.expires <= self._rows.now():
            return None
        return entry

    def _settle_after(self, ended: Entry) -> None:
        """Does what is due after the entry `ended` was dropped."""
        holders = self._settle(ended.name).holders
        if ended.token and ended.kind == ELECTION and not holders:
            self._note_nobody(ended)

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
        self, request: AcquireRequest, known: Entry, occupancy: Occupancy
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
            0.0,
            request.label,
        )


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
                entry.ttl,
            )
        )
    token = max((holder.token for holder in holders), default=last_token)
    return LockState(name, tuple(holders), tuple(waiters), token, kind, capacity)
