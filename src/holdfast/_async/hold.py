"""The engine's side of a lease: its state, its deadline, and all that can happen to it.

The deadline is counted from the *sending* of the last answered request that renewed it at the store,
less a margin for drift, so it ends for us before it can end there. Every change of state goes through
the table in `lifecycle`, under the session's mutex; whoever has to be told is told after that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from .. import forks
from .._runtime.aio import Interrupt, Signal
from ..errors import BackendUnavailable, LeaseLost, LockNotOwned
from ..events import report
from ..lifecycle import (
    ACQUIRING,
    DOUBTED,
    ENDED,
    FREED,
    GRANTED,
    HELD,
    LOST,
    RELEASED,
    RENEWED,
    UNCERTAIN,
    after,
    drift_margin,
    handed_for,
)
from ..model import Outcome, Renewed, Waiting

if TYPE_CHECKING:
    from ..stores._async.contract import Ticket
    from .session import Session

HOLDING = (HELD, UNCERTAIN)
_WHEN_GRANTED = after(ACQUIRING, GRANTED)
_WHEN_FREED = after(HELD, FREED)
SOON = 0.02
"""Seconds after a holder's end at which its waiters ask."""


class Offer(NamedTuple):
    """A grant that the waiting attempt has not taken yet: in answer to what was sent then."""

    token: int
    ttl: float
    sent: float


class Hold:
    """One attempt at a lock, and what becomes of it."""

    __slots__ = (
        "__weakref__",
        "_alarmed",
        "_beat_again",
        "_beat_sent",
        "_callbacks",
        "_confirmed",
        "_deadline",
        "_end_at",
        "_freeing",
        "_granted_at",
        "_interrupt",
        "_kept",
        "_lost",
        "_offer",
        "_out",
        "_protects",
        "_release_doubtful",
        "_renewing",
        "_session",
        "_state",
        "_ticket",
        "_watchers",
        "token",
        "ttl",
    )

    _protects: object
    """The fence at the resource; set only where the lock was given one."""

    def __init__(
        self, session: Session, ticket: Ticket, renewing: bool, end_at: float | None
    ) -> None:
        self.token = 0
        """The fencing token, greater than that of every grant of this lock that ended before."""
        self.ttl = ticket.ttl
        """The seconds that the store gives it from each renewal on."""
        self._session = session
        self._ticket = ticket
        self._state = ACQUIRING
        self._deadline = 0.0
        self._end_at = end_at
        """For `max_hold`: a length until it is granted, then a time."""
        self._renewing = renewing
        self._kept = False
        self._confirmed = True
        """False from a hand-over until the first renewal: the store gave it for a short time only."""
        self._freeing = False
        """It ended for us, and the keeper has still to free it at the store."""
        self._out = False
        """While waiting: the store knows nothing of this attempt any more."""
        self._beat_sent = 0.0
        self._beat_again = session.heartbeat
        self._offer: Offer | None = None
        self._granted_at = 0.0
        self._release_doubtful = False
        self._alarmed = False
        self._interrupt: Interrupt | None = None
        self._lost: tuple[float, str] | None = None
        self._callbacks: list[Callable[[Any], object]] | None = None
        self._watchers: list[Signal] | None = None

    @property
    def name(self) -> str:
        return self._ticket.terms.name

    @property
    def owner(self) -> str:
        """Who holds it: one unique value per acquisition."""
        return self._ticket.owner

    def _accept(self, token: int, ttl: float, deadline: float) -> bool:
        """The attempt was granted; False if that came too late to be of use."""
        session = self._session
        now = session.now()
        if self._end_at is not None:
            deadline = min(deadline, now + self._end_at)
        with session.mutex:
            if deadline <= now or self._state is not ACQUIRING or session.closed:
                return False
            self._state = _WHEN_GRANTED
            self.token = token
            self.ttl = self._ticket.ttl = ttl
            self._deadline = deadline
            self._granted_at = now
            if self._end_at is not None:
                self._end_at += now
        return True

    def _accept_handed(self, token: int, beat_sent: float) -> bool:
        """The lock was handed to us, after what was sent then was answered "waiting".

        False if too little is left of the claim window to use it so.
        """
        session = self._session
        # A store may give less than was asked for: it has said so by then.
        ttl = self._ticket.ttl
        short = ttl < session.claim_window
        lasts, least = handed_for(ttl) if short else session.claim
        clock = session.now
        now = clock()
        deadline = beat_sent + lasts
        if deadline - now <= least:
            return False
        with session.mutex:
            if self._state is not ACQUIRING or session.closed:
                return False
            self._state = _WHEN_GRANTED
            self.token = token
            self.ttl = ttl
            self._granted_at = now
            self._confirmed = False
            if self._end_at is not None:
                self._end_at += now
                deadline = min(deadline, self._end_at)
            self._deadline = deadline
        if short:
            session.keeper.keep(self, now + least / 4)
        else:
            session.keeper.keep_soon(self, now)
        return True

    def _abandon(self) -> None:
        """The attempt is given up; what is left of it on the store has still to be cleaned up."""
        self._session.keeper.forget(self)
        with self._session.mutex:
            self._state = after(self._state, FREED)

    def _take_offer(self) -> Offer:
        with self._session.mutex:
            offer, self._offer = self._offer, None
        assert offer is not None
        return offer

    def _interval(self) -> float:
        return self._beat_again if self._state == ACQUIRING else self.ttl / 3

    def _wants_renewal(self) -> bool:
        return self._renewing or not self._confirmed or self._state == ACQUIRING

    def _keep(self, sent: float) -> None:
        """Renew it from now on, where it is to be renewed at all."""
        due: float | None
        if self._renewing and self._end_at is None and self._state == HELD and self._confirmed:
            due = sent + self.ttl / 3  # as below; nearly all leases are such
        else:
            due = self._due(sent)
        if due is not None:
            self._session.keeper.keep(self, due)
        elif self._kept:
            self._session.keeper.forget(self)

    def _due(self, sent: float) -> float | None:
        """When the keeper has to look at it again, after a request sent then was answered."""
        if self._wants_renewal():
            due = sent + self._interval()
            if self._state == ACQUIRING or self._end_at is None:
                return due
            return min(due, self._end_at)
        return self._end_at

    def _renewed(self, outcome: Renewed, sent: float) -> None:
        session = self._session
        deadline = sent + outcome.ttl - drift_margin(outcome.ttl)
        with session.mutex:
            waiting = self._state == ACQUIRING
            if waiting:
                self._offer = Offer(outcome.token, outcome.ttl, sent)
            else:
                before = self._state
                self._state = after(before, RENEWED)
                if self._state != HELD:
                    return
                if self._end_at is not None:
                    deadline = min(deadline, self._end_at)
                self._deadline = max(self._deadline, deadline)
                self._confirmed = True
        if waiting:
            self._ticket.tell()
        elif session.listeners:
            now = session.clock.now()
            session.tell("renewed", self.name, self.owner, self.token, now - sent)

    def _waits(self, sent: float, remaining: float) -> None:
        """A request sent then was answered "waiting"; the holders have that long at the most."""
        if self._state == ACQUIRING:
            self._beat_sent = sent
            # A holder that lets its lease run out wakes nobody: ask when its time is over.
            self._beat_again = min(self._session.heartbeat, max(remaining, 0.0) + SOON)

    def _waiting(self) -> bool:
        """Whether it is in the queue, as far as we know."""
        return self._state == ACQUIRING and self._beat_sent > 0

    def _gone(self) -> None:
        """The store knows nothing of it."""
        if self._state == ACQUIRING:
            self._out = True
            self._ticket.tell()
        else:
            self._end("the store says that it has ended")

    def _refuted(self, outcome: Outcome, sent: float) -> bool:
        """Whether the answer to what was sent then shows that the store has forgotten the grant.

        It was restored from an older state, in which this one was waiting. Then it is lost; what is
        left of it there, a place or even another grant, is given back.
        """
        if self._state not in HOLDING:
            return False
        if isinstance(outcome, Renewed):
            forgotten = outcome.token != self.token
        else:  # a heartbeat that crossed the hand-over may well say so
            forgotten = isinstance(outcome, Waiting) and sent > self._granted_at
        if forgotten:
            self._freeing = True
            self._end("the store has forgotten it")
        return forgotten

    def _doubted(self, detail: str) -> None:
        with self._session.mutex:
            before = self._state
            self._state = after(before, DOUBTED)
            changed = self._state != before
        if changed:
            self._session.tell("uncertain", self.name, self.owner, self.token, 0.0, detail)

    def _over(self, now: float) -> bool:
        """Whether its deadline has passed; then it is lost from now on."""
        if self._state in HOLDING and now >= self._deadline:
            if self._end_at is not None and now >= self._end_at:
                self._freeing = True
                self._end("its max_hold is over")
            else:
                self._end("its end came before a renewal was answered")
        return self._state in (LOST, RELEASED)

    def _look(self) -> None:
        if self._state in HOLDING and self._session.generation == forks.generation:
            self._over(self._session.clock.now())

    def _end(self, reason: str) -> None:
        session = self._session
        with session.mutex:
            before = self._state
            self._state = after(before, ENDED)
            if self._state == before:
                return
            self._lost = (session.clock.wall(), reason)
            session.leases.pop(self.owner, None)
            callbacks, self._callbacks = self._callbacks or [], None
            watchers = list(self._watchers or ())
            interrupt = self._interrupt
        self._quiet()
        if session.listeners:
            held = session.clock.now() - self._granted_at
            session.tell("lost", self.name, self.owner, self.token, held, reason)
        for signal in watchers:
            signal.set()
        if interrupt is not None:
            interrupt.fire()
        for callback in callbacks:
            self._call(callback)

    def _freed(self, freed: bool) -> bool:
        """The store has been told; `freed` if that ended a lease which had not ended before."""
        if not freed:
            self._end("the store says that it had ended before it was released")
            return False
        session = self._session
        with session.mutex:
            before = self._state
            self._state = _WHEN_FREED if before is HELD else after(before, FREED)
            if self._state is before:
                return False
            session.leases.pop(self._ticket.owner, None)
        if self._alarmed or self._watchers or session.listeners:
            self._tell_freed()
        return True

    def _tell_freed(self) -> None:
        session = self._session
        if self._alarmed:
            session.alarm.cancel(self._ring)
        with session.mutex:
            watchers = list(self._watchers or ())
        for signal in watchers:
            signal.set()
        if session.listeners:
            held = session.clock.now() - self._granted_at
            session.tell("released", self.name, self.owner, self.token, held)

    def _set_alarm(self) -> None:
        """From now on somebody wants to be told of the loss, whatever the store does."""
        if not self._alarmed and self._state in HOLDING:
            self._alarmed = True
            self._session.alarm.at(self._deadline, self._ring)

    def _ring(self) -> None:
        if not self._over(self._session.clock.now()):
            self._session.alarm.at(self._deadline, self._ring)

    def _quiet(self) -> None:
        if self._freeing:
            self._session.keeper.keep(self, self._session.clock.now())
        elif self._kept:
            self._session.keeper.forget(self)
        if self._alarmed:
            self._session.alarm.cancel(self._ring)

    def _call(self, callback: Callable[[Any], object]) -> None:
        try:
            callback(self)
        except BaseException as error:  # also one that exits: it must not take the keeper along
            report(f"an on_lost callback of the lease on {self.name!r} failed", error)

    def _loss(self) -> LeaseLost:
        at, reason = self._lost if self._lost is not None else (None, None)
        if self._state == RELEASED:
            reason = "it was released"
        return LeaseLost(
            f"the lease on {self.name!r} (token {self.token}) is no longer held: {reason}; stop "
            "the work it protected, and acquire the lock again before going on",
            name=self.name,
            owner=self.owner,
            token=self.token,
            lost_at=at,
            reason=reason,
        )

    def _unavailable(self, what: str, error: BackendUnavailable) -> BackendUnavailable:
        """The backend's error, which knows of servers, told about this lock."""
        return BackendUnavailable(
            f"{self.name!r} {what}: {error}",
            name=self.name,
            owner=self.owner,
            token=self.token or None,
        )

    def _refuse_fork(self) -> None:
        if self._session.generation != forks.generation:
            raise LockNotOwned(
                f"the lease on {self.name!r} belongs to the parent of this forked process, which "
                "goes on holding it; acquire the lock anew in the child",
                name=self.name,
                owner=self.owner,
                token=self.token,
            )
