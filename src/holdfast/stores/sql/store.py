"""The steps of a lock on a database: each is one call of a procedure there. It knows no world.

A step that got no answer is sent again, with the same owner, until its time is over: a grant whose
answer was lost is found then. What may still arrive after its attempt was given up is refused by the
database, because the release leaves a tombstone there for an owner in doubt.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from functools import partial
from random import random, randrange
from typing import Protocol

from ...clock import Clock
from ...entries import HIGHEST_CHANGE, SEPARATOR, AcquireRequest, Claim
from ...errors import BackendUnavailable, ConfigError
from ...model import (
    GONE,
    UNKNOWN,
    Busy,
    Change,
    Gone,
    Granted,
    Label,
    LockState,
    Observation,
    Outcome,
    Queued,
    Renewed,
    Waiting,
)
from ...refusals import given_up, in_use_as, owner_used_again
from .connections import Connection, Connections, Row, Value
from .doubts import LASTING, Doubts
from .states import SECOND, states_of

BATCH = 500
"""Leases that are renewed in one call."""
LONGEST_WAIT = 5.0
"""Seconds that a step waits for the steps of others on the same lock, at most."""
CLEAN_EVERY, CLEANED, UNUSED = 30.0, 200, 86400.0
"""Seconds between two cleanings by one manager; the locks that one looks at; and the seconds after
which a lock that nobody used is removed."""
CLEAN_AFTER = 100
"""Releases after which a manager cleans in any case. One release leaves one name at most, and two are
looked at: so the tables have an end, however many names come and go."""


class Database(Protocol):
    """A kind of database, at one address."""

    @property
    def address(self) -> str:
        """Where it is, for people, without credentials."""
        ...

    def connection(self) -> Connection:
        """Returns a new connection, which is not open yet."""
        ...

    def install(self, connection: Connection, deadline: float) -> None:
        """Creates the tables and procedures, unless they are there; refuses those of another format."""
        ...


class SqlStore:
    """The steps, for the locks of one namespace."""

    def __init__(self, database: Database, namespace: str, clock: Clock, connections: int) -> None:
        self.database = database
        self._prefix = namespace + SEPARATOR
        self._clock = clock
        address = database.address
        self._steps = Connections(database.connection, connections, clock, address)
        self._keeping = Connections(database.connection, 1, clock, address, self._steps)
        """Renewals have a connection of their own if it can be had, so they wait for no others."""
        self._in_doubt = Doubts(clock)
        # Not all in step: also programs that live for a second clean as often as they should together.
        self._clean_at = clock.now() + random() * CLEAN_EVERY
        self._releases = randrange(CLEAN_AFTER)
        """The releases since the last cleaning."""

    def open(self, deadline: float) -> None:
        """Connects, and sees to it that the tables are there."""
        self._steps.use(lambda connection: self.database.install(connection, deadline), deadline)

    def doubt(self, owner: str) -> None:
        """Notes that a request of `owner` is on its way from now on."""
        self._in_doubt.add(owner)

    def doubts(self, owner: str) -> bool:
        """Tells whether a request of `owner` may still arrive."""
        return owner in self._in_doubt

    def acquire(
        self, request: AcquireRequest, channel: str, deadline: float
    ) -> Granted | Queued | Busy:
        """Grants the lock, or puts the owner into the queue, to be woken on `channel`."""
        label = request.label
        values: list[Value] = [
            self._wait(deadline),
            self._prefix + request.name,
            request.owner,
            _micros(request.ttl),
            request.weight,
            request.capacity,
            request.kind,
            request.queue,
            request.barge,
            _micros(request.claim),
            _micros(request.patience),
            channel,
            label.host,
            label.pid,
            label.text,
        ]
        ((answer, *rest),) = self._asked("acquire", values, [request], deadline)
        if answer == "queued":
            return Queued(rest[0] / SECOND)
        if answer == "busy":
            return Busy(rest[0] / SECOND)
        return _granted(request, answer, *rest)

    def acquire_all(
        self, requests: Sequence[AcquireRequest], channel: str, deadline: float
    ) -> list[Granted] | Busy:
        """Grants several locks, or none."""
        values: list[Value] = [
            self._wait(deadline),
            _micros(requests[0].patience),
            channel,
            [self._prefix + request.name for request in requests],
            [request.owner for request in requests],
            [_micros(request.ttl) for request in requests],
            [request.weight for request in requests],
            [request.capacity for request in requests],
            [request.kind for request in requests],
            [int(request.barge) for request in requests],
            [_micros(request.claim) for request in requests],
            [request.label.host for request in requests],
            [request.label.pid for request in requests],
            [request.label.text for request in requests],
        ]
        rows = self._asked("acquire_all", values, requests, deadline)
        answer, *rest, place = rows[-1]
        if answer == "busy":
            return Busy(rest[0] / SECOND)
        _granted(requests[place - 1], answer, *rest)
        tokens = {row[-1]: row[1] for row in rows}
        return [
            Granted(tokens[place], request.ttl) for place, request in enumerate(requests, start=1)
        ]

    def adopt(
        self, request: AcquireRequest, giver: str, channel: str, deadline: float
    ) -> Granted | Gone:
        """Makes the lease of the owner `giver` that of the request's, with a new token."""
        label = request.label
        values: list[Value] = [
            self._wait(deadline),
            self._prefix + request.name,
            request.owner,
            giver,
            _micros(request.ttl),
            request.weight,
            request.capacity,
            request.kind,
            request.barge,
            _micros(request.claim),
            _micros(request.patience),
            channel,
            label.host,
            label.pid,
            label.text,
        ]
        ((answer, *rest),) = self._asked("adopt", values, [request], deadline)
        return GONE if answer == "gone" else _granted(request, answer, *rest)

    def _asked(
        self,
        procedure: str,
        values: list[Value],
        requests: Sequence[AcquireRequest],
        deadline: float,
    ) -> list[Row]:
        """Calls a procedure that grants; its owners are in doubt only while a copy may be under way."""
        copies: list[None] = []
        rows = self._steps.call(procedure, values, deadline, lambda: copies.append(None))
        for request in requests:
            if rows[-1][0] == "left":
                raise given_up(request.name, request.owner)
            if not copies:  # else one of them may still arrive
                self._in_doubt.discard(request.owner)
        return rows

    def amend(self, name: str, owner: str, weight: int, text: str | None, deadline: float) -> bool:
        """Changes a lease; returns False if it has ended."""
        values = (self._prefix + name, owner, weight, text is not None, text or "")
        ((held,),) = self._step("amend", deadline, *values)
        return bool(held)

    def detach(self, name: str, owner: str, ttl: float, deadline: float) -> bool:
        """Lets a lease end after `ttl`; returns False if it has ended."""
        ((held,),) = self._step("detach", deadline, self._prefix + name, owner, _micros(ttl))
        return bool(held)

    def observe(
        self, name: str, owner: str, after: int, lasting: float, channel: str, deadline: float
    ) -> Observation:
        """Returns the changes of an election; has the owner woken on `channel` at the next one."""
        known = min(after, HIGHEST_CHANGE)
        values = (self._prefix + name, owner, known, _micros(lasting), channel)
        (first, *rows) = self._step("observe", deadline, *values)
        return Observation(tuple(_change(*row) for row in rows), first[-1] / SECOND)

    def unobserve(self, owner: str, deadline: float) -> None:
        """Forgets an observer."""
        self._steps.call("unobserve", [owner], deadline)

    def renew(
        self, claims: Sequence[Claim], waiting: Container[str], channel: str, deadline: float
    ) -> list[Outcome]:
        """Renews leases, and places in queues, whose owners are woken on `channel`.

        `waiting` has the owners that were last seen to wait.
        """
        outcomes: dict[str, Outcome] = {}
        held = [claim for claim in claims if claim.owner not in waiting]
        self._in_batches(held, outcomes, self._renew, deadline)
        others = [claim for claim in claims if claim.owner not in outcomes]
        self._in_batches(others, outcomes, partial(self._beat, channel), deadline)
        self._clean(self._keeping, deadline)
        return [outcomes.get(claim.owner, GONE) for claim in claims]

    def release(self, name: str, owner: str, deadline: float) -> bool:
        """Frees a lease, or leaves the queue, and hands on; returns whether a lease was freed."""
        remember = _micros(LASTING) if owner in self._in_doubt else 0
        copies: list[None] = []
        values: list[Value] = [self._wait(deadline), self._prefix + name, owner, remember]
        ((held,),) = self._steps.call("release", values, deadline, lambda: copies.append(None))
        self._in_doubt.discard(owner)
        self._releases += 1
        self._clean(self._steps, deadline)
        # By our own clock it was held when we first asked: if that was lost, it was we who freed it.
        return bool(held or copies)

    def inspect(self, name: str, deadline: float) -> LockState:
        """Returns one lock as it stands."""
        full = self._prefix + name
        # No name goes on with a control character.
        states = self._list(full, full + "\x01", deadline)
        if states and states[0].holders:
            return states[0]
        ((token,),) = self._steps.call("token", [full], deadline)
        return (states[0] if states else LockState(name, (), (), 0))._replace(token=token)

    def list_all(self, prefix: str, deadline: float) -> list[LockState]:
        """Returns the locks that are held or waited for."""
        full = self._prefix + prefix
        return self._list(full, full + "\U0010ffff" * 257, deadline)

    def force_release(self, name: str, actor: str, above: int, deadline: float) -> bool:
        """Ends every lease on a lock, later tokens are above `above`; returns whether there was one."""
        ((held,),) = self._step("break", deadline, self._prefix + name, actor, above)
        return bool(held)

    def look(self, owners: Sequence[str], deadline: float) -> dict[str, int]:
        """Returns the tokens of those of `owners` that hold their lock."""
        return dict(self._keeping.call("look", [owners], deadline))

    def call(self, procedure: str, values: Sequence[Value], deadline: float) -> list[Row]:
        """Calls a procedure that only this kind of database has."""
        return self._keeping.call(procedure, values, deadline)

    def close(self) -> None:
        """Closes the connections."""
        self._steps.close()
        self._keeping.close()

    def _step(self, procedure: str, deadline: float, *values: Value) -> list[Row]:
        return self._steps.call(procedure, [self._wait(deadline), *values], deadline)

    def _wait(self, deadline: float) -> int:
        """Returns the ms for which a step may wait for those of others."""
        return max(1, int(min(deadline - self._clock.now(), LONGEST_WAIT) * 1000))

    def _in_batches(
        self,
        claims: Sequence[Claim],
        outcomes: dict[str, Outcome],
        send: Callable[[Sequence[Claim], float], dict[str, Outcome]],
        deadline: float,
    ) -> None:
        """Sends claims, some at a time; what is not answered is unknown if other claims were."""
        for first in range(0, len(claims), BATCH):
            batch = claims[first : first + BATCH]
            try:
                outcomes.update(send(batch, deadline))
            except BackendUnavailable:
                if not outcomes:
                    raise
                outcomes.update({claim.owner: UNKNOWN for claim in claims[first:]})
                return

    def _renew(self, claims: Sequence[Claim], deadline: float) -> dict[str, Outcome]:
        names = [self._prefix + claim.name for claim in claims]
        owners = [claim.owner for claim in claims]
        ttls = [_micros(claim.ttl) for claim in claims]
        values: list[Value] = [self._wait(deadline), names, owners, ttls]
        renewed: dict[str, int] = dict(self._keeping.call("renew", values, deadline))
        return {
            claim.owner: _renewed(renewed[claim.owner], claim.ttl)
            for claim in claims
            if claim.owner in renewed
        }

    def _beat(self, channel: str, claims: Sequence[Claim], deadline: float) -> dict[str, Outcome]:
        names = [self._prefix + claim.name for claim in claims]
        owners = [claim.owner for claim in claims]
        values: list[Value] = [self._wait(deadline), names, owners, channel]
        heard = {row[0]: row for row in self._keeping.call("beat", values, deadline)}
        outcomes: dict[str, Outcome] = {}
        for claim in claims:
            if claim.owner in heard:
                _, token, left = heard[claim.owner]
                outcomes[claim.owner] = (
                    _renewed(token, claim.ttl) if token else Waiting(left / SECOND)
                )
        return outcomes

    def _list(self, first: str, last: str, deadline: float) -> list[LockState]:
        rows = self._steps.call("list", [first, last], deadline)
        cut = len(self._prefix)
        return [state._replace(name=state.name[cut:]) for state in states_of(rows)]

    def _clean(self, connections: Connections, deadline: float) -> None:
        """Has stale rows removed, now and then: whoever renews or releases anything sees to it."""
        now = self._clock.now()
        if now < self._clean_at and self._releases < CLEAN_AFTER:
            return
        self._clean_at = now + CLEAN_EVERY
        self._releases = 0
        try:
            values: list[Value] = [self._wait(deadline), CLEANED, _micros(UNUSED)]
            connections.call("clean", values, min(deadline, now + 1.0))
        except (BackendUnavailable, ConfigError):
            return  # the next one will, or one who may


def _granted(
    request: AcquireRequest, answer: str, number: int, kind: str = "", capacity: int = 0
) -> Granted:
    """Returns the grant, or raises the refusal, that a procedure answers to a request."""
    if answer == "granted":
        return Granted(number, request.ttl)
    if answer == "used":
        raise owner_used_again(request.owner, request.name)
    present, wanted = (kind, capacity), (request.kind, request.capacity)
    raise in_use_as(request.name, request.owner, present, wanted)


def _change(number: int, token: int, owner: str, host: str, pid: int, text: str, at: int) -> Change:
    return Change(number, token, owner, Label(host, pid, text), at / SECOND)


def _renewed(token: int, ttl: float) -> Outcome:
    """Returns what became of a lease: none of its tokens is told if it could not be renewed."""
    return Renewed(token, ttl) if token > 0 else UNKNOWN


def _micros(seconds: float) -> int:
    return max(1, round(seconds * SECOND))
