"""A lease: the proof that we hold a lock, with its token and its end.

Its deadline is counted from the *sending* of the last answered request that renewed it at the store,
less a margin for drift, so it ends for us before it can end there. `held`, `remaining` and `ensure`
ask the clock each time; nothing has to run for them to be right, so a process that was frozen past
its deadline is told by the first look. Whoever wants to be told unasked (`on_lost`, the body of
`async with`) is told by the alarm, which no store can hold up.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple

from .. import checks, forks, lifecycle
from .._runtime.aio import Interrupt, Signal
from ..errors import BackendUnavailable, LeaseLost, LockNotOwned
from ..events import report
from ..ledger import Claim
from ..lifecycle import ACQUIRING, HELD, LOST, RELEASED, UNCERTAIN, drift_margin
from ..model import Gone, Renewed

if TYPE_CHECKING:
    from .contract import Ticket
    from .session import Session

_HOLDING = (HELD, UNCERTAIN)
SOON = 0.02


class _Offer(NamedTuple):
    """A grant that the waiting attempt has not taken yet, and until when it may be taken."""

    token: int
    ttl: float
    sent: float
    deadline: float


class Lease:
    """What `acquire` returns. Safe to use from any thread, or any task of its event loop."""

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
        "_release_doubtful",
        "_renewing",
        "_session",
        "_state",
        "_ticket",
        "_watchers",
        "token",
        "ttl",
    )

    def __init__(
        self, session: Session, ticket: Ticket, *, renewing: bool, end_at: float | None
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
        self._offer: _Offer | None = None
        self._granted_at = 0.0
        self._release_doubtful = False
        self._alarmed = False
        self._interrupt: Interrupt | None = None
        self._lost: tuple[float, str] | None = None
        self._callbacks: list[Callable[[Lease], object]] | None = None
        self._watchers: list[Signal] | None = None

    def __repr__(self) -> str:
        return f"<Lease {self.name!r} token={self.token} {self.state}>"

    # What the holder asks.

    @property
    def name(self) -> str:
        return self._ticket.name

    @property
    def owner(self) -> str:
        """Who holds it: one unique value per acquisition."""
        return self._ticket.owner

    @property
    def state(self) -> str:
        """`acquiring`, `held`, `uncertain`, `lost` or `released`."""
        self._look()
        return self._state

    @property
    def held(self) -> bool:
        """Whether it is ours now, by our own clock. In a forked child it never is."""
        return self.remaining() > 0

    def remaining(self) -> float:
        """Seconds for which it is ours even if no renewal succeeds from now on; 0 if it ended."""
        if self._state not in _HOLDING or self._session.generation != forks.generation:
            return 0.0
        left = self._deadline - self._session.clock.now()
        if left > 0:
            return left
        self._look()
        return 0.0

    def ensure(self, at_least: float = 0.0) -> None:
        """Raise `LeaseLost` unless it is held, and for `at_least` seconds more."""
        at_least = checks.at_least(at_least)
        self._refuse_fork()
        left = self.remaining()
        if left <= 0:
            raise self._loss()
        if left < at_least:
            raise LeaseLost(
                f"the lease on {self.name!r} is still held, but only {left:.3f} s of it are left, "
                f"less than the {at_least:g} s asked for",
                name=self.name,
                owner=self.owner,
                token=self.token,
                reason="too little is left of it",
            )

    def on_lost(self, callback: Callable[[Lease], object]) -> None:
        """Call `callback(lease)` once when the lease is lost; at once if it already is.

        It is called in the thread, or the event loop, that notices; a release is no loss.
        """
        self._refuse_fork()
        with self._session.mutex:
            if self._state in _HOLDING:
                if self._callbacks is None:
                    self._callbacks = []
                self._callbacks.append(callback)
                callback_now = False
            else:
                callback_now = self._state == LOST
        if callback_now:
            self._call(callback)
        else:
            self._set_alarm()

    async def wait_lost(self, timeout: float | None = None) -> bool:
        """Wait until the lease is lost: True. False after `timeout`, or when it was released."""
        timeout = checks.timeout(timeout)
        self._refuse_fork()
        clock = self._session.clock
        until = None if timeout is None else clock.now() + timeout
        signal = Signal(clock)
        with self._session.mutex:
            if self._watchers is None:
                self._watchers = []
            self._watchers.append(signal)
        try:
            while self.state in _HOLDING:
                if until is not None and clock.now() >= until:
                    break
                deadline = self._deadline
                await signal.wait(deadline if until is None else min(until, deadline))
            return self._state == LOST
        finally:
            with self._session.mutex:
                self._watchers.remove(signal)

    async def renew(self, ttl: float | None = None) -> None:
        """Renew it now, and from now on for `ttl` seconds if that is given.

        Raises `LeaseLost` if it has ended, `BackendUnavailable` if the store does not answer; the
        lease then lasts until its present end.
        """
        asked = self.ttl if ttl is None else checks.ttl(ttl)
        self._refuse_fork()
        sent = self._session.clock.now()
        if self._over(sent) or self._state not in _HOLDING:
            raise self._loss()
        claim = Claim(self.name, self.owner, asked)
        (outcome,) = await self._session.backend.renew([claim], self._session.by())
        if isinstance(outcome, Renewed):
            self.ttl = asked
            self._ticket.ttl = asked
            self._renewed(outcome, sent)
            due = self._due(sent)
            if self._kept and due is not None:
                self._session.keeper.keep(self, due)
            self.ensure()
        elif isinstance(outcome, Gone):
            self._gone()
            raise self._loss()
        else:
            self._doubted("the store did not answer for this lease")
            raise BackendUnavailable(
                f"the store did not say whether the lease on {self.name!r} was renewed; it lasts "
                f"{self.remaining():.3f} s more",
                name=self.name,
                owner=self.owner,
                token=self.token,
            )

    async def release(self) -> bool:
        """Give it back: True if it was still ours, False if it had ended. Never frees another's.

        From the first call on it is not renewed any more. If the store cannot be reached this
        raises `BackendUnavailable`, and may be tried again; otherwise the TTL frees it.
        """
        session = self._session
        if session.generation != forks.generation:
            self._refuse_fork()
        session.keeper.forget(self)
        if self._over(session.clock.now()):
            return False
        try:
            freed = await session.backend.release(self.name, self.owner, session.by())
        except BackendUnavailable:
            self._release_doubtful = True
            raise
        except BaseException:
            # Cancelled, perhaps before it was sent. It is over for us in any case (and before the
            # next await, which may be cancelled too); it is harmless to send it twice.
            self._freed(True)
            await session.clean_up(self._ticket)
            raise
        if not freed and self._release_doubtful and self.held:
            freed = True  # an earlier call, whose answer was lost, has done it
        return self._freed(freed)

    async def tether(self) -> int | None:
        """A file descriptor to let a child process inherit, so that the lease outlives us with it.

        None where that is not needed, because the lease does not end with our process.
        """
        self.ensure()
        return await self._session.backend.tether(self.name, self.owner, self._session.by())

    async def __aenter__(self) -> Lease:
        self._enter()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._leave(error)

    # What the engine does with it: the attempt, the keeper, the alarm and `with`.

    def _accept(self, token: int, ttl: float, deadline: float, *, handed: bool = False) -> bool:
        """The attempt was granted; False if that came too late to be of use."""
        session = self._session
        now = session.clock.now()
        if self._end_at is not None:
            deadline = min(deadline, now + self._end_at)
        with session.mutex:
            if deadline <= now or self._state != ACQUIRING:
                return False
            self._state = lifecycle.after(self._state, lifecycle.GRANTED)
            self.token = token
            self.ttl = self._ticket.ttl = ttl
            self._deadline = deadline
            self._granted_at = now
            self._confirmed = not handed
            if self._end_at is not None:
                self._end_at += now
        return True

    def _abandon(self) -> None:
        """The attempt is given up."""
        self._session.keeper.forget(self)
        with self._session.mutex:
            self._state = lifecycle.after(self._state, lifecycle.FREED)
            self._session.leases.pop(self.owner, None)

    def _take_offer(self) -> _Offer | None:
        with self._session.mutex:
            offer, self._offer = self._offer, None
        return offer

    def _interval(self) -> float:
        return self._beat_again if self._state == ACQUIRING else self.ttl / 3

    def _wants_renewal(self) -> bool:
        return self._renewing or not self._confirmed or self._state == ACQUIRING

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
                self._offer = _Offer(outcome.token, outcome.ttl, sent, deadline)
            else:
                before = self._state
                self._state = lifecycle.after(before, lifecycle.RENEWED)
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

    def _gone(self) -> None:
        """The store knows nothing of it."""
        if self._state == ACQUIRING:
            self._out = True
            self._ticket.tell()
        else:
            self._end("the store says that it has ended")

    def _doubted(self, detail: str) -> None:
        with self._session.mutex:
            before = self._state
            self._state = lifecycle.after(before, lifecycle.DOUBTED)
            changed = self._state != before
        if changed:
            self._session.tell("uncertain", self.name, self.owner, self.token, 0.0, detail)

    def _over(self, now: float) -> bool:
        """Whether its deadline has passed; then it is lost from now on."""
        if self._state in _HOLDING and now >= self._deadline:
            if self._end_at is not None and now >= self._end_at:
                self._freeing = True
                self._end("its max_hold is over")
            else:
                self._end("its end came before a renewal was answered")
        return self._state in (LOST, RELEASED)

    def _look(self) -> None:
        if self._state in _HOLDING and self._session.generation == forks.generation:
            self._over(self._session.clock.now())

    def _end(self, reason: str) -> None:
        session = self._session
        with session.mutex:
            before = self._state
            self._state = lifecycle.after(before, lifecycle.ENDED)
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
            self._state = lifecycle.after(before, lifecycle.FREED)
            if self._state == before:
                return False
            session.leases.pop(self._ticket.owner, None)
            watchers = tuple(self._watchers) if self._watchers else ()
        if self._alarmed:
            session.alarm.cancel(self._ring)
        for signal in watchers:
            signal.set()
        if session.listeners:
            held = session.clock.now() - self._granted_at
            session.tell("released", self.name, self.owner, self.token, held)
        return True

    def _enter(self) -> None:
        """The body of `with` begins: stop it, where that can be done, when the lease is lost."""
        self.ensure()
        self._interrupt = Interrupt()
        if Interrupt.works:
            self._set_alarm()

    async def _leave(self, error: BaseException | None) -> None:
        """The body has ended: give the lease back, and say so if it had been lost under it."""
        interrupt, self._interrupt = self._interrupt, None
        stopped_by_us = interrupt is not None and interrupt.settle(error)
        if error is None:
            self._refuse_fork()
        elif self._session.generation != forks.generation:
            return
        if self.state in _HOLDING:
            await self._release_quietly()
        if self._state == LOST:
            if error is None or stopped_by_us:
                raise self._loss() from None
            error.add_note(f"The lease on {self.name!r} had been lost meanwhile.")

    async def _release_quietly(self) -> None:
        """For the end of `with` and for close: an unreachable store is told by an event only."""
        try:
            await self.release()
        except BackendUnavailable as error:
            self._session.tell(
                "release_failed", self.name, self.owner, self.token, 0.0, detail=str(error)
            )

    def _set_alarm(self) -> None:
        """From now on somebody wants to be told of the loss, whatever the store does."""
        if not self._alarmed and self._state in _HOLDING:
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

    def _call(self, callback: Callable[[Lease], object]) -> None:
        try:
            callback(self)
        except Exception as error:
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

    def _refuse_fork(self) -> None:
        if self._session.generation != forks.generation:
            raise LockNotOwned(
                f"the lease on {self.name!r} belongs to the parent of this forked process, which "
                "goes on holding it; acquire the lock anew in the child",
                name=self.name,
                owner=self.owner,
                token=self.token,
            )
