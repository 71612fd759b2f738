"""From asking to holding: one deadline for the whole wait, and nothing left behind if it fails.

Every attempt has an owner id of its own, made before it asks. However it ends other than by a
grant (time-out, cancellation, an error, the answer lost), the store is told to forget that owner,
in a step that also hands on a grant which came at the same moment; and the id is never used again.

A waiter sits in the store's queue. It is granted in one of three ways, and each has its deadline:

- the answer to its request: counted from when that was sent;
- a heartbeat, or its own question after a hint: counted from when *that* was sent;
- the wake-up of a hand-over, which costs no question: the grant came after the last heartbeat that
  was answered "waiting" had been sent, so it is good for the claim window from then on. If little is
  left of that, it is confirmed by a renewal first.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from .. import checks
from .._runtime.aio import Signal, here
from ..clock import system_clock
from ..entries import Claim
from ..errors import BackendUnavailable
from ..lifecycle import drift_margin
from ..model import Busy, Gone, Granted, Renewed, Waiting, new_owner
from ..stores._async.contract import OPEN_LIMIT
from .session import LEAST_LIMIT

if TYPE_CHECKING:
    from .lease import Lease
    from .lock import Lock
    from .session import Session

SHORTEST_PAUSE, LONGEST_PAUSE = 0.005, 0.5

_HELD, _BUSY, _LATE, _AGAIN = "held", "busy", "late", "again"


async def obtain(lock: Lock, timeout: float | None, owner: str | None) -> Lease | None:
    """A lease on the lock, held; or None once `timeout` is over.

    `owner`, if it is given, serves for one attempt only.
    """
    if owner is not None:
        checks.owner(owner)
    session = lock._locks._live
    # unasync: aio-only
    if session is not None and session.home is not here():
        session = None
    # unasync: end
    spent = 0.0
    if session is None or session.closed:
        clock = system_clock()
        began = clock.now()
        limit = min(OPEN_LIMIT, max(timeout, LEAST_LIMIT)) if timeout else OPEN_LIMIT
        session = await lock._locks._session(limit)
        spent = clock.now() - began
    if owner is not None:
        session.burn(owner)
    now = session.now
    sent = now()
    started = sent - spent
    give_up = None if timeout is None else started + timeout
    pause = SHORTEST_PAUSE
    queued = False
    while True:
        lease = lock._attempt(session, owner or new_owner(), timeout != 0)
        ticket = lease._ticket
        ticket.until = give_up
        try:
            # Who tries once and does not wait has set no limit to the store.
            deadline = session.deadline_for(sent, give_up) if timeout else sent + session.patience
            answer = await session.backend.acquire(ticket, deadline)
            if isinstance(answer, Granted):
                token, ttl, handed, since = answer
                if handed:
                    queued = True
                    if lease._accept_handed(token, sent):
                        result = _HELD
                    else:
                        lease._beat_sent = sent
                        session.check_open()
                        result = await _ask(session, lease, give_up) or await _wait(
                            session, lease, give_up, sent
                        )
                else:
                    sent = since or sent
                    result = _granted(session, lease, token, ttl, sent, give_up)
            elif isinstance(answer, Busy):
                result = _BUSY
            else:
                queued = True
                lease._waits(answer.since or sent, answer.remaining)
                result = await _wait(session, lease, give_up, sent)
            if result is _HELD:
                if session.listeners:
                    _tell(session, lease, started, queued)
                return lease
            if result is _BUSY or result is _AGAIN:
                lease._abandon()
                session.leave(ticket.owner)
            else:
                queued = True
                await _give_up(session, lease)
        except BaseException as error:
            # Once more, if that came while it was given up: it may not have been done.
            await _give_up(session, lease, silent=isinstance(error, BackendUnavailable))
            if isinstance(error, BackendUnavailable):
                session.check_open()  # then that is why
            if isinstance(error, BackendUnavailable) and error.name is None:
                raise lease._unavailable("could not be acquired", error) from error
            raise
        if give_up is not None and now() >= give_up:
            if queued:
                session.tell("waited", lock.name, ticket.owner, 0, now() - started, "gave up")
            return None
        if owner is not None:
            raise BackendUnavailable(
                f"the place in the queue for {lock.name!r} was lost; ask again, with an owner id "
                "that was never used",
                name=lock.name,
                owner=owner,
            )
        if result is _BUSY:
            # A store without a queue: ask again later, never in step with others.
            moment = now() + pause * (0.5 + os.urandom(1)[0] / 256)
            await Signal(session.clock).wait(moment if give_up is None else min(moment, give_up))
            pause = min(pause * 2, LONGEST_PAUSE)
        sent = now()


async def _give_up(session: Session, lease: Lease, silent: bool = False) -> None:
    """End an attempt of which the store may know something."""
    lease._abandon()
    try:
        await session.clean_up(lease._ticket, silent)
    finally:
        session.leave(lease.owner)


def _granted(
    session: Session, lease: Lease, token: int, ttl: float, sent: float, give_up: float | None
) -> str:
    """The store says that it is granted, in answer to what was sent then."""
    if lease._accept(token, ttl, sent + ttl - drift_margin(ttl)):
        lease._keep(sent)
        return _HELD
    # The answer took so long that it is over: the attempt has to be left.
    session.check_open()
    if give_up is not None:
        return _LATE
    raise BackendUnavailable(
        f"the store took longer to answer than the lease on {lease.name!r} lasts ({lease.ttl:g} s), "
        "so nothing is held; give a longer ttl, or find out why the store is this slow",
        name=lease.name,
        owner=lease.owner,
    )


async def _wait(session: Session, lease: Lease, give_up: float | None, asked: float) -> str:
    ticket = lease._ticket
    clock = session.clock
    # The keeper need not know of those whose turn comes soon.
    unkept_until = asked + lease._beat_again / 2
    while True:
        until = give_up
        if not lease._kept and (until is None or unkept_until < until):
            until = unkept_until
        told = await session.backend.wait(ticket, until)
        session.check_open()
        if lease._offer is not None:
            offer = lease._take_offer()
            return _granted(session, lease, offer.token, offer.ttl, offer.sent, give_up)
        if told is not None and lease._accept_handed(told.token, lease._beat_sent):
            return _HELD
        if lease._out:
            return _AGAIN
        if give_up is not None and clock.now() >= give_up:
            return _LATE
        if not lease._kept and clock.now() >= unkept_until:
            session.keeper.keep(lease, clock.now())  # who asks at once, for many in one call
            continue
        result = await _ask(session, lease, give_up)
        if result is not None:
            return result


async def _ask(session: Session, lease: Lease, give_up: float | None) -> str | None:
    """How do things stand with us? None: still waiting, or no answer."""
    sent = session.clock.now()
    claim = Claim(lease.name, lease.owner, lease.ttl)
    try:
        (outcome,) = await session.backend.renew([claim], session.deadline_for(sent, give_up))
    except BackendUnavailable:
        return None  # the keeper goes on asking
    if isinstance(outcome, Renewed):
        sent = outcome.since or sent
        return _granted(session, lease, outcome.token, outcome.ttl, sent, give_up)
    if isinstance(outcome, Waiting):
        lease._waits(outcome.since or sent, outcome.remaining)
    elif isinstance(outcome, Gone):
        return _AGAIN
    return None


def _tell(session: Session, lease: Lease, started: float, queued: bool) -> None:
    lease._set_alarm()
    duration = session.clock.now() - started
    if queued:
        session.tell("waited", lease.name, lease.owner, lease.token, duration, "granted")
    session.tell("acquired", lease.name, lease.owner, lease.token, duration)
