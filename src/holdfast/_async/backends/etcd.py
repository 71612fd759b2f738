"""`etcd://`: the adapter to an etcd cluster. An ordered line of leased keys for each lock.

Everybody who holds a lock or waits for it has a key in its line, in the order of their creation;
`holdfast.lineup` says who of them may hold it. What makes one the holder is a write to its own key, and
the revision of that write is the token:

- the creation of the key, if nobody is in line: one transaction;
- the transaction of the one who goes, which grants it to the next as it deletes its own key;
- the waiter's own write, where nobody does that for it: on the condition that its key is as it was.

Each of them rests on conditions that etcd checks in the same step, so no stale read ever decides; and
whoever was admitted by an older look at the line still is: only what stands before it matters, and
that only gets less.

A key hangs on a lease, which is shared (see `etcd_leases`). A waiter's is as long as the claim window: a
dead one does not stand in the way for its whole TTL. A lock that was handed over stays on it until the
engine confirms it, which moves the key to a lease of the TTL that was asked for.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from threading import RLock
from typing import Any

from ... import checks, guarantees
from ...clock import BootClock
from ...entries import HEARTBEAT, Claim
from ...errors import BackendUnavailable, ConfigError, LockError
from ...etcd import messages
from ...etcd.address import OPTIONS, Address, address_of
from ...etcd.aio import Wire
from ...etcd.channels import require_grpc
from ...etcd.failures import Failure
from ...etcd.keys import GRANTED, Naming, Standing
from ...etcd.messages import Event, KeyValue, Transaction
from ...ledger import kind_in_words
from ...lineup import ALL, admitted, blocker, fits_behind
from ...model import (
    GONE,
    UNKNOWN,
    Busy,
    Granted,
    LockState,
    Outcome,
    Participant,
    Queued,
    Renewed,
    Waiting,
)
from ...urls import Target, merge_options
from ..contract import Backend, Ticket
from .etcd_attempt import Attempt, Line
from .etcd_calls import Calls
from .etcd_leases import FRESH, HOLD, QUEUE, Lease, Leases, seconds
from .etcd_watch import Watches

CLAIM_WINDOW = 5.0
"""For so long a waiter is kept in line without a sign of life; a lock handed to it lasts as long."""
OPEN_LIMIT = 10.0
CLOSE_LIMIT = 5.0
GRAVES, GRAVE_TTL = "graves", 3600.0
"""How long a request that was given up may be under way before it is forgotten that it was."""
LOOK_AGAIN = 5.0
"""Seconds after which a waiter looks at its line though its watches are quiet."""
AT_ONCE = 100
"""Operations in one transaction; etcd allows 128."""
HANDED_ON = 8
"""Of those who share a lock, so many are let in by the one who goes; they let in the rest."""
LINES = 4096
"""Lines whose parts are remembered while nothing of ours is in them."""

Key = tuple[str, str]
Standings = list[Standing]
Outcomes = list[Outcome]
People = list[Participant]
Flags = list[bool]
Sorted = list[tuple[int, Attempt, Claim]]


def prepare(
    target: Target, namespace: str, options: dict[str, Any]
) -> tuple[guarantees.Guarantees, Callable[[], Backend]]:
    """Check everything that can be checked without opening; answers how to open."""
    known = {"heartbeat": HEARTBEAT, "claim_window": CLAIM_WINDOW, "token_base": 0, **OPTIONS}
    settings = merge_options(target, options, known)
    heartbeat = checks.ttl(settings["heartbeat"], "heartbeat")
    claim_window = checks.ttl(settings["claim_window"], "claim_window")
    token_base = settings["token_base"]
    if isinstance(token_base, bool) or token_base != int(token_base) or not 0 <= token_base < 2**62:
        raise ConfigError("token_base must be a whole number from 0 on, the same for every client")
    address = address_of(target, settings)
    require_grpc()
    naming = Naming(namespace)
    return guarantees.ETCD, lambda: EtcdBackend(
        address, naming, heartbeat, claim_window, int(token_base)
    )


class EtcdBackend:
    guarantees = guarantees.ETCD

    def __init__(
        self,
        address: Address,
        naming: Naming,
        heartbeat: float,
        claim_window: float,
        token_base: int,
    ) -> None:
        self._address = address
        self._naming = naming
        self.clock = BootClock()
        self.heartbeat = heartbeat
        self.claim_window = claim_window
        self._base = token_base
        self.look: Callable[[Iterable[str]], None] | None = None
        self._wire = Wire(address)
        self._calls = Calls(self._wire, address, self.clock)
        self._leases = Leases(self._calls, self.clock, self._pay)
        self._watches = Watches(self._wire, self.clock)
        self._session = os.urandom(8).hex()
        self._mutex = RLock()
        self._attempts: dict[Key, Attempt] = {}
        self._lines: dict[tuple[str, str, int], Line] = {}
        self._wanted: dict[str, None] = {}
        """Locks that others were seen to wait for: who gives one back looks at its line first."""

    async def open(self) -> None:
        by = self.clock.now() + OPEN_LIMIT
        try:
            await self._calls.log_in(by)
            await self._calls.range(messages.range_of(self._naming.root), by)
        except BaseException:
            await self._wire.close()
            raise

    # The verbs.

    async def acquire(self, ticket: Ticket, by: float) -> Granted | Queued | Busy:
        attempt = self._attempts.get((ticket.name, ticket.owner))
        if attempt is not None:
            return await self._repeated(attempt, ticket, by)
        with self._mutex:
            line = self._line(ticket.name, ticket.kind, ticket.capacity)
            attempt = Attempt.of(ticket, line, self._session)
            self._attempts[ticket.name, ticket.owner] = attempt
        try:
            answer = await self._ask(attempt, ticket.queue, by)
        except BaseException:
            if not attempt.created and not attempt.doubtful:
                self._forget(attempt)
            raise
        if isinstance(answer, Busy):
            self._forget(attempt)
        return answer

    async def renew(self, claims: Sequence[Claim], by: float) -> Sequence[Outcome]:
        self._check_open()
        outcomes: Outcomes = [UNKNOWN] * len(claims)
        held: Sorted = []
        waiting: Sorted = []
        for number, claim in enumerate(claims):
            attempt = self._attempts.get((claim.name, claim.owner))
            if attempt is None:
                attempt = await self._find(claim.name, claim.owner, by)
            if attempt is None or attempt.lease is None or attempt.owed:
                outcomes[number] = GONE
            elif attempt.token:
                held.append((number, attempt, claim))
            else:
                waiting.append((number, attempt, claim))
        await self._keep([attempt for _, attempt, _ in (*held, *waiting)], by)
        for start in range(0, len(held), AT_ONCE):
            some = held[start : start + AT_ONCE]
            kept = await self._still_there([attempt for _, attempt, _ in some], by)
            for (number, attempt, claim), there in zip(some, kept, strict=True):
                outcomes[number] = await self._renewed(attempt, claim.ttl, by) if there else GONE
        if waiting:
            self._watches.follow()
            looks: dict[str, tuple[int, Standings]] = {}
            for number, attempt, _ in waiting:
                outcomes[number] = await self._heartbeat(attempt, looks, by)
        for number, claim in enumerate(claims):
            if outcomes[number] is GONE:
                self._ended(self._attempts.get((claim.name, claim.owner)))
        return outcomes

    async def release(self, name: str, owner: str, by: float) -> bool:
        self._check_open()
        attempt = self._attempts.get((name, owner))
        if attempt is None:
            attempt = await self._find(name, owner, by)
            if attempt is None:
                return False
        attempt.owed = True
        return await self._leave(attempt, by)

    async def wait(self, ticket: Ticket, until: float | None) -> Granted | None:
        return await ticket.wait(self.clock, until)

    async def inspect(self, name: str, by: float) -> LockState:
        start = self._naming.line(name)
        found = await self._calls.range(messages.range_of(start, messages.after(start)), by)
        (state,) = await self._states({name: self._line_of(found.keys)}, found.revision, by)
        return state

    async def list(self, prefix: str, by: float) -> Sequence[LockState]:
        first, last = self._naming.starting(prefix)
        found = await self._calls.range(messages.range_of(first, last), by)
        lines: dict[str, Standings] = {}
        for standing in self._line_of(found.keys):
            lines.setdefault(standing.name, []).append(standing)
        states = await self._states(lines, found.revision, by)
        return [state for state in states if state.holders or state.waiters]

    async def force_release(self, name: str, actor: str, by: float) -> bool:
        start = self._naming.line(name)
        end = messages.after(start)
        freed = False
        while True:
            found = await self._calls.range(messages.range_of(start, end), by)
            line = self._line_of(found.keys)
            holders = [one for one in line if one.entry.state == GRANTED][: AT_ONCE // 2]
            if not holders:
                break
            owners = ",".join(one.entry.owner for one in holders)
            record = f"{self.clock.wall():.3f} {found.revision} {owners} {actor}".encode()
            answer = await self._calls.txn(
                b"".join(messages.changed_at(one.kv.key, one.kv.changed) for one in holders)
                + messages.then(
                    messages.put_for_ever(self._naming.forced(name), record),
                    *(messages.delete(one.kv.key) for one in holders),
                ),
                by,
            )
            freed = freed or answer.succeeded
        await self._hand_on(line, by)
        return freed

    async def tether(self, name: str, owner: str, by: float) -> int | None:
        return None

    async def close(self) -> None:
        if self._wire.closed:
            return
        await self._watches.close()
        try:
            await self._leases.revoke_all(self.clock.now() + CLOSE_LIMIT)
        finally:
            await self._wire.close()

    # Asking for a lock.

    async def _ask(self, attempt: Attempt, queue: bool, by: float) -> Granted | Queued | Busy:
        line = attempt.line
        left = messages.absent(self._naming.left(attempt.owner))
        enqueue = queue
        while True:
            self._check_open()
            hold = await self._lease_to_hold(attempt, by)
            wait = self._leases.alive(QUEUE, self._claim(attempt)) if enqueue else None
            if enqueue and attempt.line.slots and wait is None and self._is_wanted(attempt.name):
                wait = await self._leases.shared(QUEUE, self._claim(attempt), by)
            wall = self.clock.wall()
            request = (
                left
                + line.alone
                + messages.then(messages.put(attempt.key, attempt.entry(True, wall), hold.id))
            )
            if wait is None:
                request += messages.otherwise(line.look, messages.read(attempt.key))
            else:
                join = messages.put(attempt.key, attempt.entry(False, wall), wait.id)
                request += messages.otherwise(
                    messages.nested(
                        left,
                        line.same_kind,
                        messages.absent(attempt.key),
                        messages.then(join, line.look),
                        messages.otherwise(line.look, messages.read(attempt.key)),
                    )
                )
            try:
                answer = await self._calls.txn(request, by, attempt.doubt)
            except Failure:  # one of the leases has ended
                for lease in filter(None, (hold, wait)):
                    await self._leases.keep(lease, by)
                continue
            if answer.succeeded:
                return self._granted(attempt, hold, answer.revision, answer.revision)
            self._want(attempt.name)
            inner = answer.results[0]
            if isinstance(inner, Transaction) and inner.succeeded:
                assert wait is not None
                attempt.created = attempt.changed = answer.revision
                self._put_on(attempt, wait)
                place = await self._placed(attempt, messages.held_keys(inner.results), by)
                if isinstance(place, Queued) and not queue:
                    await self._leave(attempt, by)
                    return Busy(place.remaining)
                return place
            others = self._line_of(messages.held_keys(answer.results))
            mine = next((one for one in others if attempt.is_at(one)), None)
            if mine is not None:
                # An earlier try of this very request was carried out, and its answer was lost.
                self._recognise(attempt, mine)
                return await self._standing_again(attempt, by)
            if not others and not attempt.doubtful:
                continue  # they have gone, between one look and the next
            self._check_place(attempt, others)
            if not queue and not fits_behind(
                [one.place for one in others],
                attempt.weight,
                attempt.capacity,
                f"{attempt.kind}.{attempt.capacity}",
            ):
                return Busy(_longest(others))
            # There, but not in line: the waiter's lease was missing.
            await self._leases.shared(QUEUE, self._claim(attempt), by)
            enqueue = True

    def _check_place(self, attempt: Attempt, others: Standings) -> None:
        """Whether it may join this line at all."""
        for one in others:
            if (one.kind, one.capacity) != (attempt.kind, attempt.capacity):
                raise ConfigError(
                    f"{attempt.name!r} is in use as {kind_in_words(one.kind, one.capacity)}, so it "
                    f"cannot be asked for as {kind_in_words(attempt.kind, attempt.capacity)} until "
                    "it is free; use another name, or the same kind and size everywhere",
                    name=attempt.name,
                    owner=attempt.owner,
                )
            if one.entry.owner == attempt.owner:
                raise self._used(attempt.name, attempt.owner)
        if not others:
            raise BackendUnavailable(
                f"the request for {attempt.name!r} came after it had been given up",
                name=attempt.name,
                owner=attempt.owner,
            )

    async def _placed(
        self, attempt: Attempt, keys: Sequence[KeyValue], by: float
    ) -> Granted | Queued:
        """It has just joined the line: it is admitted at once, or waits."""
        line = self._line_of(keys)
        mine = next((number for number, one in enumerate(line) if attempt.is_at(one)), None)
        if mine is not None and mine < admitted([one.place for one in line]):
            outcome = await self._take(attempt, by)
            if isinstance(outcome, Renewed):
                return Granted(outcome.token, outcome.ttl, since=outcome.since)
        attempt.watch = self._watches.add(
            attempt.key, b"", attempt.created + 1, lambda events: self._own_key(attempt, events)
        )
        if attempt.capacity > 1:
            attempt.looked = 0.0
        assert attempt.lease is not None
        lease = attempt.lease
        attempt.until = lease.sent + lease.ttl
        return Queued(self._ask_again(line, lease), lease.sent)

    async def _repeated(
        self, attempt: Attempt, ticket: Ticket, by: float
    ) -> Granted | Queued | Busy:
        """The same request again: the same answer again."""
        if not attempt.matches(ticket):
            raise self._used(ticket.name, ticket.owner)
        if attempt.doubtful and not attempt.created:
            return await self._ask(attempt, ticket.queue, by)
        return await self._standing_again(attempt, by)

    async def _standing_again(self, attempt: Attempt, by: float) -> Granted | Queued:
        claim = Claim(attempt.name, attempt.owner, attempt.asked_ttl)
        (outcome,) = await self.renew([claim], by)
        if isinstance(outcome, Renewed):
            return Granted(outcome.token, outcome.ttl, since=outcome.since)
        if isinstance(outcome, Waiting):
            if attempt.watch is None:
                attempt.watch = self._watches.add(
                    attempt.key,
                    b"",
                    attempt.changed + 1,
                    lambda events: self._own_key(attempt, events),
                )
            return Queued(outcome.remaining, outcome.since)
        raise BackendUnavailable(
            f"the request for {attempt.name!r} was carried out, and has ended since",
            name=attempt.name,
            owner=attempt.owner,
        )

    def _granted(self, attempt: Attempt, lease: Lease, revision: int, created: int) -> Granted:
        attempt.created = created or attempt.created
        attempt.changed = revision
        attempt.token = self._base + revision
        self._put_on(attempt, lease)
        attempt.until = lease.sent + lease.ttl
        return Granted(attempt.token, lease.ttl, since=lease.sent)

    async def _take(self, attempt: Attempt, by: float) -> Outcome:
        """Its turn has come: make it the holder, if its key is still there as it was."""
        while True:
            hold = await self._lease_to_hold(attempt, by)
            try:
                answer = await self._calls.txn(
                    messages.changed_at(attempt.key, attempt.changed)
                    + messages.then(
                        messages.put(attempt.key, attempt.entry(True, self.clock.wall()), hold.id)
                    )
                    + messages.otherwise(messages.read(attempt.key)),
                    by,
                )
            except Failure:
                await self._leases.keep(hold, by)
                continue
            if answer.succeeded:
                grant = self._granted(attempt, hold, answer.revision, 0)
                return Renewed(grant.token, grant.ttl, grant.since)
            for one in self._line_of(messages.held_keys(answer.results)):
                if attempt.is_at(one):
                    self._recognise(attempt, one)
                    break
            else:
                return GONE
            if attempt.token:  # handed to it meanwhile
                return await self._renewed(attempt, attempt.asked_ttl, by)

    # Keeping it.

    async def _keep(self, attempts: Iterable[Attempt], by: float) -> None:
        """Keep alive what they hang on."""
        for lease in {attempt.lease for attempt in attempts}:
            if lease is not None:
                await self._leases.keep(lease, by, FRESH)

    async def _still_there(self, attempts: Sequence[Attempt], by: float) -> Sequence[bool]:
        """Whether their keys are: the leases alone do not tell of a forced release."""
        request = messages.then(*(messages.read(attempt.key) for attempt in attempts))
        answer = await self._calls.txn(request, by)
        there: Flags = []
        for attempt, keys in zip(attempts, answer.results, strict=True):
            assert not isinstance(keys, Transaction)
            lease = attempt.lease
            alive = lease is not None and not lease.dead
            there.append(alive and any(kv.created == attempt.created for kv in keys))
        return there

    async def _renewed(self, attempt: Attempt, ttl: float, by: float) -> Outcome:
        """It is held, and its lease was just kept alive. Is it the right one?"""
        lease = attempt.lease
        assert lease is not None
        asked = seconds(ttl)
        attempt.asked_ttl = ttl
        longer = lease.asked < asked
        shorter = lease.asked > asked and self.clock.now() + asked >= attempt.until
        if lease.kind == QUEUE or longer or shorter:
            return await self._move(attempt, by)
        if lease.asked == asked:
            ttl = lease.ttl
        attempt.until = max(attempt.until, lease.sent + ttl)
        return Renewed(attempt.token, ttl, lease.sent)

    async def _move(self, attempt: Attempt, by: float) -> Outcome:
        """To a lease of the TTL that is wanted now. The token stays: it is written down."""
        while True:
            lease = await self._lease_to_hold(attempt, by)
            value = attempt.entry(True, self.clock.wall(), attempt.token)
            try:
                answer = await self._calls.txn(
                    messages.created_at(attempt.key, attempt.created)
                    + messages.then(messages.put(attempt.key, value, lease.id)),
                    by,
                )
            except Failure:
                await self._leases.keep(lease, by)
                continue
            if not answer.succeeded:
                return GONE
            attempt.changed = answer.revision
            self._put_on(attempt, lease)
            attempt.until = lease.sent + lease.ttl
            return Renewed(attempt.token, lease.ttl, lease.sent)

    async def _heartbeat(
        self, attempt: Attempt, looks: dict[str, tuple[int, Standings]], by: float
    ) -> Outcome:
        """A waiter whose lease was just kept alive: how do things stand with it?"""
        lease = attempt.lease
        assert lease is not None
        now = self.clock.now()
        quiet = attempt.blocker is not None and attempt.blocker.standing
        if lease.dead:
            return GONE
        if quiet and now < attempt.looked + LOOK_AGAIN:
            attempt.until = lease.sent + lease.ttl
            return Waiting(min(lease.ttl / 3, LOOK_AGAIN), lease.sent)
        if attempt.name not in looks:
            found = await self._calls.range(
                messages.range_of(attempt.line.start, attempt.line.end), by
            )
            looks[attempt.name] = found.revision, self._line_of(found.keys)
        revision, line = looks[attempt.name]
        mine = next((number for number, one in enumerate(line) if attempt.is_at(one)), None)
        if mine is None:
            return GONE
        self._recognise(attempt, line[mine])
        if attempt.token:
            return await self._renewed(attempt, attempt.asked_ttl, by)
        places = [one.place for one in line]
        if mine < admitted(places):
            return await self._take(attempt, by)
        self._watch_for(attempt, line, blocker(places, mine), revision)
        attempt.looked = now
        attempt.until = lease.sent + lease.ttl
        return Waiting(self._ask_again(line, lease), lease.sent)

    # Giving it back.

    async def _leave(self, attempt: Attempt, by: float) -> bool:
        """Out of the line, and the lock to the next; True if it was held."""
        if attempt.doubtful or not attempt.created:
            freed, line = await self._bury(attempt, by)
        elif self._is_wanted(attempt.name):
            freed, line = await self._hand_over(attempt, by)
        else:
            freed, line = await self._go(attempt, by)
        self._forget(attempt)
        if line:
            self._want(attempt.name)
            await self._hand_on(line, by)
        return freed

    async def _go(self, attempt: Attempt, by: float) -> tuple[bool, Standings]:
        held = attempt.token > 0
        answer = await self._calls.txn(
            messages.created_at(attempt.key, attempt.created)
            + messages.then(messages.delete(attempt.key, tell=not held), attempt.line.look),
            by,
            attempt.doubt,
        )
        return self._gone(attempt, answer, held)

    async def _bury(self, attempt: Attempt, by: float) -> tuple[bool, Standings]:
        """As above, for one of whom a request may still be under way: that one is refused then."""
        grave = await self._leases.shared(GRAVES, GRAVE_TTL, by)
        tomb = messages.put(self._naming.left(attempt.owner), b"", grave.id)
        answer = await self._calls.txn(
            messages.then(tomb, messages.delete(attempt.key, tell=True), attempt.line.look), by
        )
        attempt.doubtful = False
        assert answer.results
        return self._gone(attempt, answer._replace(results=answer.results[1:]), False)

    async def _hand_over(self, attempt: Attempt, by: float) -> tuple[bool, Standings]:
        """Others were seen to wait: out of the line and the lock to the next, in one step."""
        request = messages.range_of(
            attempt.line.start, attempt.line.end, attempt.line.enough + 1, stale=True
        )
        found = await self._calls.range(request, by)
        line = [one for one in self._line_of(found.keys) if not attempt.is_at(one)]
        heir = _heir(line)
        if heir is None:
            if not line:
                self._wanted.pop(attempt.name, None)
            return await self._go(attempt, by)
        held = attempt.token > 0
        mine = messages.created_at(attempt.key, attempt.created)
        out = messages.delete(attempt.key, tell=not held)
        look = attempt.line.look
        answer = await self._calls.txn(
            mine
            + messages.changed_at(heir.kv.key, heir.kv.changed)
            + messages.then(out, self._grant(heir))
            + messages.otherwise(messages.nested(mine, messages.then(out, look))),
            by,
            attempt.doubt,
        )
        if not answer.succeeded:
            inner = answer.results[0]
            assert isinstance(inner, Transaction)
            return self._gone(attempt, inner, held)
        freed, _ = self._gone(attempt, answer, held)
        if attempt.capacity == 1:
            return freed, []
        granted = heir._replace(entry=heir.entry.granted(0.0))
        return freed, [granted if one is heir else one for one in line]

    def _gone(self, attempt: Attempt, answer: Transaction, held: bool) -> tuple[bool, Standings]:
        """What the answer to a deletion says: whether it was held, and who is in line now."""
        if not answer.succeeded:
            # Already gone. If an earlier try of ours did it, whose answer was lost, it was ours.
            freed = held and attempt.doubtful and self.clock.now() < attempt.until
            return freed, []
        deleted, *rest = answer.results
        assert not isinstance(deleted, Transaction)
        before = self._line_of(deleted)
        freed = held or any(attempt.is_at(one) and one.place.granted for one in before)
        return freed, self._line_of(messages.held_keys(rest))

    async def _hand_on(self, line: Standings, by: float) -> None:
        """Grant the lock to whoever may have it now; whoever is not reached here asks by itself."""
        try:
            for _ in range(HANDED_ON):
                heir = _heir(line)
                if heir is None:
                    return
                # One at a time: grants of one transaction would have one revision, so one token.
                await self._calls.txn(
                    messages.changed_at(heir.kv.key, heir.kv.changed)
                    + messages.then(self._grant(heir)),
                    by,
                )
                granted = heir._replace(entry=heir.entry.granted(0.0))
                line = [granted if one is heir else one for one in line]
        except LockError:
            return  # it was given back, and that is what was asked

    def _grant(self, heir: Standing) -> bytes:
        return messages.put(heir.kv.key, heir.entry.granted(self.clock.wall()).encode())

    async def _pay(self, attempt: Attempt, by: float) -> None:
        """Before its lease is kept alive: end an attempt that is over, but whose key lives on."""
        attempt.owed = True
        await self._leave(attempt, by)

    # What is heard of keys. Called from any thread.

    def _own_key(self, attempt: Attempt, events: Sequence[Event]) -> None:
        ticket = attempt.ticket
        if not events:
            attempt.looked = 0.0
            if ticket is not None and not attempt.token:
                ticket.tell()
            return
        kv = events[-1].key
        if events[-1].deleted:
            if attempt.token and self.look is not None:
                self.look([attempt.owner])
            elif ticket is not None:
                attempt.looked = 0.0
                ticket.tell()
            return
        standing = self._naming.standing(kv)
        if standing is None or not attempt.is_at(standing) or attempt.owed:
            return
        handed = not attempt.token and standing.place.granted
        self._recognise(attempt, standing)
        if handed and ticket is not None:
            ticket.tell(Granted(attempt.token, ticket.ttl, handed=True))

    def _blocker(self, attempt: Attempt, events: Sequence[Event]) -> None:
        attempt.looked = 0.0
        if attempt.ticket is not None and not attempt.token and not attempt.owed:
            attempt.ticket.tell()

    def _watch_for(
        self, attempt: Attempt, line: Standings, whom: int | None, revision: int
    ) -> None:
        """Watch what keeps this waiter from being admitted, from the revision of the look on."""
        assert whom is not None
        key, end = attempt.line.start, attempt.line.end
        if whom != ALL:
            key, end = line[whom].kv.key, b""
        old = attempt.blocker
        if old is not None:
            if (old.key, old.end) == (key, end):
                return
            self._watches.drop(old)
        attempt.blocker = self._watches.add(
            key,
            end,
            revision + 1,
            lambda events: self._blocker(attempt, events),
            deletions_only=attempt.capacity == 1 or whom == ALL,
        )

    # Parts.

    def _line(self, name: str, kind: str, capacity: int) -> Line:
        line = self._lines.get((name, kind, capacity))
        if line is None:
            if len(self._lines) >= LINES:
                self._lines = {key: one for key, one in self._lines.items() if one.slots}
            line = self._lines[name, kind, capacity] = Line(self._naming, name, kind, capacity)
        return line

    def _line_of(self, keys: Iterable[KeyValue]) -> Standings:
        return [one for one in map(self._naming.standing, keys) if one is not None]

    def _claim(self, attempt: Attempt) -> float:
        return min(self.claim_window, attempt.asked_ttl)

    async def _lease_to_hold(self, attempt: Attempt, by: float) -> Lease:
        if attempt.renew:
            return await self._leases.shared(HOLD, attempt.asked_ttl, by)
        return await self._leases.own(attempt.asked_ttl, by)

    def _put_on(self, attempt: Attempt, lease: Lease) -> None:
        self._leases.join(attempt, lease)

    def _recognise(self, attempt: Attempt, standing: Standing) -> None:
        """Take over what the store says of it."""
        kv = standing.kv
        attempt.created = kv.created
        attempt.changed = max(attempt.changed, kv.changed)
        if standing.place.granted and not attempt.token:
            attempt.token = standing.token(self._base)
        if attempt.lease is None or (
            attempt.lease.id != kv.lease and kv.changed == attempt.changed
        ):
            self._put_on(attempt, self._leases.adopt(kv.lease, standing.entry.ttl))

    async def _find(self, name: str, owner: str, by: float) -> Attempt | None:
        """An attempt that another manager made, and that we are asked about all the same."""
        start = self._naming.line(name)
        found = await self._calls.range(messages.range_of(start, messages.after(start)), by)
        for standing in self._line_of(found.keys):
            if standing.entry.owner == owner:
                line = self._line(name, standing.kind, standing.capacity)
                attempt = Attempt.found(standing, line, self._base)
                self._put_on(attempt, self._leases.adopt(standing.kv.lease, standing.entry.ttl))
                with self._mutex:
                    return self._attempts.setdefault((name, owner), attempt)
        return None

    def _forget(self, attempt: Attempt) -> None:
        """Nothing of it is on the store any more."""
        for watch in (attempt.watch, attempt.blocker):
            if watch is not None:
                self._watches.drop(watch)
        attempt.watch = attempt.blocker = None
        self._leases.leave(attempt)
        with self._mutex:
            if self._attempts.get((attempt.name, attempt.owner)) is attempt:
                del self._attempts[attempt.name, attempt.owner]
            attempt.line.slots.discard(attempt.slot)

    def _ended(self, attempt: Attempt | None) -> None:
        """The store says that it is gone. One that may still arrive is kept in mind."""
        if attempt is not None and not attempt.doubtful and not attempt.owed:
            self._forget(attempt)

    def _want(self, name: str) -> None:
        self._wanted[name] = None
        if len(self._wanted) > LINES:
            self._wanted.pop(next(iter(self._wanted)), None)

    def _is_wanted(self, name: str) -> bool:
        return name in self._wanted

    def _ask_again(self, line: Standings, lease: Lease) -> float:
        """After how many seconds at the most a waiter should ask again."""
        return min(_longest(line), lease.ttl / 3)

    async def _states(
        self, lines: dict[str, Standings], revision: int, by: float
    ) -> Sequence[LockState]:
        remaining: dict[int, float] = {}
        states = []
        for name in sorted(lines):
            holders: People = []
            waiters: People = []
            kind, capacity = "lock", 1
            for one in lines[name]:
                lease = one.kv.lease
                if lease not in remaining:
                    remaining[lease] = await self._leases.remaining(lease, by)
                if remaining[lease] > 0:
                    kind, capacity = one.kind, one.capacity
                    group = holders if one.place.granted else waiters
                    group.append(one.participant(self._base, remaining[lease]))
            token = max((holder.token for holder in holders), default=self._base + revision)
            states.append(LockState(name, tuple(holders), tuple(waiters), token, kind, capacity))
        return states

    def _used(self, name: str, owner: str) -> ConfigError:
        return ConfigError(
            f"the owner id {owner!r} is already used for {name!r}, by a request for something "
            "else; every attempt needs an owner id of its own",
            name=name,
            owner=owner,
        )

    def _check_open(self) -> None:
        if self._wire.closed:
            raise BackendUnavailable(f"this connection to {self._address} is closed")


def _heir(line: Standings) -> Standing | None:
    """The first in line who may hold the lock and does not."""
    for one in line[: admitted([one.place for one in line])]:
        if not one.place.granted:
            return one
    return None


def _longest(line: Standings) -> float:
    """Seconds for which those who hold it have it at the most, if they are not renewed."""
    return max((one.entry.ttl for one in line if one.place.granted), default=0.0)
