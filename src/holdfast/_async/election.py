"""An election: one leader at a time, until it resigns, dies or is lost."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import TYPE_CHECKING

from .. import checks, forks
from .._runtime.aio import Signal, current, finish
from ..errors import BackendUnavailable, LockError
from ..model import NOBODY, Change, LockState, Observation, Participant, new_owner
from ..stores._async.contract import BEFORE_ALL, OBSERVED_FOR, Ticket
from .amending import amend
from .lease import Lease
from .lock import Lock

if TYPE_CHECKING:
    from .opening import Opening
    from .request import Request
    from .session import Session

LOOK_EVERY = OBSERVED_FOR / 3
"""Seconds after which an observer asks even if it was not woken: a wake-up may have been lost."""
SOON = 0.05
"""Seconds after the end of a leader's lease at which an observer looks who leads now."""


class Term(Lease):
    """The lease of a leader. Work that only the leader may do stops before it is released."""

    async def resign(self) -> bool:
        """Lets the next candidate lead: True if this one still did.

        Work that runs under the term in another task or thread is told first (as of a loss), and waited
        for, at most until the lease would have ended. Then the term is given back.
        """
        hold = self._hold
        hold._refuse_fork()
        if hold._expire_if_due(hold._session.now()):
            return False
        if not self._others():
            return await self.release()
        await self._stop_work()
        return True

    async def _stop_work(self) -> None:
        """Ends the term, waits until no other body runs under it any more, and frees it."""
        hold = self._hold
        session = hold._session
        ended = Signal(session.clock)
        try:
            session.body_signals.append(ended)
            hold._recall("it was resigned")
            until = hold._deadline
            while self._others() and await ended.wait(until):
                pass
        finally:
            if ended in session.body_signals:  # else interrupted
                session.body_signals.remove(ended)
        if hold._freeing and not self._others():
            await hold._free()

    def _others(self) -> bool:
        """Tells whether a body runs under the term, other than our own."""
        me = current()
        return any(body.runner is not me for body in list(self._hold._usage.bodies))

    @property
    def value(self) -> str:
        """The value that everybody sees of this leader."""
        ticket = self._hold._ticket
        return ticket.label.text if self._hold._value is None else self._hold._value

    def _exported_text(self) -> str:
        return self.value

    async def set_value(self, value: str) -> None:
        """Shows everybody another value from now on. Raises `LeaseLost` if the term has ended."""
        hold = self._hold
        value = checks.label(value)
        self.ensure()
        await amend(self._hold, "could not be given another value", text=value)
        hold._value = value


class Election:
    """Made by `locks.election(name)`. Candidates are elected in the order in which they came."""

    __slots__ = ("_lock", "_opening", "_request", "name")

    def __init__(self, opening: Opening, request: Request) -> None:
        self.name = request.name
        self._opening = opening
        self._request = request
        self._lock = Lock(opening, request)

    def __repr__(self) -> str:
        return f"<election {self.name!r}>"

    async def campaign(self, timeout: float | None = None) -> Term:
        """Waits to be elected; raises `LockTimeout` if that took longer than `timeout` seconds."""
        # Nothing comes behind it, not even a check: an exception there would leave a term that is kept.
        return await self._lock.acquire(timeout)  # type: ignore[return-value]

    async def leader(self) -> LockState | None:
        """Returns the leader, with its value in `holders[0].label.text`; None if there is none."""
        state = await self._opening.ask(
            f"asked about {self.name!r}",
            self.name,
            lambda session, deadline: session.backend.inspect(self.name, deadline),
        )
        return state if state.held else None

    async def observe(self) -> AsyncGenerator[LockState | None, None]:
        """Yields who leads, or None; and then every change, in order and none twice.

        A change is another leader, nobody, or another value of the same leader. The store wakes us, on
        the connection that all locks share. While it cannot be reached nothing is yielded, and then all
        that was missed. (Where `guarantees.every_change` is False, two changes between two looks are
        seen as one.) Raises `LockError` when the manager is closed, or may not listen.
        """
        session = await self._opening.session()
        ticket = Ticket(self._request.terms_for(session), new_owner(session.id), queue=False)
        session.observers[ticket.owner] = ticket
        number = 0
        known: Change | None = None
        try:
            observation = await self._look(ticket, number)
            if not observation.changes:
                known = Change(BEFORE_ALL, 0, "", NOBODY, 0.0)
                number = known.number  # 0 would ask for the latest alone
                yield None
            while True:
                for change in observation.changes:
                    number = change.number
                    if known is None or not _shows_the_same(known, change):
                        known = change
                        yield self._state(change, observation)
                session.check_open()
                await session.backend.wait(ticket, _next_look(session, observation))
                session.check_open()
                try:
                    observation = await self._look(ticket, number)
                except BackendUnavailable:
                    session.check_open()
                    await Signal(session.clock).wait(session.now() + session.heartbeat)
                    observation = Observation((), session.heartbeat)
        finally:
            del session.observers[ticket.owner]
            await self._end(session, ticket)

    async def _look(self, ticket: Ticket, after: int) -> Observation:
        return await self._opening.ask(
            f"asked about {self.name!r}",
            self.name,
            lambda session, deadline: session.backend.observe(ticket, after, deadline),
        )

    async def _end(self, session: Session, ticket: Ticket) -> None:
        """Tells the store that nobody looks any more; it would find out by itself."""
        if session.closed or session.generation != forks.current():
            return

        async def unobserve() -> None:
            with suppress(LockError):
                await session.backend.unobserve(ticket, session.deadline())

        await finish(unobserve, grace=session.patience)

    def _state(self, change: Change, observation: Observation) -> LockState | None:
        """Returns the election as it was after the change."""
        if not change.owner:
            return None
        latest = change is observation.changes[-1]
        remaining = observation.remaining if latest else 0.0
        leader = Participant(change.owner, change.label, change.token, change.since, remaining)
        return LockState(self.name, (leader,), (), change.token, "election")


def _shows_the_same(known: Change, change: Change) -> bool:
    """Tells whether the same leader with the same value leads after a change, or again nobody.

    A store that lost its data tells that nobody leads, and some count a value that was set again.
    """
    return known.owner == change.owner and (not change.owner or known.label == change.label)


def _next_look(session: Session, observation: Observation) -> float:
    """Returns when to look again if no wake-up comes: a leader that dies wakes nobody."""
    now = session.now()
    if observation.remaining > 0:
        return now + min(observation.remaining + SOON, LOOK_EVERY)
    return now + LOOK_EVERY
