"""Acquiring a lock of an etcd cluster: at once, after waiting in its queue, or not at all.

etcd goes through a whole queue to find out whether it is empty, and once more to read its first entries
in their order: a crowd that joins it would cost the square of its number. Attempts of one manager that
ask for the same mutex spare the server that. The first of them asks, and the others wait for its
answer; they then join behind an entry of their own manager, their *neighbour*. While that is there the
lock is not free, and its queue is of their kind.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import inf
from typing import Final, Literal

from ....admission import admitted, blocker, fits_behind
from ....errors import BackendUnavailable, LockError
from ....model import Busy, Granted, Queued, Renewed
from ....refusals import given_up, in_use_as, owner_used_again
from ....settlement import ELECTION
from ..._async.turnstile import Turnstile
from .. import slots
from ..keys import GRANTED, WAITING, StoredEntry
from ..wire import messages
from ..wire.failures import Failure
from ..wire.messages import Transaction
from .attempt import Attempt
from .grant import Granter, position
from .leases import QUEUE, Lease
from .parts import Parts
from .release import Releaser

FIRST_LOOK = 0.3
"""Seconds after which the first waiter looks whether the holder is still there."""

FIRST_SLOT = 0
"""The slot of a semaphore's only holder."""

JOINS_AT_ONCE = 32
"""The number of attempts of one manager that join queues at the same time. A thousand requests at once
would keep the lease of all who have joined from being kept alive."""

AGAIN: Final = "again"
"""The answer if another attempt of this manager has changed how to ask."""
Answer = Granted | Queued | Busy | None
"""The answer to an attempt; None: an earlier try of its request was carried out, and the reply lost."""


class Acquirer:
    """The requests by which attempts of one manager ask for locks."""

    def __init__(
        self, parts: Parts, granter: Granter, releaser: Releaser, claim_window: float
    ) -> None:
        self._clock, self._naming, self._retrier, self._leases, self._attempts, self._log = parts
        self._granter = granter
        self._releaser = releaser
        self._claim_window = claim_window
        self._turnstile = Turnstile(JOINS_AT_ONCE, self._clock)

    async def acquire(self, attempt: Attempt, queue: bool, deadline: float) -> tuple[Answer, float]:
        """Asks for the lock; joins its queue, if `queue` says so, where others have it.

        Returns the answer, and the deadline, which moves while the attempt stands behind others of its
        manager.
        """
        line = attempt.queue
        if queue and line.is_shared:
            answer: Answer | Literal["again"] = AGAIN
            if line.neighbour is None:  # and if nobody is asking, there is nobody to stand behind
                first = partial(self._ask_first, attempt, deadline)
                answer = await self._retrier.in_turn(line.turn, deadline, first, busy=AGAIN)
            if answer == AGAIN:
                answer, deadline = await self._turnstile.ask(
                    partial(self._ask_as_one_of_many, attempt),
                    deadline,
                    attempt.ticket.until,
                    self._retrier.too_late,
                )
            if answer != AGAIN:
                return answer, deadline
        return await self._ask(attempt, queue, deadline), deadline

    async def _ask_as_one_of_many(
        self, attempt: Attempt, deadline: float
    ) -> Answer | Literal["again"]:
        """Joins behind another attempt of this manager; the first of them asks for the lock.

        Each request may take as long as the first: it is sent because the cluster has answered those
        before it. Returns `AGAIN` if the attempt has to ask for itself.
        """
        line = attempt.queue
        now, latest = self._clock.now, attempt.ticket.until or inf
        began = now()
        patience = deadline - began

        def until() -> float:
            return max(deadline, min(now() + patience, latest))

        async def ask_first() -> Answer | Literal["again"]:
            if self._turnstile.is_silent(began):
                raise self._retrier.too_late()
            return await self._ask_first(attempt, until())

        answer: Answer | Literal["again"] = AGAIN
        while answer == AGAIN and line.is_shared:
            if line.neighbour is None:
                # Few wait for this turn, as they have one at the turnstile: the rest of a crowd stands
                # before that, where its time does not count against the store. Nor does it here: it is
                # the one with the turn who finds out whether the store answers.
                answer = await self._retrier.in_turn(line.turn, until() + patience, ask_first)
            else:
                answer = await self._join_behind(attempt, until)
                if answer is None:
                    return AGAIN  # there is a reason, which the whole question finds out
        return answer

    async def _ask_first(self, attempt: Attempt, deadline: float) -> Answer | Literal["again"]:
        """Asks for the lock, unless another attempt of this manager has come to have an entry."""
        if attempt.queue.neighbour is not None:
            return AGAIN
        try:
            answer = await self._ask(attempt, True, deadline)
        except BackendUnavailable:
            self._turnstile.failed()  # before anybody else has the turn
            raise
        except LockError:
            self._turnstile.answered()  # by a refusal
            raise
        self._turnstile.answered()
        return answer

    async def _join_behind(
        self, attempt: Attempt, until: Callable[[], float]
    ) -> Queued | Literal["again"] | None:
        """Joins the queue of a mutex behind an attempt of this manager.

        `until` returns the deadline of a request that is sent now. Returns `AGAIN` if that attempt has
        gone, and None if this one cannot join in this way.
        """
        queue = attempt.queue
        neighbour = queue.neighbour
        if neighbour is None:
            return AGAIN
        created = neighbour.created
        wait = await self._shared_to_wait(attempt, until())
        waiter_watch = self._attempts.waiter_watch
        waiter_watch.listen()
        self._attempts.hang_on(attempt, wait)
        join = messages.put(
            attempt.key, attempt.entry(WAITING, self._clock.wall()).encode(), wait.on
        )
        try:
            reply = await self._retrier.txn(
                messages.absent(self._naming.tombstone(attempt.owner))
                + messages.absent(attempt.key)
                + messages.created_at(neighbour.key, created)
                + messages.then(join)
                + messages.otherwise(messages.read(neighbour.key)),
                until(),
                attempt.doubt,
            )
        except Failure:  # the lease has ended
            await self._leases.keep_alive(wait, until())
            return None if queue.neighbour is neighbour else AGAIN
        self._turnstile.answered()
        if attempt.released:
            raise given_up(attempt.name, attempt.owner)
        queue.saw_waiters()
        if not reply.succeeded:
            if all(kv.created != created for kv in messages.held_keys(reply.results)):
                queue.left(neighbour)
            return None if queue.neighbour is neighbour else AGAIN
        self._attempts.enqueued(attempt, reply.revision)
        queue.joined(attempt)
        if waiter_watch.may_have_missed(attempt):
            waiter_watch.hint(attempt)
        attempt.extend(wait.sent + wait.ttl)
        # Behind a waiter, that one looks after the holder.
        hold = neighbour.ttl if neighbour.token else inf
        return self._queued(neighbour.token > 0, hold, wait)

    async def _ask(self, attempt: Attempt, queue: bool, deadline: float) -> Answer:
        """Asks for the lock: one transaction where nobody is in the queue, and mostly two otherwise."""
        join = queue
        while True:
            hold = await self._granter.lease_to_hold(attempt, deadline)
            wait = await self._lease_to_wait(attempt, deadline) if join else None
            if wait is not None:
                self._attempts.waiter_watch.listen()
            notes = None
            if attempt.kind == ELECTION:
                notes = await self._log.lease(ELECTION, deadline)
            self._attempts.hang_on(attempt, hold)
            wall = self._clock.wall()
            try:
                reply = await self._retrier.txn(
                    self._request(attempt, hold, wait, wall, notes), deadline, attempt.doubt
                )
            except Failure:  # one of the leases has ended
                await self._leases.find_ended((hold, wait, notes), deadline)
                continue
            if attempt.released:
                raise given_up(attempt.name, attempt.owner)
            if reply.succeeded:
                slot = FIRST_SLOT if attempt.kind == slots.SEMAPHORE else None
                grant = self._attempts.granted(attempt, hold, reply.revision, wall, slot)
                if grant is None:
                    raise given_up(attempt.name, attempt.owner)
                attempt.queue.joined(attempt)
                return grant
            attempt.queue.saw_waiters()
            inner = reply.results[0]
            if isinstance(inner, Transaction) and inner.succeeded and wait is not None:
                self._attempts.enqueued(attempt, reply.revision)
                attempt.queue.joined(attempt)
                self._attempts.hang_on(attempt, wait)
                entries = self._naming.stored_entries(messages.held_keys(inner.results))
                return await self._enqueued(attempt, wait, queue, entries, deadline)
            others = self._naming.stored_entries(messages.held_keys(reply.results))
            mine = position(others, attempt)
            if mine is not None:
                self._attempts.seen(attempt, others[mine])
                return None
            self._check_others(attempt, others)
            if any(one.kv.key == attempt.key for one in others):
                self._attempts.change_key(attempt)
            elif not queue and not fits_behind(
                [one.place for one in others],
                attempt.terms.weight,
                attempt.capacity,
                f"{attempt.kind}.{attempt.capacity}",
            ):
                return Busy(longest_hold(others))
            elif join and wait is None:
                await self._shared_to_wait(attempt, deadline)
            join = True

    def _claim(self, attempt: Attempt) -> float:
        """Returns the TTL of a waiter's lease."""
        delay = attempt.terms.delay
        return min(self._claim_window, attempt.ttl - delay) + delay

    async def _shared_to_wait(self, attempt: Attempt, deadline: float) -> Lease:
        delay = attempt.terms.delay
        return await self._leases.shared(QUEUE, self._claim(attempt), deadline, delay)

    async def _lease_to_wait(self, attempt: Attempt, deadline: float) -> Lease | None:
        """Returns a lease for a waiter; None if there is none now, and perhaps none is needed."""
        if attempt.queue.contended:
            return await self._shared_to_wait(attempt, deadline)
        return self._leases.fresh(QUEUE, self._claim(attempt), attempt.terms.delay)

    def _request(
        self,
        attempt: Attempt,
        hold: Lease,
        wait: Lease | None,
        wall: float,
        notes: Lease | None = None,
    ) -> bytes:
        """Returns the transaction that takes a free lock, or joins the queue, if `wait` is given."""
        queue, key = attempt.queue, attempt.key
        not_given_up = messages.absent(self._naming.tombstone(attempt.owner))
        entry = attempt.entry(GRANTED, wall)
        beside: tuple[bytes, ...] = ()
        if attempt.kind == slots.SEMAPHORE:
            entry = entry._replace(slot=FIRST_SLOT)
            naming, name = self._naming, attempt.name
            beside = slots.put_slot(naming, name, FIRST_SLOT, attempt.owner, hold.on)
        elif notes is not None:
            beside = self._log.leader(notes, attempt.name, entry)
        take = messages.put(key, entry.encode(), hold.on)
        look = messages.otherwise(*queue.read, messages.read(key))
        if wait is not None:
            join = messages.put(key, attempt.entry(WAITING, wall).encode(), wait.on)
            look = messages.otherwise(
                messages.nested(
                    not_given_up,
                    queue.if_one_kind,
                    messages.absent(key),
                    messages.then(join, *queue.read),
                    look,
                )
            )
        return not_given_up + queue.if_empty + messages.then(take, *beside) + look

    def _check_others(self, attempt: Attempt, others: list[StoredEntry]) -> None:
        """Refuses an attempt that may not join this queue at all."""
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

    async def _enqueued(
        self,
        attempt: Attempt,
        lease: Lease,
        queue: bool,
        entries: list[StoredEntry],
        deadline: float,
    ) -> Granted | Queued | Busy:
        """Takes the lock if an attempt that has just joined is admitted; else it waits, or leaves."""
        mine = position(entries, attempt)
        places = [one.place for one in entries]
        if mine is not None and mine < admitted(places):
            outcome = await self._granter.take(attempt, deadline, entries)
            if isinstance(outcome, Renewed):
                token, ttl, since, slot = outcome
                return Granted(token, ttl, since=since, slot=slot)
        if not queue:
            await self._releaser.release(attempt, deadline)
            return Busy(longest_hold(entries))
        waiter_watch = self._attempts.waiter_watch
        if waiter_watch.may_have_missed(attempt):
            waiter_watch.hint(attempt)
        if mine is not None and attempt.capacity > 1:
            # Those who share a lock let each other in. Where there is one holder it is enough to
            # look at the first heartbeat, since whoever releases the lock hands it on.
            waiter_watch.watch(attempt, entries, blocker(places, mine), attempt.created + 1)
        attempt.extend(lease.sent + lease.ttl)
        return self._queued(mine == 1, longest_hold(entries), lease)

    def _queued(self, first: bool, hold: float, lease: Lease) -> Queued:
        """Returns the answer to a waiter on `lease`, perhaps the first behind those who hold the lock.

        `hold` is the longest for which they may have it, if they do not renew it.
        """
        # The first waiter looks soon: a holder that released within a moment has not seen it.
        soon = self._clock.now() - lease.sent + FIRST_LOOK if first else lease.ttl
        return Queued(min(soon, heartbeat_within(hold, lease)), lease.sent)


def longest_hold(queue: list[StoredEntry]) -> float:
    """Returns the longest TTL of the holders: if not renewed, they have the lock for no longer."""
    return max((one.entry.ttl for one in queue if one.place.granted), default=0.0)


def heartbeat_within(hold: float, lease: Lease) -> float:
    """Returns the seconds after which a waiter has to be renewed, so that its lease does not end.

    `hold` is the longest for which others may have the lock, if they do not renew it.
    """
    return min(hold, lease.use / 3)
