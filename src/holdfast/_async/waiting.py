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
from collections.abc import Callable
from typing import TYPE_CHECKING

from .._runtime.aio import Signal
from ..entries import Claim
from ..errors import BackendUnavailable
from ..lifecycle import drift_margin
from ..model import Busy, Gone, Granted, Renewed, Waiting
from .lease import Lease

if TYPE_CHECKING:
    from .session import Session

CONFIRM_AFTER = 0.02
"""Seconds until a hand-over is confirmed in the background. A lock that is given back sooner never
needs it; the claim window is a hundred times as long."""
ENOUGH_OF_A_CLAIM = 0.25
"""The part of a claim window that must be left for a hand-over to be used unconfirmed."""
SHORTEST_PAUSE, LONGEST_PAUSE = 0.005, 0.5

_HELD, _BUSY, _LATE, _AGAIN = "held", "busy", "late", "again"


async def obtain(
    session: Session, make: Callable[[], Lease], timeout: float | None
) -> Lease | None:
    """A lease from `make`, held; or None once `timeout` is over."""
    session.begin_attempt()
    try:
        return await _obtain(session, make, timeout)
    finally:
        session.end_attempt()


async def _obtain(
    session: Session, make: Callable[[], Lease], timeout: float | None
) -> Lease | None:
    clock = session.clock
    started = clock.now()
    give_up = None if timeout is None else started + timeout
    pause = SHORTEST_PAUSE
    queued = False
    while True:
        lease = make()
        try:
            result = await _attempt(session, lease, give_up)
            queued = queued or result is _LATE or lease._beat_sent > 0
            if result is _HELD:
                _tell(session, lease, started, queued)
                return lease
        except BaseException:
            lease._abandon()
            await session.clean_up(lease._ticket)
            raise
        lease._abandon()
        if result is _LATE:
            await session.clean_up(lease._ticket)
        if give_up is not None and clock.now() >= give_up:
            if queued:
                waited = clock.now() - started
                session.tell("waited", lease.name, lease.owner, 0, waited, "gave up")
            return None
        if result is _BUSY:
            # A store without a queue: ask again later, never in step with others.
            moment = clock.now() + pause * (0.5 + os.urandom(1)[0] / 256)
            await Signal(clock).wait(moment if give_up is None else min(moment, give_up))
            pause = min(pause * 2, LONGEST_PAUSE)


async def _attempt(session: Session, lease: Lease, give_up: float | None) -> str:
    ticket = lease._ticket
    sent = session.clock.now()
    answer = await session.backend.acquire(ticket, session.by())
    if isinstance(answer, Granted):
        sent = answer.since or sent
        if not lease._accept(answer.token, answer.ttl, _deadline(sent, answer.ttl)):
            return _too_late(session, lease, give_up)
        _keep(session, lease, sent)
        return _HELD
    if isinstance(answer, Busy):
        return _BUSY
    sent = answer.since or sent
    lease._waits(sent, answer.remaining)
    _keep(session, lease, sent)
    return await _wait(session, lease, give_up)


async def _wait(session: Session, lease: Lease, give_up: float | None) -> str:
    ticket = lease._ticket
    clock = session.clock
    while True:
        told = await session.backend.wait(ticket, give_up)
        session.check_open()
        offer = lease._take_offer()
        if offer is not None:
            if lease._accept(offer.token, offer.ttl, offer.deadline):
                _keep(session, lease, offer.sent)
                return _HELD
            return _too_late(session, lease, give_up)
        if told is not None:
            window = min(session.claim_window, ticket.ttl)
            deadline = _deadline(lease._beat_sent, window)
            if deadline - clock.now() > window * ENOUGH_OF_A_CLAIM and lease._accept(
                told.token, ticket.ttl, deadline, handed=True
            ):
                session.keeper.keep_soon(lease, clock.now() + CONFIRM_AFTER)
                return _HELD
        if lease._out:
            return _AGAIN
        if give_up is not None and clock.now() >= give_up:
            return _LATE
        result = await _ask(session, lease, give_up)
        if result is not None:
            return result


async def _ask(session: Session, lease: Lease, give_up: float | None) -> str | None:
    """How do things stand with us? None: still waiting, or no answer."""
    sent = session.clock.now()
    claim = Claim(lease.name, lease.owner, lease.ttl)
    try:
        (outcome,) = await session.backend.renew([claim], session.by())
    except BackendUnavailable:
        return None  # the keeper goes on asking
    if isinstance(outcome, Renewed):
        sent = outcome.since or sent
        if not lease._accept(outcome.token, outcome.ttl, _deadline(sent, outcome.ttl)):
            return _too_late(session, lease, give_up)
        _keep(session, lease, sent)
        return _HELD
    if isinstance(outcome, Waiting):
        lease._waits(outcome.since or sent, outcome.remaining)
    elif isinstance(outcome, Gone):
        return _AGAIN
    return None


def _keep(session: Session, lease: Lease, sent: float) -> None:
    """Renew it from now on, where it is to be renewed at all."""
    due = lease._due(sent)
    if due is not None:
        session.keeper.keep(lease, due)
    elif lease._kept:
        session.keeper.forget(lease)


def _too_late(session: Session, lease: Lease, give_up: float | None) -> str:
    """It was granted, but the answer took so long that it is over: the attempt has to be left."""
    session.check_open()
    if give_up is not None:
        return _LATE
    raise BackendUnavailable(
        f"the store took longer to answer than the lease on {lease.name!r} lasts ({lease.ttl:g} s), "
        "so nothing is held; give a longer ttl, or find out why the store is this slow",
        name=lease.name,
        owner=lease.owner,
    )


def _deadline(sent: float, ttl: float) -> float:
    return sent + ttl - drift_margin(ttl)


def _tell(session: Session, lease: Lease, started: float, queued: bool) -> None:
    if session.listeners:
        lease._set_alarm()
        duration = session.clock.now() - started
        if queued:
            session.tell("waited", lease.name, lease.owner, lease.token, duration, "granted")
        session.tell("acquired", lease.name, lease.owner, lease.token, duration)
