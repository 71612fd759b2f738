"""How an attempt gets a lock of an etcd cluster: at once, after standing in line, or not at all."""

from __future__ import annotations

from ....admission import admitted, blocker, fits_behind
from ....errors import BackendUnavailable
from ....model import GONE, OWNER_ID, Busy, Granted, Outcome, Queued, Renewed
from ....refusals import given_up, in_use_as, owner_used_again
from ..keys import GRANTED, WAITING, Standing
from ..wire import messages
from ..wire.failures import Failure
from ..wire.messages import Transaction
from .attempt import Attempt
from .attempts import Roll
from .leases import QUEUE, Lease, seconds
from .queue import NO_TAIL, Form, Prepared
from .release import Leaving

OWNER, SINCE = b"\0" * OWNER_ID, b"\1" * len("1700000000.000")
"""The places of these in a prepared request. No name and no entry has control characters."""
FIRST_LOOK = 0.3
"""Seconds after which the first waiter looks whether the holder is still there."""


class Asking:
    def __init__(self, roll: Roll, leaving: Leaving) -> None:
        self._roll = roll
        self._leaving = leaving
        self._calls = roll.calls
        self._clock = roll.clock
        self._leases = roll.leases

    async def ask(
        self, attempt: Attempt, queue: bool, deadline: float
    ) -> Granted | Queued | Busy | None:
        """One transaction where nobody is in line, or where others are known to wait; else two.

        None: an earlier try of this request was carried out, and its answer was lost.
        """
        roll, line = self._roll, attempt.line
        now = self._clock.now
        if queue and line.tail is not NO_TAIL and now() < line.tail[1]:
            queued = await self._join(attempt, deadline)
            if queued is not None:
                return queued
        join = queue
        while True:
            form: Form | None = attempt.terms.prepared.form
            if form is not None and form.hold.fresh(now()):
                hold = form.hold  # the shared one, as before
            else:
                hold = await roll.lease_to_hold(attempt, deadline)
            wait = None
            if join and (line.wanted or self._leases.queues):
                wait = await self._lease_to_wait(attempt, deadline)
                if wait is not None:
                    roll.listen()
            self._leases.join(attempt, hold)
            try:
                answer = await self._calls.txn(
                    self._request(attempt, hold, wait), deadline, attempt.doubt, brief=True
                )
            except Failure:  # one of the leases has ended
                for lease in filter(None, (hold, wait)):
                    await self._leases.keep(lease, deadline)
                continue
            if attempt.owed:
                raise given_up(attempt.name, attempt.owner)
            if answer.succeeded:
                attempt.created = answer.revision
                return roll.granted(attempt, hold, answer.revision)
            roll.want(line)
            inner = answer.results[0]
            if isinstance(inner, Transaction) and inner.succeeded and wait is not None:
                attempt.created = attempt.changed = answer.revision
                self._leases.join(attempt, wait)
                roll.answer_bell(attempt)
                places = roll.line_of(messages.held_keys(inner.results))
                return await self._in_line(attempt, wait, queue, places, deadline)
            others = roll.line_of(messages.held_keys(answer.results))
            for one in others:
                if attempt.is_at(one):
                    roll.recognise(attempt, one)
                    return None
            self._check_place(attempt, others)
            if any(one.kv.key == attempt.key for one in others):
                if (
                    attempt.doubtful
                ):  # a try for this key may still arrive, which its end has to meet
                    raise BackendUnavailable(
                        f"the place for {attempt.name!r} is still taken by an earlier request, and "
                        "an answer was lost; ask again",
                        name=attempt.name,
                        owner=attempt.owner,
                    )
                roll.another_key(attempt)
            elif not queue and not fits_behind(
                [one.place for one in others],
                attempt.terms.weight,
                attempt.capacity,
                attempt.shape,
            ):
                return Busy(longest(others))
            elif join and wait is None:
                await self._leases.shared(QUEUE, roll.claim(attempt), deadline)
            join = True

    async def _join(self, attempt: Attempt, deadline: float) -> Queued | None:
        """Behind one who still waits, so that it is not alone: no look at the line, which may be long.

        Of the right kind, too, as the other is: nobody joins a line of another kind. None: that one
        does not wait any more.
        """
        (still_waits, _), attempt.line.tail = attempt.line.tail, NO_TAIL
        if not still_waits:
            return None  # another thread was quicker
        lease = await self._leases.shared(QUEUE, self._roll.claim(attempt), deadline)
        self._roll.listen()
        self._leases.join(attempt, lease)
        join = messages.put(attempt.key, attempt.entry(False, self._clock.wall()), lease.on)
        not_left = messages.absent(self._roll.naming.left(attempt.owner))
        request = not_left + messages.absent(attempt.key) + still_waits + messages.then(join)
        try:
            answer = await self._calls.txn(request, deadline, attempt.doubt, brief=True)
        except Failure:  # the lease has ended
            await self._leases.keep(lease, deadline)
            return None
        if attempt.owed:
            raise given_up(attempt.name, attempt.owner)
        if not answer.succeeded:
            return None
        attempt.created = attempt.changed = answer.revision
        self._roll.want(attempt.line)
        self._roll.answer_bell(attempt)
        if self._roll.missed(attempt):
            self._roll.hint(attempt)
        attempt.until = lease.sent + lease.ttl
        return Queued(lease.ttl / 3, lease.sent)

    async def _lease_to_wait(self, attempt: Attempt, deadline: float) -> Lease | None:
        """None: there is none just now, and perhaps none is needed."""
        if attempt.line.wanted:
            return await self._leases.shared(QUEUE, self._roll.claim(attempt), deadline)
        return self._leases.alive(QUEUE, self._roll.claim(attempt))

    def _request(self, attempt: Attempt, hold: Lease, wait: Lease | None) -> bytes:
        """Only who asks, and when, differs from one attempt to the next: the rest is made once."""
        wall = attempt.since = self._clock.wall()
        owner, since = attempt.owner.encode(), b"%.3f" % wall
        if len(owner) != OWNER_ID or len(since) != len(SINCE) or not owner.isalnum():
            return self._written(attempt, attempt.owner, since.decode(), hold, wait)
        prepared: Prepared = attempt.terms.prepared
        form = prepared.form
        if (
            form is None
            or form.slot is not attempt.slot
            or form.hold is not hold
            or form.wait is not wait
        ):
            request = self._written(attempt, OWNER.decode(), SINCE.decode(), hold, wait)
            form = Form(attempt.slot, hold, wait, request.split(OWNER))
            if attempt.terms.renew:  # else the lease is for this attempt alone
                prepared.form = form
        return owner.join(form.parts).replace(SINCE, since)

    def _written(
        self, attempt: Attempt, owner: str, since: str, hold: Lease, wait: Lease | None
    ) -> bytes:
        line, slot = attempt.line, attempt.slot
        not_left = messages.absent(self._roll.naming.left(owner))
        take = messages.put(slot.key, attempt.entry_of(owner, GRANTED, since), hold.on)
        look = slot.look
        if wait is not None:
            join = messages.put(slot.key, attempt.entry_of(owner, WAITING, since), wait.on)
            look = messages.otherwise(
                messages.nested(
                    not_left,
                    line.same_kind,
                    messages.absent(slot.key),
                    messages.then(join, line.look),
                    look,
                )
            )
        return not_left + line.alone + messages.then(take) + look

    def _check_place(self, attempt: Attempt, others: list[Standing]) -> None:
        """Whether it may join this line at all."""
        for one in others:
            if (one.kind, one.capacity) != (attempt.kind, attempt.capacity):
                raise in_use_as(
                    attempt.name,
                    attempt.owner,
                    (one.kind, one.capacity),
                    (attempt.kind, attempt.capacity),
                )
            if one.entry.owner == attempt.owner:
                raise owner_used_again(attempt.owner, attempt.name)
        if not others:
            raise given_up(attempt.name, attempt.owner)

    async def _in_line(
        self, attempt: Attempt, lease: Lease, queue: bool, line: list[Standing], deadline: float
    ) -> Granted | Queued | Busy:
        """It has just joined: it is admitted at once, or waits, or leaves again."""
        mine = position(line, attempt)
        places = [one.place for one in line]
        if mine is not None and mine < admitted(places):
            outcome = await self.take(attempt, deadline)
            if isinstance(outcome, Renewed):
                return Granted(outcome.token, outcome.ttl, since=outcome.since)
        if not queue:
            await self._leaving.leave(attempt, deadline)
            return Busy(longest(line))
        if self._roll.missed(attempt):
            self._roll.hint(attempt)
        if mine is not None and attempt.capacity > 1:
            # Those who share a lock let each other in. Where there is one holder it is enough to
            # look at the first heartbeat, since whoever goes hands the lock on.
            whom = blocker(places, mine)
            self._roll.watch_blocker(attempt, line, whom, attempt.created + 1)
        attempt.until = lease.sent + lease.ttl
        # The first in line looks soon: who held the lock for a moment only has not looked for it.
        soon = self._clock.now() - lease.sent + FIRST_LOOK if mine == 1 else lease.ttl
        return Queued(min(soon, ask_again(line, lease)), lease.sent)

    async def take(self, attempt: Attempt, deadline: float) -> Outcome:
        """Its turn has come: make it the holder, if its key is still there as it was."""
        while True:
            hold = await self._roll.lease_to_hold(attempt, deadline)
            changed = attempt.changed
            if attempt.token:  # handed to it meanwhile; whoever waits was told which token it has
                return await self.held(attempt, attempt.asked_ttl, deadline)
            value = attempt.entry(True, self._clock.wall())
            try:
                answer = await self._calls.txn(
                    messages.changed_at(attempt.key, changed)
                    + messages.then(messages.put(attempt.key, value, hold.on))
                    + messages.otherwise(messages.read(attempt.key)),
                    deadline,
                )
            except Failure:
                await self._leases.keep(hold, deadline)
                continue
            if answer.succeeded:
                grant = self._roll.granted(attempt, hold, answer.revision)
                return GONE if attempt.owed else Renewed(grant.token, grant.ttl, grant.since)
            line = self._roll.line_of(messages.held_keys(answer.results))
            mine = position(line, attempt)
            if mine is None:
                return GONE
            self._roll.recognise(attempt, line[mine])
            if attempt.token:  # handed to it meanwhile
                return await self.held(attempt, attempt.asked_ttl, deadline)

    async def held(self, attempt: Attempt, ttl: float, deadline: float) -> Outcome:
        """It is held, and its lease was just kept alive. If that is not the right one, it is moved."""
        lease = attempt.lease
        if lease is None:
            return GONE  # released meanwhile
        asked = seconds(ttl)
        longer = lease.asked < asked
        # Never shortened: only once less is left than is asked for.
        shorter = lease.asked > asked and self._clock.now() + asked >= attempt.until
        attempt.asked_ttl = ttl
        if lease.kind == QUEUE or longer or shorter:
            return await self._move(attempt, deadline)
        if lease.asked == asked:
            ttl = lease.ttl
        if not self._leases.extend(attempt, max(attempt.until, lease.sent + ttl)):
            return GONE
        return Renewed(attempt.token, ttl, lease.sent)

    async def _move(self, attempt: Attempt, deadline: float) -> Outcome:
        """To a lease of the TTL that is wanted now. The token stays: it is written down."""
        while True:
            lease = await self._roll.lease_to_hold(attempt, deadline)
            value = attempt.entry(True, self._clock.wall(), attempt.token)
            try:
                answer = await self._calls.txn(
                    messages.created_at(attempt.key, attempt.created)
                    + messages.then(messages.put(attempt.key, value, lease.on)),
                    deadline,
                )
            except Failure:
                await self._leases.keep(lease, deadline)
                continue
            if not answer.succeeded:
                return GONE
            attempt.changed = answer.revision
            self._leases.join(attempt, lease)
            if not self._leases.extend(attempt, lease.sent + lease.ttl):
                return GONE
            return Renewed(attempt.token, lease.ttl, lease.sent)


def position(line: list[Standing], attempt: Attempt) -> int | None:
    for number, one in enumerate(line):
        if attempt.is_at(one):
            return number
    return None


def longest(line: list[Standing]) -> float:
    """Seconds for which those who hold it have it at the most, if they are not renewed."""
    return max((one.entry.ttl for one in line if one.place.granted), default=0.0)


def ask_again(line: list[Standing], lease: Lease) -> float:
    """After how many seconds a waiter has to ask again, so that its own lease does not end."""
    return min(longest(line), lease.ttl / 3)
