"""A waiter: an owner in the queue of a lock, until it is granted or given up.

A waiter is granted in one of two ways, and the lease has a deadline in each:

- by a heartbeat, or its own question after a hint: counted from when that was sent;
- by the wake-up of a hand-over, which costs no question: the grant came after the last heartbeat that
  was answered "waiting" had been sent, so it is good for the claim window from then on. If little is
  left of that, it is confirmed by a renewal first.

The keeper sends the heartbeats. Whatever it hears reaches the waiter from another thread, or another
task: `offer` and `out` are set there, and read by the waiter when it has been woken.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ..lifecycle import handed_for
from ..model import Gone, Outcome, Renewed, Waiting
from .usage import Usage

if TYPE_CHECKING:
    from ..stores._async.contract import Ticket
    from .hold import Hold
    from .request import Request
    from .session import Session

SOON = 0.02
"""Seconds after a holder's end at which its waiters ask."""
SILENCE_LIMIT = 10.0
"""Seconds for which a waiter goes on though the store answers nothing: a store that fails over is given
that long, and comes back to a waiter that has lost at most its place."""
LEAST_SILENCES = 4
"""Requests that have to be unanswered in that time."""
CONFIRM_AFTER = 0.05
"""Seconds until a hand-over is confirmed in the background. A lock that is released sooner never needs
it; the claim window is forty times as long."""


class Offer(NamedTuple):
    """A grant that the waiter has not taken yet, in reply to what was sent at `sent`."""

    token: int
    ttl: float
    sent: float


class Waiter:
    """An attempt that was put into the queue."""

    __slots__ = (
        "_hold",
        "_kept",
        "_silences",
        "_silent_since",
        "_ticket",
        "beat_again",
        "beat_sent",
        "ended",
        "offer",
        "out",
        "request",
        "session",
        "unanswered",
    )

    def __init__(
        self, session: Session, request: Request, ticket: Ticket, beat_sent: float
    ) -> None:
        self.session = session
        self.request = request
        self._ticket = ticket
        self.beat_sent = beat_sent
        """When the last request was sent that was answered "waiting"."""
        self.beat_again = session.heartbeat
        """Seconds until the next heartbeat."""
        self.offer: Offer | None = None
        self.out = False
        """The store knows nothing of this owner any more."""
        self.ended = False
        """Granted or given up: what is still heard of it changes nothing."""
        self.unanswered = False
        """The store has been silent for `SILENCE_LIMIT`."""
        self._silences = 0
        self._silent_since = 0.0
        self._kept = False
        # Made while it waits: from the wake-up to the grant every step counts, on cold caches.
        self._hold = request.hold_type(session, request, ticket, Usage(session.mutex))
        session.waiters[ticket.owner] = self

    # Its end.

    def accept(self, token: int, ttl: float, sent: float) -> Hold | None:
        """Returns the lease that was granted in reply to what was sent at `sent`.

        None if that came too late to be of use: the attempt has to be given up.
        """
        hold = self.session.hold(self.request, self._ticket, token, ttl, sent)
        if hold is not None:
            self.end()
        return hold

    def accept_handed(self, token: int) -> Hold | None:
        """Returns the lease that was handed over, by a grant that came after the last heartbeat.

        None if too little is left of the claim window to use it without a renewal.
        """
        session = self.session
        # A store may give less than was asked for: it has said so by then.
        ttl = self._ticket.ttl - self._ticket.terms.delay
        short = ttl < session.claim_window
        lasts, least = handed_for(ttl) if short else session.claim
        now = session.now()
        deadline = self.beat_sent + lasts
        left = deadline - now
        if left <= least:
            return None
        hold = self._hold
        hold._grant(token, ttl, deadline, now)
        hold._confirmed = False
        with session.mutex:
            if session.closed:
                return None
            owner = self._ticket.owner
            session.leases[owner] = hold
            session.tickets.pop(owner, None)
        self.end()
        session.keeper.keep(hold, now + min(CONFIRM_AFTER, left / 4))
        return hold

    def end(self) -> None:
        """Ends the waiting: granted, or given up."""
        self.ended = True
        if self._kept:
            self.session.keeper.forget(self)
        self.session.waiters.pop(self._ticket.owner, None)

    # What is heard of it while it waits.

    def waits(self, sent: float, remaining: float) -> None:
        """Notes that a request sent at `sent` was answered "waiting".

        The present holders have `remaining` seconds at the most.
        """
        if not self.ended:
            self._silences = 0
            self.beat_sent = sent
            # A holder that lets its lease run out wakes nobody: ask when its time is over.
            self.beat_again = min(self.session.heartbeat, max(remaining, 0.0) + SOON)

    def take_offer(self) -> Offer:
        with self.session.mutex:
            offer, self.offer = self.offer, None
        assert offer is not None
        return offer

    def _hear(self, outcome: Outcome, sent: float, detail: str) -> float | None:
        """Takes in the outcome of a heartbeat sent at `sent`; returns when the next one is due."""
        if isinstance(outcome, Renewed):
            self._ticket.slot = outcome.slot
            self.offer = Offer(outcome.token, outcome.ttl, outcome.since or sent)
            self._ticket.tell()
            return self._due(outcome.since or sent)
        if isinstance(outcome, Waiting):
            self.waits(outcome.since or sent, outcome.remaining)
            return self._due(outcome.since or sent)
        if isinstance(outcome, Gone):
            self.out = True
            self._ticket.tell()
            return None
        self.note_silence()
        return self.session.keeper.soon(self._interval())

    def note_silence(self) -> None:
        """Notes that a request was not answered, and has the waiter told if that goes on for long.

        It counts from the first failure that was heard, and takes several: time that passed because we
        were frozen ourselves is no silence of the store.
        """
        now = self.session.now()
        if not self._silences:
            self._silent_since = now
        self._silences += 1
        if self._silences >= LEAST_SILENCES and now >= self._silent_since + SILENCE_LIMIT:
            self.unanswered = True
            self._ticket.tell()

    @property
    def forsaken(self) -> bool:
        """Whether the store has left so many requests unanswered that nobody knows who is first."""
        return self._silences >= LEAST_SILENCES

    # What the keeper asks.

    @property
    def ttl(self) -> float:
        return self._ticket.ttl

    def _expire_if_due(self, now: float) -> bool:
        return self.ended

    def _wants_renewal(self) -> bool:
        return True

    def _interval(self) -> float:
        return self.beat_again

    def _due(self, sent: float) -> float:
        return sent + self.beat_again
