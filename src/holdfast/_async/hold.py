"""The engine's side of a lease: its state, its deadline, and all that can happen to it.

The session and its keeper hold it; users have the `Lease`, which shows it to them. So the engine can
tell when nobody has the lease any more.

However a lease ends other than by its holder's release (its deadline, `max_hold`, `close`, a store that
has forgotten it), the order is the same: tell the holder; wait for the end of the body of `with`, while
the store keeps the lease; free it there.

The deadline is counted from the *sending* of the last answered request that renewed the lease at the
store, less a margin for drift, so it ends for us before it can end there. Every change of state goes
through the table in `lifecycle`, under the session's mutex; listeners and callbacks are told after it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from weakref import ref

from .. import forks
from .._runtime.aio import Signal
from ..errors import BackendUnavailable, LeaseLost, LockError
from ..lifecycle import (
    DOUBTED,
    ENDED,
    FREED,
    HELD,
    LOST,
    RELEASED,
    RENEWED,
    UNCERTAIN,
    after,
    drift_margin,
)
from ..model import Gone, Outcome, Renewed, Waiting
from ..refusals import lease_lost, of_the_parent, unavailable
from .telling import tell_freed, tell_lost
from .usage import Usage

if TYPE_CHECKING:
    from ..stores._async.contract import Ticket
    from .lease import Lease
    from .opening import Opening
    from .request import Request
    from .session import Session

HOLDING = (HELD, UNCERTAIN)


class Hold:
    """A lock that was granted to us, and what becomes of it."""

    # Most leases are released before anything has happened to them: these are set when it does.
    _kept = False
    """Whether the keeper renews the lease; False again as soon as it is being released."""
    _confirmed = True
    """Whether the store gave it for its whole TTL; after a hand-over, by the first renewal."""
    _freeing = False
    """Whether the lease ended for us, and has still to be freed at the store."""
    _releases = 0
    """The releases that were sent. It may be over since the first; a "not yours" may follow another."""
    _alarmed = False
    """Whether the alarm is set for its deadline."""
    _end_at: float | None = None
    """The end of `max_hold`."""
    _at_store_until = 0.0
    """The deadline without `max_hold`, where there is one."""
    _lost: tuple[float, str] | None = None
    """The moment of its loss, in seconds since the epoch, and the reason."""
    _lost_told = False
    """Whether the listeners were told of its loss."""
    _untold = False
    """Whether it is lost, and not everybody has been told."""
    _teller: object = None
    """The task or thread that tells of its loss."""
    _calling_back = False
    """Whether callbacks are being told of its loss."""
    _detaching: object = None
    """The task or thread that is detaching it at the store."""
    _detached_in_doubt = False
    """Whether the store may have detached it for nobody, its answer lost or not waited for."""
    _shared = False
    """Whether a writer has become a reader."""
    _value: str | None = None
    """The value that a leader has given itself since it was elected."""
    _callbacks: list[tuple[Callable[[Any], object], ref[Lease], Opening]] | None = None
    """The callbacks of `on_lost`, each with the lease to call it with: only users keep that."""
    _watchers: list[Signal] | None = None
    """The signals of those who wait for its loss."""

    def __init__(self, session: Session, request: Request, ticket: Ticket, usage: Usage) -> None:
        self._session = session
        self._request = request
        self._ticket = ticket
        self._state = HELD
        self._usage = usage

    def _grant(self, token: int, ttl: float, deadline: float, now: float) -> None:
        """Fills in what the store granted; before that, nobody sees the lease."""
        self.token = token
        """The fencing token, greater than that of every grant of this lock that ended before."""
        self.ttl = ttl
        """The seconds that the store gives it from each renewal on."""
        self._granted_at = now
        max_hold = self._request.options.max_hold
        if max_hold is not None:
            self._end_at = now + max_hold
            self._at_store_until = deadline
            deadline = min(deadline, self._end_at)
        self._deadline = deadline

    @property
    def name(self) -> str:
        return self._ticket.terms.name

    @property
    def owner(self) -> str:
        """The id of this one acquisition."""
        return self._ticket.owner

    # Renewals.

    def _wants_renewal(self) -> bool:
        return self._ticket.terms.renew or not self._confirmed

    def _interval(self) -> float:
        return self.ttl / 3

    def _due(self, sent: float) -> float | None:
        """Returns when the keeper has to see to it, after a request sent at `sent` was answered."""
        end = self._end_at
        if not (self._ticket.terms.renew or not self._confirmed):
            return end
        due = sent + self.ttl / 3
        return due if end is None else min(due, end)

    def _hear(self, outcome: Outcome, sent: float, detail: str) -> float | None:
        """Takes in the outcome of a renewal sent at `sent`; returns when the next one is due."""
        if self._refuted(outcome):
            return None
        if isinstance(outcome, Renewed):
            self._renewed(outcome.ttl, outcome.since or sent)
            return self._due(outcome.since or sent)
        if isinstance(outcome, Gone):
            self._end("the store says that it has ended", recalled=self._detached_in_doubt)
            return None
        self._doubt(detail)
        return self._session.keeper.soon(self._interval())

    def _renewed(self, ttl: float, sent: float) -> None:
        session = self._session
        deadline = sent + ttl - self._ticket.terms.delay - drift_margin(ttl)
        detail = self._lateness() if session.listeners else ""
        with session.mutex:
            self._state = after(self._state, RENEWED)
            if self._state != HELD:
                return
            if self._end_at is not None:
                self._at_store_until = max(self._at_store_until, deadline)
                deadline = min(deadline, self._end_at)
            self._deadline = max(self._deadline, deadline)
            self._confirmed = True
        if session.listeners:
            now = session.clock.now()
            session.tell("renewed", self.name, self.owner, self.token, now - sent, detail)

    def _lateness(self) -> str:
        """Returns `late` if a renewal that was answered now came when half of the TTL was over."""
        if not self._ticket.terms.renew or not self._confirmed:
            return ""  # it is renewed by its user; or was handed over, for less than its TTL
        end = self._deadline if self._end_at is None else self._at_store_until
        return "late" if end - self._session.now() < self.ttl / 2 else ""

    def _refuted(self, outcome: Outcome) -> bool:
        """Tells whether the store has forgotten the grant, and ends the lease then.

        The store was restored from an older state, in which this owner was waiting. What is left of
        the owner there, a place in the queue or even another grant, is given back.
        """
        if self._state not in HOLDING:
            return False
        if isinstance(outcome, Renewed):
            forgotten = outcome.token != self.token
        else:
            forgotten = isinstance(outcome, Waiting)
        if forgotten:
            self._recall("the store has forgotten it")
        return forgotten

    def _doubt(self, detail: str) -> None:
        """Notes that the store did not answer for it."""
        with self._session.mutex:
            before = self._state
            self._state = after(before, DOUBTED)
            changed = self._state != before
        if changed:
            self._session.tell("uncertain", self.name, self.owner, self.token, 0.0, detail)

    # Its release.

    async def release(self) -> bool:
        """Releases it: True if it was still ours, False if it had ended."""
        session = self._session
        if session.generation != forks.current():
            self._refuse_fork()
        clock = session.now  # by way of a name, which is quicker for what is no method
        now = clock()
        if (self._state is not HELD or now >= self._deadline) and self._expire_if_due(now):
            return False  # where `max_hold` ended it, the keeper still has to free it
        if self._detaching:
            self._usage.dropped = True  # the keeper frees it, if that fails
            return False  # it is being given away
        ticket = self._ticket
        try:
            session.keeper.forget(self)
            self._releases += 1
            deadline = now + session.patience
            freed = await session.backend.release(ticket.terms.name, ticket.owner, deadline)
            return self._answered(freed)
        except BackendUnavailable as error:
            raise self._unavailable(
                "could not be given back, and ends by itself unless that is tried again", error
            ) from error
        except BaseException:
            # Cancelled, perhaps before it was sent. It is over for us in any case (and before the
            # next await, which may be cancelled too); it is harmless to send it twice.
            try:
                self._freed(True)
                await session.clean_up(ticket)
            except BaseException:  # another interrupt, perhaps at the very entry of it
                session.pending_releases.add(ticket)
                raise
            raise

    def _answered(self, freed: bool) -> bool:
        """Takes in the store's answer to a release; returns whether that ended the lease."""
        if not freed and self._releases > 1 and not self._expire_if_due(self._session.now()):
            freed = True  # another call has done it, whose answer was lost, or is still to come
        return self._freed(freed)

    async def _give_all_back(self) -> bool:
        """Releases it for `close`, however often it was taken."""
        return await self._release_quietly()

    async def _release_quietly(self) -> bool:
        """Releases it at the end of `with` and for `close`: an event alone tells of a failure."""
        try:
            await self.release()
        except LockError as error:
            self._session.tell(
                "release_failed", self.name, self.owner, self.token, 0.0, detail=str(error)
            )
            return False
        return True

    # Its end.

    def _expire_if_due(self, now: float) -> bool:
        """Ends the lease if its deadline has passed; returns whether it has ended, now or before."""
        if self._state in HOLDING:
            if now < self._deadline:
                return False
            if self._end_at is not None and now >= self._end_at:
                self._recall("its max_hold is over")
            else:
                self._end("its end came before a renewal was answered")
        elif self._untold:
            tell_lost(self)
        return self._state in (LOST, RELEASED)

    def _look(self) -> str:
        """Ends the lease if its time is over, unless we are a forked child; returns its state."""
        if self._state in HOLDING and self._session.generation == forks.current():
            self._expire_if_due(self._session.clock.now())
        return UNCERTAIN if self._state == HELD and self._releases else self._state

    def _end(self, reason: str, recalled: bool = False) -> None:
        """Ends the lease without our doing, and tells everybody who wants to know. `recalled`: it has
        still to be freed at the store."""
        session = self._session
        with session.mutex:
            state = after(self._state, ENDED)
            if state == self._state:
                return
            self._lost = (session.clock.wall(), reason)
            self._untold = True
            self._calling_back = bool(self._callbacks)  # a body that ends now frees nothing
            if recalled:
                self._freeing = True
                session.recalled[self._ticket.owner] = self
            self._state = state
            session.leases.pop(self._ticket.owner, None)
            self._usage.unwatch_leases()
        tell_lost(self)

    def _tell_others(self) -> None:
        """Does nothing: a lease that is one of several ends those here."""

    def _abandon(self, depth: int) -> None:
        """Gives up one acquisition whose body is over, as `Usage.abandon` does.

        Called where an object is finalized, so this waits for nothing: the keeper frees the lease.
        """
        session = self._session
        if session.closed or session.generation != forks.current():
            return  # it is over, or not ours to release
        if self._state in HOLDING:
            to_be_freed = self._usage.abandon(depth)
        else:
            to_be_freed = self._freeing and not self._usage.bodies  # it waited for their end
        if to_be_freed:
            session.keeper.keep(self, session.now())

    def _wants_to_know(self) -> bool:
        """Tells whether a body runs under the lease, or somebody asked to be told of its loss."""
        return bool(self._usage.bodies) or bool(self._callbacks) or bool(self._watchers)

    def _recall(self, reason: str) -> None:
        """Ends the lease though the store would keep it: it is freed when its body has ended."""
        self._end(reason, recalled=True)

    def _free_at(self) -> float:
        """Returns when the keeper has to free what has ended for us."""
        if not self._usage.bodies:
            return 0.0
        # Their end frees it, unless the store is about to.
        return self._deadline if self._end_at is None else self._at_store_until

    def _to_be_freed(self, now: float) -> bool:
        """Tells whether it has ended for us, everybody was told, and it is time to free it."""
        ended = self._freeing and self._state not in HOLDING and not self._untold
        return ended and now >= self._free_at()

    async def _free(self) -> None:
        """Frees at the store what has ended for us."""
        try:
            self._session.keeper.forget(self)
            await self._session.clean_up(self._ticket)
        except BaseException:  # by a signal's handler, or cancelled
            self._free_later()
            raise
        self._is_free()

    def _free_later(self) -> None:
        """Has what has ended for us, or was dropped, freed at the store, in the background."""
        self._session.keeper.forget(self)
        self._freed(True)
        self._session.pending_releases.add(self._ticket)
        self._is_free()

    def _tellers(self) -> list[object]:
        """Returns the tasks or threads that tell of its loss."""
        return [] if self._teller is None else [self._teller]

    def _is_free(self) -> None:
        """Notes that nothing is left to be freed."""
        self._freeing = False
        self._session.recalled.pop(self._ticket.owner, None)

    def _freed(self, freed: bool) -> bool:
        """Ends the lease after the store was told; `freed`: it had not ended there before.

        Returns whether this release ended it.
        """
        if not freed:
            self._end("the store says that it had ended before it was released")
            return False
        session = self._session
        with session.mutex:
            before = self._state
            self._state = after(before, FREED)
            if self._state is before:
                return False
            # At once: what interrupts us comes behind it.
            session.leases.pop(self._ticket.owner, None)
            self._unwatch()
        if self._alarmed or self._watchers or session.listeners:
            tell_freed(self)
        return True

    def _unwatch(self) -> None:
        """Gives up the watches over a lease that was released."""
        self._usage.watches.clear()

    # The alarm.

    def _set_alarm(self) -> None:
        """Has the alarm tell of the loss from now on, whatever the store does."""
        if not self._alarmed and self._state in HOLDING:
            self._alarmed = True
            self._session.alarm.at(self._deadline, self._ring)

    def _ring(self) -> None:
        if not self._expire_if_due(self._session.clock.now()):
            self._session.alarm.at(self._deadline, self._ring)

    # Errors.

    def _loss(self) -> LeaseLost:
        at, reason = self._lost if self._lost is not None else (None, None)
        if self._state == RELEASED:
            reason = "it was released"
        elif reason is None:
            reason = "it is being released"
        return lease_lost(self.name, self.owner, self.token, at, reason)

    def _unavailable(self, what: str, error: BackendUnavailable) -> BackendUnavailable:
        """Returns the backend's error, which knows of servers, told about this lock."""
        said = f"{self.name!r} {what}"
        return unavailable(said, error, self.name, self.owner, self.token or None)

    def _refuse_fork(self) -> None:
        if self._session.generation != forks.current():
            raise of_the_parent(self.name, self.owner, self.token)
