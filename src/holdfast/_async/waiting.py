"""From asking to holding: one deadline for the whole wait, and nothing left behind if it fails.

Every attempt has an owner id of its own, made before it asks. However it ends other than by a
grant (time-out, cancellation, an error, the answer lost), the store is told to forget that owner,
in a step that also hands on a grant which came at the same moment; and the id is never used again.

A waiter sits in the store's queue; `waiter` says in which ways it is granted. A store without a queue
answers `Busy`, and is asked again by a new attempt after a pause.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final, Literal

from .. import checks, forks
from .._runtime.aio import Signal, check_surroundings, here
from ..clock import system_clock
from ..entries import Claim
from ..errors import BackendUnavailable, LockError
from ..model import Busy, Gone, Granted, Queued, Renewed, Waiting, new_owner
from ..refusals import unavailable
from ..stores._async.contract import OPEN_LIMIT, Ticket
from .opening import LEAST_REST
from .session import LEAST_LIMIT
from .waiter import SILENCE_LIMIT, Waiter

if TYPE_CHECKING:
    from .hold import Hold
    from .lease import Lease
    from .opening import Opening
    from .request import Request
    from .session import Session

SHORTEST_PAUSE, LONGEST_PAUSE = 0.005, 0.5
LATENESS = 0.5
"""Seconds by which a grant may come after the time that its request was given. A later one is given
back: its caller counts on an answer by then."""
SILENT_AFTER = 1.5
"""Heartbeats after which a waiter that was not answered meanwhile takes the store for silent."""


BUSY: Final = "busy"
LATE: Final = "late"
PLACE_LOST: Final = "place lost"
Ending = Literal["busy", "late", "place lost"]
"""The reason for which an attempt ended without a lease: others hold the lock, and the store keeps no
queue; its time is over, and the store may still know of it; the store knows nothing of it any more."""


async def obtain(
    opening: Opening,
    request: Request,
    timeout: float | None,
    owner: str | None,
    *,
    part: bool = False,
) -> Lease | None:
    """Returns a lease that is held; or None once `timeout` is over.

    `owner`, if it is given, serves for one attempt only. `part`: it is one of several locks, whose
    caller tells the listeners of a time-out.
    """
    if owner is not None:
        checks.owner(owner)
    session = opening.live
    spent = 0.0
    if (
        session is None
        or session.closed
        or session.generation != forks.current()  # it is the parent's
        # unasync: aio-only
        or session.home is not here()
        # unasync: end
    ):
        session, spent = await _opened(opening, request, timeout)
    if owner is not None:
        session.burn(owner)
    clock = session.now  # by way of a name, which is quicker for what is no method
    sent = clock()
    started = asked = sent - spent  # opening the store is part of the time that it is given
    give_up = None if timeout is None else started + timeout
    pause = SHORTEST_PAUSE
    queued = False
    while True:
        ticket = session.begin(request, owner or new_owner(session.id), timeout != 0, give_up)
        failure: LockError | None = None
        waiter: Waiter | None = None
        try:
            # A caller that tries once and does not wait has set no limit to the store.
            deadline = session.deadline_for(asked, give_up) if timeout else asked + session.patience
            if asked != sent:
                deadline = max(deadline, sent + LEAST_REST)
            answer = await session.backend.acquire(ticket, deadline)
            result: Hold | Ending
            if isinstance(answer, Granted) and not answer.handed:
                since = answer.since or sent
                ticket.slot = answer.slot
                hold = session.hold(request, ticket, answer.token, answer.ttl, since)
                result = hold or _too_late(session, ticket)
            elif isinstance(answer, Busy):
                result = BUSY
            else:
                queued = True
                waiter = Waiter(session, request, ticket, answer.since or sent)
                result = await _wait(waiter, answer)
            if give_up and timeout and session.now() > max(give_up, deadline) + LATENESS:
                result = LATE  # also a lease
            if not isinstance(result, str):
                forks.refuse_inherited(session.generation)  # what was granted is the parent's
                if session.listeners:
                    tell_granted(session, result, started, queued)
                lease_type = request.lease_type
                return lease_type(result, opening)
            if result == LATE:
                queued = True
                failure = await session.give_up(ticket)
            else:
                session.leave(ticket.owner)
        except BaseException as error:
            # Once more, if that came while it was given up: it may not have been done.
            try:
                await session.give_up(ticket, silent=isinstance(error, BackendUnavailable))
            except BaseException:  # another interrupt, perhaps at the very entry of it
                session.give_up_later(ticket)
                raise
            if session.listeners:
                tell_ended(session, ticket.name, ticket.owner, started, error)
            if isinstance(error, BackendUnavailable):
                session.check_open()  # then that is why
                if error.name is None:
                    what = f"{ticket.name!r} could not be acquired"
                    raise unavailable(what, error, ticket.name, ticket.owner) from error
            raise
        now = session.now()
        if give_up is not None and now >= give_up:
            if queued:
                session.tell("waited", request.name, ticket.owner, 0, now - started, "gave up")
            beat = waiter.beat_sent if waiter is not None else give_up
            silent = give_up - beat > SILENT_AFTER * session.heartbeat
            if silent and isinstance(failure, BackendUnavailable):
                # It was silent before the time-out, too: nobody knows whether others still hold it.
                if session.listeners:
                    tell_ended(session, ticket.name, ticket.owner, started, failure)
                what = f"{ticket.name!r} could not be acquired until the time-out"
                raise unavailable(what, failure, ticket.name, ticket.owner) from failure
            if session.listeners and not part:
                tell_timed_out(session, request.name, ticket.owner, started, timeout)
            return None
        if owner is not None:
            raise BackendUnavailable(
                f"the place in the queue for {request.name!r} was lost; ask again, with an owner id "
                "that was never used",
                name=request.name,
                owner=owner,
            )
        if result == BUSY:
            # Ask again later, never in step with others.
            moment = now + pause * (0.5 + os.urandom(1)[0] / 256)
            await Signal(session.clock).wait(moment if give_up is None else min(moment, give_up))
            pause = min(pause * 2, LONGEST_PAUSE)
        asked = sent = session.now()


async def _opened(
    opening: Opening, request: Request, timeout: float | None
) -> tuple[Session, float]:
    """Returns the session, and the seconds that it took to open it."""
    clock = system_clock()
    began = clock.now()
    limit = min(OPEN_LIMIT, max(timeout, LEAST_LIMIT)) if timeout else OPEN_LIMIT
    try:
        session = await opening.session(limit)
    except BackendUnavailable as error:
        opening.tell_failed(request.name, clock.now() - began, error)
        raise unavailable(f"{request.name!r} could not be acquired", error, request.name) from error
    return session, clock.now() - began


def _too_late(session: Session, ticket: Ticket) -> Ending:
    """Returns why a grant was of no use: the answer took so long that the lease is over."""
    session.check_open()
    if ticket.until is not None:
        return LATE
    raise BackendUnavailable(
        f"the store took longer to answer than the lease on {ticket.name!r} lasts "
        f"({ticket.ttl:g} s), so nothing is held; give a longer ttl, or find out why the store is "
        "this slow",
        name=ticket.name,
        owner=ticket.owner,
    )


async def _wait(waiter: Waiter, answer: Granted | Queued) -> Hold | Ending:
    """Waits in the queue until the lock is granted, or the attempt has ended.

    `answer` is the store's: perhaps it has handed the lock over already.
    """
    result: Hold | Ending | None
    if isinstance(answer, Granted):
        waiter._ticket.slot = answer.slot
        result = waiter.accept_handed(answer.token)
        if result is None:
            waiter.session.check_open()
            result = await _ask(waiter)
        if result is not None:
            return result
    else:
        waiter.waits(waiter.beat_sent, answer.remaining)
    check_surroundings()  # they may have been changed since the store was opened
    session, ticket = waiter.session, waiter._ticket
    give_up = ticket.until
    # Its first heartbeat goes with those of the others, and not at a time of its own.
    session.keeper.keep(waiter, waiter._due(waiter.beat_sent))
    while True:
        grant = await session.backend.wait(ticket, give_up)
        session.check_open()
        if waiter.offer is not None:
            return waiter.accept(*waiter.take_offer()) or _too_late(session, ticket)
        if grant is not None:
            ticket.slot = grant.slot
            hold = waiter.accept_handed(grant.token)
            if hold is not None:
                return hold
        if waiter.out:
            return PLACE_LOST
        if waiter.unanswered:
            raise BackendUnavailable(
                f"the store has not answered for {SILENCE_LIMIT:g} s, so its queue was left"
            )
        now = session.now()
        if give_up is not None and now >= give_up:
            if waiter.forsaken:
                raise BackendUnavailable(
                    "the store has not answered any more while it was waited for, until the time-out"
                )
            return LATE
        result = await _ask(waiter)
        if result is not None:
            return result


async def _ask(waiter: Waiter) -> Hold | Ending | None:
    """Asks the store about the waiter. None: it still waits, or there was no answer."""
    session, ticket = waiter.session, waiter._ticket
    sent = session.now()
    claim = Claim(ticket.terms.name, ticket.owner, ticket.ttl)
    try:
        (outcome,) = await session.backend.renew([claim], session.deadline_for(sent, ticket.until))
    except BackendUnavailable:
        waiter.note_silence()
        return None  # the keeper goes on asking
    if isinstance(outcome, Renewed):
        ticket.slot = outcome.slot
        hold = waiter.accept(outcome.token, outcome.ttl, outcome.since or sent)
        return hold or _too_late(session, ticket)
    if isinstance(outcome, Waiting):
        waiter.waits(outcome.since or sent, outcome.remaining)
    elif isinstance(outcome, Gone):
        return PLACE_LOST
    return None


def tell_granted(session: Session, hold: Hold, started: float, queued: bool) -> None:
    """Tells the listeners that the lock was granted, since when it was asked for, and how."""
    hold._set_alarm()
    duration = session.clock.now() - started
    if queued:
        session.tell("waited", hold.name, hold.owner, hold.token, duration, "granted")
    detail = "waited" if queued else ""
    session.tell("acquired", hold.name, hold.owner, hold.token, duration, detail)


def tell_timed_out(
    session: Session, name: str, owner: str, started: float, timeout: float | None
) -> None:
    """Tells the listeners that the lock was not granted in the time that the caller gave it."""
    detail = "gave up" if timeout else "busy"
    session.tell("timed_out", name, owner, 0, session.now() - started, detail)


def tell_ended(
    session: Session, name: str, owner: str, started: float, error: BaseException
) -> None:
    """Tells the listeners that an attempt ended by an error, or was interrupted."""
    kind = "failed" if isinstance(error, LockError) else "interrupted"
    detail = str(error) if isinstance(error, LockError) else type(error).__name__
    session.tell(kind, name, owner, 0, session.now() - started, detail)
