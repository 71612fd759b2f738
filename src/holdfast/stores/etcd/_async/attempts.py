"""Which attempts this manager has under way on an etcd cluster, and what is heard of their keys."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from ....admission import ALL
from ....clock import Clock
from ....model import Granted
from ..keys import Naming, Standing, rung
from ..wire import messages
from ..wire.messages import Event, KeyValue
from .attempt import NOT_RUNG, Attempt
from .holder_watch import Guard
from .leases import HOLD, Lease, Leases
from .queue import Line, Prepared, Slot
from .retry import Calls
from .watches import Watch, Watches

if TYPE_CHECKING:
    from ..._async.contract import Ticket

LINES = 4096
"""Lines whose parts are remembered while nothing of ours is in them."""
CREDIT = 4
SWEEP = 256
"""So many more attempts than after the last sweep, and those that ended unnoticed are looked for."""


class Roll:
    def __init__(
        self,
        calls: Calls,
        clock: Clock,
        naming: Naming,
        leases: Leases,
        watches: Watches,
        bells: Watches,
        token_base: int,
        claim_window: float,
    ) -> None:
        self.calls = calls
        self.clock = clock
        self.naming = naming
        self.leases = leases
        self.watches = watches
        self._bells = bells
        self.base = token_base
        self.claim_window = claim_window
        self.look: Callable[[Iterable[str]], None] | None = None
        self.guard = Guard(clock, self.watch_own)
        self._session = os.urandom(8).hex()
        self._mutex = leases.mutex
        self._attempts: dict[tuple[str, str], Attempt] = {}
        self._sweep_at = SWEEP
        self._lines: dict[tuple[str, str, int], Line] = {}
        self._slots: dict[bytes, Slot] = {}
        """By their keys: those of all these lines."""
        self._bell: Watch | None = None

    def known(self, name: str, owner: str) -> Attempt | None:
        return self._attempts.get((name, owner))

    def enrol(self, ticket: Ticket) -> Attempt:
        """The attempt of this ticket; a new one has a key that is not in use."""
        terms = ticket.terms
        known = terms.name, ticket.owner
        with self._mutex:
            attempt = self._attempts.get(known)
            if attempt is not None:
                return attempt
            if len(self._attempts) >= self._sweep_at:
                self._sweep()
            prepared: Prepared | None = terms.prepared
            if prepared is None or prepared.line.dropped:
                line = self._line(terms.name, terms.kind, terms.capacity)
                prepared = terms.prepared = Prepared(line)
            attempt = Attempt(terms, ticket.owner, prepared.line, ticket)
            attempt.slot = prepared.line.take(attempt)
            self._attempts[known] = attempt
            return attempt

    def another_key(self, attempt: Attempt) -> None:
        """The one it has is still there from an attempt whose lease is just ending."""
        with self._mutex:
            slot, attempt.slot = attempt.slot, attempt.line.take(attempt)
            attempt.line.give(slot, burned=False)

    async def find(self, name: str, owner: str, deadline: float) -> Attempt | None:
        """An attempt that another manager made, and that we are asked about all the same."""
        start = self.naming.line(name)
        found = await self.calls.range(messages.range_of(start, messages.after(start)), deadline)
        for standing in self.line_of(found.keys):
            if standing.entry.owner == owner:
                with self._mutex:
                    line = self._line(name, standing.kind, standing.capacity)
                    attempt = Attempt.found(standing, line, self.base)
                    attempt = self._attempts.setdefault((name, owner), attempt)
                if attempt.lease is None:
                    self._hang(attempt, standing)
                return attempt
        return None

    def forget(self, attempt: Attempt) -> None:
        """Nothing of it is on the store any more."""
        if attempt.blocker is not None:
            self._unblock(attempt)
        self.guard.drop(attempt)
        known = attempt.terms.name, attempt.owner
        with self._mutex:
            self.leases.leave(attempt)
            if self._attempts.get(known) is not attempt:
                return  # it was before, and its key may be another's by now
            del self._attempts[known]
            line, slot = attempt.line, attempt.slot
            if slot.attempt is attempt:  # and not another manager's
                line.give(slot, attempt.burned)
                if line.watch is not None and not line.used:
                    self.watches.drop(line.watch)
                    line.watch = None

    def _sweep(self) -> None:
        """Leases that ran out without anybody's doing are not released, and so not forgotten."""
        now = self.clock.now()
        for attempt in list(self._attempts.values()):
            lease = attempt.lease
            if lease is not None and attempt.until <= now and lease.over(now) and not attempt.owed:
                self.forget(attempt)
        self._sweep_at = len(self._attempts) + SWEEP

    # Lines.

    def _line(self, name: str, kind: str, capacity: int) -> Line:
        line = self._lines.get((name, kind, capacity))
        if line is None:
            if len(self._lines) >= LINES:
                self._drop_idle()
            line = Line(self.naming, name, kind, capacity, self._session, self._slots)
            self._lines[name, kind, capacity] = line
        return line

    def _drop_idle(self) -> None:
        for key, line in list(self._lines.items()):
            if line.idle:
                line.dropped = True
                del self._lines[key]
                for slot in line.slots:
                    del self._slots[slot.key]

    def line_of(self, keys: Iterable[KeyValue]) -> list[Standing]:
        return [one for one in map(self.naming.standing, keys) if one is not None]

    def want(self, line: Line) -> None:
        with self._mutex:
            line.wanted = CREDIT

    def unwant(self, line: Line) -> None:
        """Nobody was there this time."""
        with self._mutex:
            line.wanted = max(line.wanted - 1, 0)

    # What an attempt hangs on, and what is known of it.

    def claim(self, attempt: Attempt) -> float:
        """The TTL of a waiter's lease."""
        return min(self.claim_window, attempt.asked_ttl)

    async def lease_to_hold(self, attempt: Attempt, deadline: float) -> Lease:
        if attempt.terms.renew:
            return await self.leases.shared(HOLD, attempt.asked_ttl, deadline)
        return await self.leases.own(attempt.asked_ttl, deadline)

    def granted(self, attempt: Attempt, lease: Lease, revision: int) -> Granted:
        """A write of ours made it the holder."""
        token = self.base + revision
        attempt.answered = self.clock.now()
        with self._mutex:
            attempt.held_from(token, revision)
            if not attempt.owed:
                if attempt.lease is not lease:
                    self.leases.join(attempt, lease)
                attempt.until = lease.sent + lease.ttl
        self.guard.add(attempt)
        return Granted(token, lease.ttl, False, lease.sent)

    def recognise(self, attempt: Attempt, standing: Standing) -> None:
        """Take over what the store says of it."""
        kv = standing.kv
        attempt.created = kv.created
        if kv.changed < attempt.changed:
            return  # we know better
        if standing.place.granted and not attempt.token:
            attempt.held_from(standing.token(self.base), kv.changed)
            self.guard.add(attempt)
        attempt.changed = kv.changed
        if attempt.lease is None or attempt.lease.id != kv.lease:
            self._hang(attempt, standing)

    def _hang(self, attempt: Attempt, standing: Standing) -> None:
        lease = self.leases.named(standing.kv.lease, standing.entry.ttl)
        self.leases.join(attempt, lease)

    # Watching. What is heard comes from any thread.

    def listen(self) -> None:
        """Watch our bell, which whoever grants a lock to one of ours rings in the same step.

        From now on, which is what etcd is quick at (it brings old revisions every 100 ms only); who
        was in line before that looks for itself.
        """
        with self._mutex:
            if self._bell is None:
                key = self.naming.bell(self._session)
                self._bell = self._bells.add(key, b"", 0, self._rung, self._listening)

    def missed(self, attempt: Attempt) -> bool:
        """Whether the bell may have been rung for it before we listened."""
        return self._bell is None or self._bell.began >= attempt.created

    def watched(self, attempt: Attempt) -> bool:
        """What it waits for cannot change without its being told."""
        bell, blocker = self._bell, attempt.blocker
        return bell is not None and bell.standing and blocker is not None and blocker.standing

    def _listening(self, revision: int) -> None:
        with self._mutex:
            attempts = list(self._attempts.values())
        for attempt in attempts:
            if 0 < attempt.created <= revision:
                self.hint(attempt)

    def _rung(self, events: Sequence[Event]) -> None:
        for event in events:
            if event.deleted:
                continue
            owner, key, behind = rung(event.key.value)
            attempt = self._at(key)
            if attempt is not None and attempt.owner == owner:
                attempt.rung = event.key.changed, behind
                if attempt.created:
                    self.answer_bell(attempt)

    def answer_bell(self, attempt: Attempt) -> None:
        """Take what it said, if it was about the entry that is there now.

        While it was not known what came of a request, the entry of an earlier try may have been
        granted the lock, ended with its lease, and been made anew.
        """
        (revision, behind), attempt.rung = attempt.rung, NOT_RUNG
        if revision <= attempt.created or attempt.token or attempt.owed:
            return
        attempt.behind = behind
        attempt.held_from(self.base + revision, revision)
        self.guard.add(attempt)
        if attempt.ticket is not None:
            attempt.ticket.tell(Granted(attempt.token, attempt.ticket.ttl, handed=True))

    def watch_own(self, line: Line, revision: int) -> None:
        """Watch our keys in this line from that revision on: a holder is told if one is taken away."""
        with self._mutex:
            if line.watch is None and line.used:
                line.watch = self.watches.add(
                    line.mine,
                    messages.after(line.mine),
                    revision,
                    self._taken_away,
                    lambda started: self._look_at(line),
                    deletions_only=True,
                )

    def _look_at(self, line: Line) -> None:
        with self._mutex:
            ours = [slot.attempt for slot in line.slots]
        owners = [attempt.owner for attempt in ours if attempt is not None and attempt.token]
        if self.look is not None:
            self.look(owners)

    def _taken_away(self, events: Sequence[Event]) -> None:
        for event in events:
            attempt = self._at(event.key.key)
            if attempt is None or attempt.owed or not 0 < attempt.created < event.key.changed:
                continue  # an earlier attempt's, or given back
            if not attempt.token:
                self.hint(attempt)
            elif self.look is not None:
                self.look([attempt.owner])

    def _at(self, key: bytes) -> Attempt | None:
        """Which attempt of ours has that key now."""
        slot = self._slots.get(key)
        return slot.attempt if slot is not None else None

    def hint(self, attempt: Attempt) -> None:
        """Let a waiter ask how things stand."""
        attempt.looked = 0.0
        if attempt.ticket is not None and not attempt.token and not attempt.owed:
            attempt.ticket.tell()

    def watch_blocker(
        self, attempt: Attempt, line: list[Standing], whom: int | None, revision: int
    ) -> None:
        """Watch what keeps this waiter from being admitted, from that revision on."""
        if whom is None or attempt.owed:
            return
        key, end = attempt.line.start, attempt.line.end
        if whom != ALL:
            key, end = line[whom].kv.key, b""
        old = attempt.blocker
        if old is not None:
            if (old.key, old.end) == (key, end):
                return
            self.watches.drop(old)
        attempt.blocker = self.watches.add(
            key,
            end,
            revision,
            lambda events: self.hint(attempt),
            lambda started: self.hint(attempt),
            deletions_only=attempt.capacity == 1 or whom == ALL,
        )
        if attempt.owed:  # given up by another thread, perhaps before it could see the watch
            self._unblock(attempt)

    def _unblock(self, attempt: Attempt) -> None:
        blocker, attempt.blocker = attempt.blocker, None
        if blocker is not None:
            self.watches.drop(blocker)
