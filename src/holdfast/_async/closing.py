"""The end of a session: every wait and every lease is ended, then the store is let go of.

A body that runs under a lease is told first, and has some time to end; then the lease is freed. A store
that does not answer holds this up for some seconds in all, however many leases there are.

A signal's handler that closes may have interrupted an attempt, or a step on the store, of its own
thread: that goes on only when the handler has returned. So the handler does not wait for it, and what
can be done only behind it is done in the background.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from threading import get_ident
from typing import TYPE_CHECKING

from .. import forks
from .._runtime.aio import Signal, current, in_background
from .telling import tell_lost

if TYPE_CHECKING:
    from .hold import Hold
    from .session import Session

BODY_LIMIT = 5.0
"""Seconds that `close` waits for the bodies of `with` whose leases it ends. The lease of a body that
goes on after that is not freed: it ends with its TTL."""
CLOSE_LIMIT, CLOSE_REST = 4.0, 1.0
"""Seconds that the store is given to answer a call of `close`; and those that all the rest shares once
it has left one unanswered: so a silent store keeps `close` for both together, not for each lease. The
end of routines and of the backend is part of that rest."""
REASON = "its manager was closed"
CLOSING_LOOK = 0.05
"""Seconds after which a second caller of `close` looks whether the first has finished."""


class Closing:
    """The end of one session, by however many callers."""

    __slots__ = ("_callers", "_deadline", "_session", "_under_way", "drained")

    def __init__(self, session: Session) -> None:
        self._session = session
        self._under_way = False
        self._deadline: float | None = None
        """When the last call has to be made to a store that does not answer."""
        self._callers: set[object] = set()
        """The tasks or threads that are inside `close`."""
        self.drained = Signal(session.clock)
        """Set when an attempt or a body has ended that may be waited for."""

    async def run(self, caller: object) -> None:
        """Closes the session, as `Session.close` says."""
        session = self._session
        again = caller in self._callers
        # unasync: aio-only
        again = (
            False  # an earlier call of this task, which was cancelled, goes on in the background
        )
        # unasync: end
        if again:
            return  # from a callback, or a signal's handler: the call that it interrupts goes on
        first = False
        try:
            while not first:
                with session.mutex:
                    session.closed = True
                    first = not self._under_way
                    self._under_way = True
                    self._callers.add(caller)
                if first:
                    await self._close()
                elif self._is_beneath(current(), get_ident()):
                    return  # whoever is at work waits for what we have interrupted
                self.drained.set()  # its own body is not to be waited for
                while self._under_way and not first and caller not in session.callers:
                    await Signal(session.clock).wait(session.clock.now() + CLOSING_LOOK)
                if session.finished or caller in session.callers:
                    break
                # Whoever was closing it was interrupted, and has left the rest to us.
        finally:
            if first:
                self._under_way = False  # before the next call, which may be interrupted
            self._callers.discard(caller)

    async def _close(self) -> None:
        session = self._session
        with session.mutex:
            tickets, leases = list(session.tickets.values()), list(session.leases.values())
        self._deadline, session.patience = None, CLOSE_LIMIT
        me = current()
        is_beneath = partial(self._is_beneath, me, get_ident())
        for lease in leases:
            if lease._wants_to_know():
                lease._recall(REASON)
        if self._is_inside(get_ident()):
            self._leave_rest(is_beneath)
            return
        for ticket in tickets:
            if ticket.runner is not me:
                await session.clean_up(ticket)
            ticket.tell()  # it finds the session closed
        for observer in list(session.observers.values()):
            observer.tell()
        await self._wait_for_bodies()
        await self._wait_for_detaching(me)
        for lease in list(session.leases.values()):
            self.share_rest()
            if not await lease._give_all_back():
                self.note_silence()
            session.leases.pop(lease.owner, None)  # also one whose end was interrupted half-way
        await self._wait_for_bodies()  # of leases that have ended meanwhile
        self.share_rest()
        until = session.deadline()
        while self._attempts(me) and await self.drained.wait(until):
            pass
        if is_beneath():
            self._leave_rest(is_beneath)
            return
        self.share_rest()
        released = await session.pending_releases.close()
        if not released:
            self.note_silence()
        self.share_rest()
        await session.keeper.close()
        session.alarm.close()
        await session.backend.close(self._deadline)
        if not released:
            self.share_rest()
            await session.pending_releases.end()
        session.finished = True

    def _is_inside(self, thread: int) -> bool:
        """Tells whether that thread is inside a step on the store, where it can make no other."""
        is_inside = getattr(self._session.backend, "is_inside", None)
        return is_inside is not None and is_inside(thread)

    def _is_beneath(self, runner: object, thread: int) -> bool:
        """Tells whether a call of that task or thread is under way, beneath its call of `close`."""
        tickets = list(self._session.tickets.values())
        return self._is_inside(thread) or any(ticket.runner is runner for ticket in tickets)

    def _leave_rest(self, is_beneath: Callable[[], bool]) -> None:
        """Has the rest done in the background, when what lies beneath our caller has ended."""
        session = self._session

        async def finish() -> None:
            while is_beneath():
                await Signal(session.clock).wait(session.clock.now() + CLOSING_LOOK)
            await session.close()

        in_background(finish, session.home)

    def _attempts(self, me: object) -> bool:
        """Tells whether an attempt is under way that is not the caller's own."""
        return any(ticket.runner is not me for ticket in list(self._session.tickets.values()))

    def _runs(self, lease: Hold) -> bool:
        """Tells whether a body runs under the lease, or somebody is being told of its end, in a task or
        thread that is not closing."""
        runners = [body.runner for body in list(lease._usage.bodies)]
        return any(runner not in self._callers for runner in [*runners, *lease._tellers()])

    async def _wait_for_detaching(self, me: object) -> None:
        """Waits until it is known of leases that others are detaching whether they are still ours."""
        until = self._session.deadline()
        for lease in list(self._session.leases.values()):
            while lease._detaching not in (None, me) and await self.drained.wait(until):
                pass

    async def _wait_for_bodies(self) -> None:
        """Waits until the bodies of recalled leases have ended, and frees those leases."""
        session = self._session
        until = session.clock.now() + BODY_LIMIT
        for owner, lease in list(session.recalled.items()):
            while self._runs(lease) and await self.drained.wait(until):
                pass
            if lease._untold:  # whoever told of it was interrupted
                tell_lost(lease)
            if not lease._freeing:
                pass  # it was freed at the end of its body
            elif not self._runs(lease):
                await lease._free()
            else:
                detail = "its body goes on after its manager was closed"
                session.tell("release_failed", lease.name, owner, lease.token, 0.0, detail)
            session.recalled.pop(owner, None)

    def recall_late(self, lease: Hold) -> None:
        """Ends a lease whose holder asks to be told only now: `close` may have looked before."""
        if self._session.closed:
            lease._recall(REASON)

    def note_silence(self) -> None:
        """Leaves little time to the rest of `close`, if there is one: the store did not answer."""
        if self._session.closed and self._deadline is None:
            self._deadline = self._session.clock.now() + CLOSE_REST
            self.share_rest()  # at once: routines in the background make calls, too

    def share_rest(self) -> None:
        """Gives the next call of `close` what is left for all."""
        if self._deadline is not None:
            self._session.patience = max(self._deadline - self._session.clock.now(), 0.0)

    # unasync: aio-only
    def strand_if_ended(self) -> bool:
        """Lets go of the store and ends all leases, if the event loop has ended with nothing closed in
        it; returns whether it has ended."""
        session = self._session
        if not session.home.is_closed() or session.generation != forks.current():
            return False
        from .._runtime.aio import forget_closed_loops  # the other world has no loops

        with session.mutex:
            session.closed = session.finished = True
            holds = list(session.leases.values())
        session.pending_releases.strand()
        for hold in holds:
            hold._end("the event loop of its manager has ended")
        forget_closed_loops()
        strand = getattr(session.backend, "strand", None)
        if strand is not None:
            strand()
        return True

    # unasync: end
