"""Several locks as one: all of them or none, under one deadline, and never in a deadlock.

First all are asked for at once, and nobody waits: where the store can, in one step. If any is busy,
what was granted is given back, and the locks are asked for **in sorted order**, each in its queue.
Those who take several in this way wait for each other in that order only: never in a circle.

Others may hold the same locks in another order, one inside the other. So nobody who holds some of its
locks waits for the next one for longer than a *slice*: then it gives all back, pauses for a random
time, and begins from scratch. The slice is twice as long each time, and at last longer than any queue.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, cast

from .. import checks, forks
from .._runtime.aio import Signal, call_all
from ..clock import system_clock
from ..errors import BackendUnavailable, LockTimeout
from ..model import Busy, Granted, Queued, new_owners
from ..refusals import unavailable
from ..stores._async.contract import OPEN_LIMIT, Ticket
from .lease import Lease
from .lock import UNSET, Unset
from .lock_object import LockObject
from .multi_hold import MultiHold, PartHold, in_words
from .multi_lease import MultiLease, join
from .opening import LEAST_REST
from .session import LEAST_LIMIT
from .waiting import LATENESS, obtain, tell_ended, tell_granted, tell_timed_out

if TYPE_CHECKING:
    from .opening import Opening
    from .request import Request
    from .session import Session

FIRST_SLICE = 0.25
"""The first slice: seconds that an attempt which holds some of its locks waits for the next one."""
FIRST_PAUSE, LONGEST_PAUSE = 0.01, 0.5
"""Seconds before it begins from scratch: a random part of the first, then of twice that, and so on."""


class MultiLock(LockObject[MultiLease]):
    """Made by `locks.multi(names)`."""

    __slots__ = ("_opening", "_requests", "names")

    def __init__(self, opening: Opening, requests: Sequence[Request]) -> None:
        super().__init__()
        self.names = tuple(request.name for request in requests)
        """The names of the locks, each once, in the order in which they are taken."""
        self._opening = opening
        self._requests = tuple(requests)

    def __repr__(self) -> str:
        return f"<multi {in_words(self.names)}>"

    async def acquire(self, timeout: float | Unset | None = UNSET) -> MultiLease:
        """Returns a lease on all; raises `LockTimeout` if not all were granted within `timeout`.

        None waits for ever, 0 tries once; without one the lock's own `timeout` counts.
        """
        own = self._requests[0].options.timeout
        limit = own if timeout is UNSET else checks.timeout(timeout)
        lease = await obtain_all(self._opening, self._requests, limit)
        if isinstance(lease, str):
            raise LockTimeout(
                f"{in_words(self.names)} were not granted together within {limit:g} s, because "
                f"others hold {repr(lease) if lease else 'some of them'} or were first; wait longer, "
                "or see who with inspect()",
                name=lease or None,
            )
        lease._hold._usage.given = True
        return lease

    async def try_acquire(self, timeout: float = 0.0) -> MultiLease | None:
        """Returns a lease on all; or None if they are not to be had at once, or within `timeout`."""
        lease = await obtain_all(self._opening, self._requests, checks.timeout(timeout))
        if isinstance(lease, str):
            return None
        lease._hold._usage.given = True
        return lease

    # For `with`.

    async def _to_enter(self) -> MultiLease:
        return await self.acquire()

    def _title(self) -> str:
        return in_words(self.names)


async def obtain_all(
    opening: Opening, requests: Sequence[Request], timeout: float | None
) -> MultiLease | str:
    """Returns a lease on all; or, once `timeout` is over, the name of a lock that was not to be had.

    The name is empty where the store did not tell.
    """
    attempt = await _Attempt.begin(opening, requests, timeout)
    length, pause = FIRST_SLICE, FIRST_PAUSE
    while True:
        result = await attempt.at_once()
        if not isinstance(result, str) or timeout == 0 or attempt.over():
            break
        result = await attempt.one_by_one(length)
        if not isinstance(result, str) or attempt.over():
            break
        await attempt.pause(pause)
        if attempt.over():
            break
        length, pause = 2 * length, min(2 * pause, LONGEST_PAUSE)
    if isinstance(result, str):
        attempt.tell_timed_out(result)
    return result


class _Attempt:
    """One call of `acquire`, until all its locks are granted or its time is over."""

    def __init__(
        self,
        opening: Opening,
        session: Session,
        requests: Sequence[Request],
        timeout: float | None,
        spent: float,
    ) -> None:
        self._opening = opening
        self._session = session
        self._requests = requests
        self._timeout = timeout
        self._started = session.now() - spent
        self._give_up = None if timeout is None else self._started + timeout
        options = requests[0].options
        lasts = [options.max_hold, None if options.renew else options.ttl]
        self._longest_slice = min((seconds / 3 for seconds in lasts if seconds), default=None)
        """Seconds that the first part can spare, where it is not renewed while the others are waited
        for."""

    @staticmethod
    async def begin(
        opening: Opening, requests: Sequence[Request], timeout: float | None
    ) -> _Attempt:
        """Returns an attempt, and opens the store for it if need be; that counts as time of its own."""
        clock = system_clock()
        began = clock.now()
        limit = min(OPEN_LIMIT, max(timeout, LEAST_LIMIT)) if timeout else OPEN_LIMIT
        try:
            session = await opening.session(limit)
        except BackendUnavailable as error:
            opening.tell_failed(requests[0].name, clock.now() - began, error)
            raise _unavailable(requests, error) from error
        return _Attempt(opening, session, requests, timeout, clock.now() - began)

    def over(self) -> bool:
        """Tells whether its time is over."""
        return self._give_up is not None and self._session.now() >= self._give_up

    def tell_timed_out(self, busy: str) -> None:
        """Tells the listeners, once for all its locks, that `busy` was not to be had in time."""
        if self._session.listeners:
            name = busy or self._requests[0].name
            tell_timed_out(self._session, name, "", self._started, self._timeout)

    async def pause(self, longest: float) -> None:
        """Waits for a random time, of all lengths up to `longest`, lest two stay in step."""
        until = self._session.now() + longest * int.from_bytes(os.urandom(2)) / 2**16
        if self._give_up is not None:
            until = min(until, self._give_up)
        await Signal(self._session.clock).wait(until)

    # All at once.

    async def at_once(self) -> MultiLease | str:
        """Returns a lease on all if all are free; or the name of one that is not. Waits for nobody."""
        session = self._session
        sent = session.now()
        if self._timeout:
            deadline = max(session.deadline_for(sent, self._give_up), sent + LEAST_REST)
        else:
            deadline = sent + session.patience
        tickets: list[Ticket] = []
        try:
            owners = new_owners(session.id, len(self._requests))
            for request, owner in zip(self._requests, owners, strict=True):
                tickets.append(session.begin(request, owner, False, self._give_up))
            answers = await self._ask_for_all(tickets, deadline)
            late = self._give_up and self._timeout and session.now() > deadline + LATENESS
            lease = None if late else self._take(tickets, answers, sent)
            if lease is not None:
                return lease
            granted: list[Ticket] = []
            busy = ""
            for ticket, answer in zip(tickets, answers, strict=True):
                if isinstance(answer, Granted):
                    granted.append(ticket)
                else:
                    busy = ticket.name if answer is not None else busy
                    session.leave(ticket.owner)
            await self._give_up_all(granted)
            return busy
        except BaseException as error:
            try:
                if isinstance(error, BackendUnavailable):
                    self._give_up_later(tickets)
                else:
                    await self._give_up_all(tickets)
            except BaseException:  # another interrupt, perhaps at the very entry of it
                self._give_up_later(tickets)
                raise
            if session.listeners:
                tell_ended(session, self._requests[0].name, "", self._started, error)
            if isinstance(error, BackendUnavailable):
                session.check_open()  # then that is why
                if error.name is None:
                    raise _unavailable(self._requests, error) from error
            raise

    def _take(
        self,
        tickets: Sequence[Ticket],
        answers: Sequence[Granted | Queued | Busy | None],
        sent: float,
    ) -> MultiLease | None:
        """Returns the lease on all; None if not all were granted, or one of them is over already."""
        session = self._session
        grants = [answer for answer in answers if isinstance(answer, Granted)]
        if len(grants) < len(answers):
            return None
        forks.refuse_inherited(session.generation)  # what was granted is the parent's
        holds = session.hold_all(self._requests, tickets, grants, sent)
        if holds is None:
            session.check_open()
            return None
        parts = cast("list[PartHold]", holds)  # as the requests of several locks ask for
        whole = MultiHold(session, parts)
        leases = [Lease(part, self._opening) for part in parts]
        if not whole.is_held(session.now()):
            return None
        if session.listeners:
            for part in parts:
                tell_granted(session, part, self._started, False)
        return MultiLease(whole, leases, self._opening)

    async def _ask_for_all(
        self, tickets: Sequence[Ticket], deadline: float
    ) -> Sequence[Granted | Queued | Busy | None]:
        """Returns the store's answer to each ticket; None for one of which nothing is known there."""
        backend = self._session.backend
        in_one_step = getattr(backend, "acquire_all", None)
        if in_one_step is not None:
            answer: list[Granted] | Busy = await in_one_step(tickets, deadline)
            return [None] * len(tickets) if isinstance(answer, Busy) else answer
        busy = False

        async def ask(ticket: Ticket) -> Granted | Queued | Busy | None:
            nonlocal busy
            if busy:
                return None
            answer = await backend.acquire(ticket, deadline)
            if not isinstance(answer, Granted):
                busy = True
            return answer

        return await call_all([partial(ask, ticket) for ticket in tickets])

    async def _give_up_all(self, tickets: Sequence[Ticket]) -> None:
        """Leaves nothing of these tickets on the store."""
        session = self._session

        async def give_up(ticket: Ticket) -> None:
            if session.pending_releases:  # the store does not answer: it is given its time once
                self._give_up_later([ticket])
            else:
                await session.give_up(ticket)

        try:
            await call_all([partial(give_up, ticket) for ticket in tickets])
        except BaseException:
            self._give_up_later(tickets)
            raise

    def _give_up_later(self, tickets: Sequence[Ticket]) -> None:
        """Has the store forget these tickets, in the background."""
        for ticket in tickets:
            self._session.give_up_later(ticket)

    # One by one.

    async def one_by_one(self, length: float) -> MultiLease | str:
        """Returns a lease on all, which were waited for in sorted order; or the name of one of them.

        With some of them held, it waits for `length` seconds at the most.
        """
        leases: list[Lease] = []
        try:
            for request in self._requests:
                limit = self._limit(leases, length)
                lease = await obtain(self._opening, request, limit, None, part=True)
                if lease is None:
                    break
                leases.append(lease)
            busy = self._requests[min(len(leases), len(self._requests) - 1)].name
            lost = [lease.name for lease in leases if not lease.held]
            if lost:
                busy = lost[0]
            elif len(leases) == len(self._requests):
                whole = join(leases, self._opening)
                if whole.held:
                    return whole
        except BaseException:
            await _give_back(self._session, leases)
            raise
        await _give_back(self._session, leases)
        return busy

    def _limit(self, held: Sequence[Lease], length: float) -> float | None:
        """Returns the seconds to wait for the next lock, when some are held."""
        limits = []
        if self._give_up is not None:
            limits.append(max(self._give_up - self._session.now(), 0.0))
        if held:
            limits.append(length)
            if self._longest_slice is not None:
                limits.append(self._longest_slice)
        return min(limits, default=None)


async def _give_back(session: Session, leases: Sequence[Lease]) -> None:
    """Releases the leases that were not enough. A failure is told by an event."""
    holds = [lease._hold for lease in leases]
    parts = [hold for hold in holds if isinstance(hold, PartHold)]
    if parts:
        await MultiHold(session, parts)._release_quietly()


def _unavailable(requests: Sequence[Request], error: BackendUnavailable) -> BackendUnavailable:
    names = in_words([request.name for request in requests])
    return unavailable(f"{names} could not be acquired", error, requests[0].name)
