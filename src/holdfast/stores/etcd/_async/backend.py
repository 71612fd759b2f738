"""`etcd://`: the adapter to an etcd cluster. An ordered line of leased keys for each lock.

Everybody who holds a lock or waits for it has a key in its line, in the order of their creation;
`holdfast.admission` says who of them may hold it. What makes one the holder is a write to its own key,
and the revision of that write is the token:

- the creation of the key, if nobody is in line: one transaction;
- the transaction of the one who goes, which grants it to the next as it deletes its own key;
- the waiter's own write, where nobody does that for it: on the condition that its key is as it was.

Each of them rests on conditions that etcd checks in the same step, so no stale read ever decides; and
whoever was admitted by an older look at the line still is: only what stands before it matters, and
that only gets less.

A key hangs on a lease, which is shared (see `etcd_leases`). A waiter's is as long as the claim window,
so a dead one does not stand in the way for its whole TTL. A lock that was handed over stays on it until
the engine confirms it, which moves the key to a lease of the TTL that was asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ....admission import admitted, blocker
from ....clock import system_clock
from ....entries import Claim
from ....errors import BackendUnavailable, ConfigError
from ....guarantees import Guarantees
from ....model import (
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
from ....refusals import owner_used_again
from ..._async.contract import Backend, Ticket
from ...timing import TIMING_OPTIONS, Timing, timing_of
from ...urls import Target, merge_options
from .. import guarantees
from ..address import OPTIONS, Address, address_of
from ..keys import GRANTED, Naming, Standing
from ..wire import messages
from ..wire.aio import Wire
from ..wire.channels import require_grpc
from ..wire.messages import Transaction
from .acquire import Asking, ask_again, position
from .attempt import Attempt
from .attempts import Roll
from .leases import FRESH, Leases
from .release import Leaving
from .retry import Calls
from .watches import Watches

CLAIM_WINDOW = 5.0
"""For so long a waiter is kept in line without a sign of life; a lock handed to it lasts as long."""
CLOSE_LIMIT = 2.0
"""Seconds for taking the leases away. They end by themselves, too."""
LOOK_AGAIN = 5.0
"""Seconds after which a waiter looks at its line though its watches are quiet."""
AT_ONCE = 100
"""Operations in one transaction; etcd allows 128."""

Members = list[tuple[int, Attempt, Claim]]
Outcomes = list[Outcome]
People = list[Participant]
Standings = list[Standing]


def prepare(
    target: Target, namespace: str, options: dict[str, Any]
) -> tuple[Guarantees, Callable[[], Backend]]:
    """Check everything that can be checked without opening; answers how to open."""
    known = {**TIMING_OPTIONS, "claim_window": CLAIM_WINDOW, "token_base": 0, **OPTIONS}
    settings = merge_options(target, options, known)
    timing = timing_of(settings)
    base = settings["token_base"]
    number = isinstance(base, int | float) and not isinstance(base, bool)
    if not number or not 0 <= base < 2**62 or base != int(base):
        raise ConfigError("token_base must be a whole number from 0 on, the same for every client")
    address = address_of(target, settings)
    require_grpc()
    naming = Naming(namespace)
    return guarantees.ETCD, lambda: EtcdBackend(address, naming, timing, int(base))


class EtcdBackend:
    guarantees = guarantees.ETCD

    def __init__(
        self,
        address: Address,
        naming: Naming,
        timing: Timing,
        token_base: int,
    ) -> None:
        self._address = address
        self._naming = naming
        self._base = token_base
        self.clock = system_clock()
        self.heartbeat, self.claim_window = timing
        self._wire = Wire(address)
        self._calls = Calls(self._wire, address, self.clock)
        self._leases = Leases(self._calls, self.clock, self._pay, naming.root)
        self._watches = Watches(self._wire, self.clock)
        self._bells = Watches(self._wire, self.clock, single=True)
        self._roll = Roll(
            self._calls,
            self.clock,
            naming,
            self._leases,
            self._watches,
            self._bells,
            token_base,
            timing.claim_window,
        )
        self._leaving = Leaving(self._roll)
        self._asking = Asking(self._roll, self._leaving)

    @property
    def look(self) -> Callable[[Iterable[str]], None] | None:
        return self._roll.look

    @look.setter
    def look(self, look: Callable[[Iterable[str]], None]) -> None:
        self._roll.look = look

    async def open(self, deadline: float) -> None:
        try:
            await self._calls.log_in(deadline)
            await self._calls.range(messages.range_of(self._naming.root), deadline)
        except BaseException:
            await self._wire.close()
            raise

    async def acquire(self, ticket: Ticket, deadline: float) -> Granted | Queued | Busy:
        if self._wire.closed:
            raise self._closed()
        attempt = self._roll.enrol(ticket)
        if attempt.ticket is not ticket and not attempt.matches(ticket):
            raise owner_used_again(ticket.owner, ticket.name)
        answer = None
        if not attempt.created:
            try:
                answer = await self._asking.ask(attempt, ticket.queue, deadline)
            except BaseException:
                if not attempt.may_be_there:
                    self._roll.forget(attempt)
                raise
            if type(answer) is Granted:
                return answer
            if isinstance(answer, Busy):
                await self._over(attempt, deadline)
        return answer or await self._as_before(attempt, ticket, deadline)

    async def renew(self, claims: Sequence[Claim], deadline: float) -> Sequence[Outcome]:
        if self._wire.closed:
            raise self._closed()
        outcomes: Outcomes = [UNKNOWN] * len(claims)
        held: Members = []
        waiting: Members = []
        for number, claim in enumerate(claims):
            attempt = self._roll.known(claim.name, claim.owner)
            attempt = attempt or await self._roll.find(claim.name, claim.owner, deadline)
            if attempt is None or attempt.lease is None or attempt.owed or not attempt.created:
                outcomes[number] = GONE
            else:
                (held if attempt.token else waiting).append((number, attempt, claim))
        for lease in dict.fromkeys(attempt.lease for _, attempt, _ in (*held, *waiting)):
            if lease is not None:
                await self._leases.keep(lease, deadline, lease.ttl / FRESH)
        self._watches.follow()
        self._bells.follow()
        for start in range(0, len(held), AT_ONCE):
            await self._renew_held(held[start : start + AT_ONCE], outcomes, deadline)
        looks: dict[str, tuple[int, Standings]] = {}
        for number, attempt, _ in waiting:
            outcomes[number] = await self._heartbeat(attempt, looks, deadline)
        for number, attempt, _ in (*held, *waiting):
            if outcomes[number] is GONE and not attempt.owed:
                await self._over(attempt, deadline)
        return outcomes

    async def release(self, name: str, owner: str, deadline: float) -> bool:
        if self._wire.closed:
            raise self._closed()
        attempt = self._roll.known(name, owner) or await self._roll.find(name, owner, deadline)
        return attempt is not None and await self._leaving.leave(attempt, deadline)

    async def wait(self, ticket: Ticket, until: float | None) -> Granted | None:
        return await ticket.wait(self.clock, until)

    async def inspect(self, name: str, deadline: float) -> LockState:
        start = self._naming.line(name)
        found = await self._calls.range(messages.range_of(start, messages.after(start)), deadline)
        (state,) = await self._states(
            {name: self._roll.line_of(found.keys)}, found.revision, deadline
        )
        return state

    async def list(self, prefix: str, deadline: float) -> Sequence[LockState]:
        first, last = self._naming.starting(prefix)
        found = await self._calls.range(messages.range_of(first, last), deadline)
        lines: dict[str, Standings] = {}
        for standing in self._roll.line_of(found.keys):
            lines.setdefault(standing.name, []).append(standing)
        states = await self._states(lines, found.revision, deadline)
        return [state for state in states if state.holders or state.waiters]

    async def force_release(self, name: str, actor: str, deadline: float) -> bool:
        start = self._naming.line(name)
        freed = False
        doomed: set[tuple[str, int]] | None = None
        while True:
            found = await self._calls.range(
                messages.range_of(start, messages.after(start)), deadline
            )
            line = self._roll.line_of(found.keys)
            holders = [one for one in line if one.entry.state == GRANTED]
            if doomed is None:
                doomed = {(one.entry.owner, one.kv.created) for one in holders}
            # Who is granted the lock because those have gone is not meant.
            holders = [one for one in holders if (one.entry.owner, one.kv.created) in doomed]
            holders = holders[: AT_ONCE // 2]
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
                deadline,
            )
            freed = freed or answer.succeeded
        await self._leaving.hand_on(line, deadline)
        return freed

    async def tether(self, name: str, owner: str, deadline: float) -> int | None:
        return None

    async def close(self) -> None:
        if self._wire.closed:
            return
        self._roll.guard.close()
        await self._watches.close()
        await self._bells.close()
        try:
            await self._leases.revoke_all(self.clock.now() + CLOSE_LIMIT)
        finally:
            await self._wire.close()

    # Their parts.

    async def _as_before(
        self, attempt: Attempt, ticket: Ticket, deadline: float
    ) -> Granted | Queued:
        """The same request again: the same answer again."""
        claim = Claim(attempt.name, attempt.owner, attempt.asked_ttl)
        (outcome,) = await self.renew([claim], deadline)
        if isinstance(outcome, Renewed):
            return Granted(outcome.token, outcome.ttl, since=outcome.since)
        if isinstance(outcome, Waiting):
            self._roll.listen()
            return Queued(outcome.remaining, outcome.since)
        if ticket.queue:
            # It was in line, and has ended since: it asks at once, is told, and begins anew.
            ticket.tell()
            return Queued(0.0)
        raise BackendUnavailable(
            f"the request for {attempt.name!r} was carried out, and has ended since",
            name=attempt.name,
            owner=attempt.owner,
        )

    async def _renew_held(self, members: Members, outcomes: Outcomes, deadline: float) -> None:
        """The leases alone do not tell of a forced release: the keys are looked at, too."""
        request = messages.then(*(messages.read(attempt.key) for _, attempt, _ in members))
        answer = await self._calls.txn(request, deadline)
        for (number, attempt, claim), keys in zip(members, answer.results, strict=True):
            assert not isinstance(keys, Transaction)
            lease = attempt.lease
            alive = lease is not None and not lease.dead
            if alive and any(kv.created == attempt.created for kv in keys):
                self._roll.watch_own(attempt.line, answer.revision + 1)
                outcomes[number] = await self._asking.held(attempt, claim.ttl, deadline)
            else:
                outcomes[number] = GONE

    async def _heartbeat(
        self, attempt: Attempt, looks: dict[str, tuple[int, Standings]], deadline: float
    ) -> Outcome:
        """A waiter whose lease was just kept alive: how do things stand with it?"""
        lease = attempt.lease
        now = self.clock.now()
        if lease is None or lease.dead:
            return GONE
        if self._roll.watched(attempt) and now < attempt.looked + LOOK_AGAIN:
            if not self._leases.extend(attempt, lease.sent + lease.ttl):
                return GONE
            return Waiting(lease.ttl / 3, lease.sent)
        if attempt.name not in looks:
            line = attempt.line
            found = await self._calls.range(messages.range_of(line.start, line.end), deadline)
            looks[attempt.name] = found.revision, self._roll.line_of(found.keys)
        revision, standings = looks[attempt.name]
        mine = position(standings, attempt)
        if mine is None:
            return GONE
        self._roll.recognise(attempt, standings[mine])
        if attempt.token:
            return await self._asking.held(attempt, attempt.asked_ttl, deadline)
        places = [one.place for one in standings]
        if mine < admitted(places):
            return await self._asking.take(attempt, deadline)
        self._roll.watch_blocker(attempt, standings, blocker(places, mine), revision + 1)
        attempt.looked = now
        if not self._leases.extend(attempt, lease.sent + lease.ttl):
            return GONE
        return Waiting(ask_again(standings, lease), lease.sent)

    async def _over(self, attempt: Attempt, deadline: float) -> None:
        """The store knows nothing of it; one that may still arrive is refused when it does."""
        if attempt.doubtful:
            await self._leaving.leave(attempt, deadline)
        else:
            self._roll.forget(attempt)

    async def _pay(self, attempt: Attempt, deadline: float) -> None:
        await self._leaving.leave(attempt, deadline)

    async def _states(
        self, lines: dict[str, Standings], revision: int, deadline: float
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
                    remaining[lease] = await self._leases.remaining(lease, deadline)
                if remaining[lease] > 0:
                    kind, capacity = one.kind, one.capacity
                    group = holders if one.place.granted else waiters
                    group.append(one.participant(self._base, remaining[lease]))
            token = max((holder.token for holder in holders), default=self._base + revision)
            states.append(LockState(name, tuple(holders), tuple(waiters), token, kind, capacity))
        return states

    def _closed(self) -> BackendUnavailable:
        return BackendUnavailable(f"this connection to {self._address} is closed")
