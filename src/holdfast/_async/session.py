"""A session: the backend, the keeper, the alarm and the leases that all locks of a manager share.

A session is made on first use, belongs to one process (and, in asyncio, to one event loop), and
is never used by a forked child: the manager makes a new one there.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from threading import RLock
from typing import TYPE_CHECKING, Any

from .. import forks
from .._runtime.aio import Alarm, Signal, current, finish, here, in_background
from ..errors import LockError
from ..events import Event, Listeners
from ..lifecycle import drift_margin, handed_for
from ..model import Label
from ..refusals import owner_used_again
from ..stores._async.contract import Backend, Ticket
from .keeper import Keeper
from .pending_releases import PendingReleases
from .waiter import Waiter

if TYPE_CHECKING:
    from .hold import Hold
    from .request import Request

IO_LIMIT = 5.0
"""Seconds after which a call to the store counts as failed."""
BODY_LIMIT = 5.0
"""Seconds that `close` waits for the bodies of `with` whose leases it ends. The lease of a body that
goes on after that is not freed: it ends with its TTL."""
LEAST_LIMIT = 2.0
"""Seconds that the store is given to answer a caller that does not want to wait as long."""
CLEAN_UP_LIMIT, SILENT_CLEAN_UP_LIMIT = 2.0, 0.25
"""Seconds that a caller waits for its clean-up; less if the store has just failed to answer it."""
CLOSE_REST = 1.0
"""Seconds of `IO_LIMIT` that all the rest of `close` shares once the store has left one of its calls
unanswered: so a silent store keeps it for `IO_LIMIT` in all, and not for each lease."""
CLOSING_LOOK = 0.05
"""Seconds after which a second caller of `close` looks whether the first has finished."""
MANY = 1000
"""Leases among which those that have run out are looked for; then again when they are twice as many."""
REMEMBERED_OWNERS = 10_000


class Session:
    """One connection to a store, and all that hangs on it."""

    __slots__ = (
        "_burned",
        "_callers",
        "_close_by",
        "_closers",
        "_closing",
        "_drained",
        "_recalled",
        "_sweep_at",
        "alarm",
        "backend",
        "claim",
        "claim_window",
        "clock",
        "closed",
        "finished",
        "generation",
        "heartbeat",
        "home",
        "keeper",
        "label",
        "leases",
        "listeners",
        "mutex",
        "now",
        "patience",
        "pending_releases",
        "realm",
        "reentrant",
        "tickets",
        "waiters",
    )

    def __init__(self, backend: Backend, listeners: Listeners, label: str, realm: str = "") -> None:
        self.backend = backend
        self.realm = realm
        """The place where the tokens of all its locks are counted."""
        self.clock = backend.clock
        self.now = backend.clock.now
        self.claim_window = backend.claim_window
        self.claim = handed_for(backend.claim_window)
        self.heartbeat = backend.heartbeat
        self.listeners = listeners
        self.label = Label(os.uname().nodename, os.getpid(), label)
        self.generation = forks.current()
        self.home = here()
        # Guards the state of every lease here, and is only ever held for a few statements. It is
        # needed in asyncio too: a lease may be asked, and a clock moved, from another thread.
        # One that may be entered again, because a signal's handler may release a lease.
        self.mutex = RLock()
        self.leases: dict[str, Hold] = {}
        """The leases that are held, by owner."""
        self.tickets: dict[str, Ticket] = {}
        """The attempts under way, by owner. `close` waits until each has left nothing behind."""
        self.waiters: dict[str, Waiter] = {}
        """The attempts that are in a queue, by owner."""
        self.reentrant: dict[tuple[str, object], Hold] = {}
        """Leases that may be taken again: by name, and by the task or thread that holds them."""
        self.alarm = Alarm(self.clock)
        self.keeper = Keeper(self)
        self.pending_releases = PendingReleases(self)
        self.closed = False
        """Being closed, or closed: nothing is granted or renewed any more."""
        self.finished = False
        """Closed to its end."""
        self._closing = False
        self._close_by: float | None = None
        """When `close` has to have made its last call to a store that does not answer."""
        self._callers: set[object] = set()
        """The tasks or threads that are inside a user's callback or listener."""
        self._closers: set[object] = set()
        """The tasks or threads that are inside `close`."""
        self.patience = IO_LIMIT
        """Seconds that the store is given to answer."""
        self._burned: dict[str, None] = {}
        self._drained = Signal(self.clock)
        self._recalled: list[Hold] = []
        """Leases that `close` has ended, and has still to free."""
        self._sweep_at = MANY
        if hasattr(backend, "look"):
            backend.look = self.look_at

    def look_at(self, owners: Iterable[str]) -> None:
        """Asks about these owners now, because the backend has news of them. From any thread."""
        now = self.clock.now()
        for owner in owners:
            one = self.leases.get(owner) or self.waiters.get(owner)
            if one is None:
                continue
            if one._kept:
                self.keeper.hurry(one, now)
            elif isinstance(one, Waiter) and not one.ended:
                self.keeper.keep(one, now)

    # Attempts.

    def begin(self, request: Request, owner: str, queue: bool, give_up: float | None) -> Ticket:
        """Returns the ticket of a new attempt, known here before anything is sent."""
        ticket = Ticket(request.terms_for(self), owner, queue)
        ticket.until = give_up
        # No mutex: this first writes and then looks; `close` first says so, and then looks.
        self.tickets[owner] = ticket
        if self.closed:
            self.leave(owner)
            self.check_open()
        if len(self.leases) >= self._sweep_at:
            self._sweep()
        return ticket

    def hold(
        self, request: Request, ticket: Ticket, token: int, ttl: float, sent: float
    ) -> Hold | None:
        """Returns the hold that was granted in reply to what was sent at `sent`.

        None if that came too late to be of use: the attempt has to be given up.
        """
        now = self.now()
        deadline = sent + ttl - drift_margin(ttl)
        if deadline <= now:
            return None
        ticket.ttl = ttl
        hold = request.hold_type(self, request, ticket)
        hold._grant(token, ttl, deadline, now)
        with self.mutex:
            if self.closed:
                return None
            self.leases[ticket.owner] = hold
            self.tickets.pop(ticket.owner, None)
        due = hold._due(sent)
        if due is not None:
            self.keeper.keep(hold, due)
        return hold

    def leave(self, owner: str) -> None:
        """Forgets an attempt that ended without a grant, and of which nothing is left."""
        waiter = self.waiters.get(owner)
        if waiter is not None:
            waiter.end()
        with self.mutex:
            self.tickets.pop(owner, None)
            if self.closed:
                self._drained.set()

    async def give_up(self, ticket: Ticket, silent: bool = False) -> None:
        """Ends an attempt of which the store may know something; `silent` as for `clean_up`."""
        waiter = self.waiters.get(ticket.owner)
        if waiter is not None:
            waiter.end()
        lease = self.leases.get(ticket.owner)
        if lease is not None:  # interrupted on the threshold: nobody else has it
            self.keeper.forget(lease)
            lease._freed(True)
        try:
            await self.clean_up(ticket, silent)
        finally:
            self.leave(ticket.owner)

    def burn(self, owner: str) -> None:
        """Remembers an owner id that came from outside: it serves for one attempt only."""
        with self.mutex:
            if owner in self._burned or owner in self.leases or owner in self.tickets:
                raise owner_used_again(owner)
            self._burned[owner] = None
            if len(self._burned) > REMEMBERED_OWNERS:
                del self._burned[next(iter(self._burned))]

    def _sweep(self) -> None:
        """Forgets leases that have run out unseen: not renewed, not released, looked at by nobody."""
        for lease in list(self.leases.values()):
            lease._look()
        self._sweep_at = max(MANY, 2 * len(self.leases))

    # Calls to the store.

    def deadline(self) -> float:
        """Returns when a call to the store that starts now must have ended."""
        return self.clock.now() + self.patience

    def deadline_for(self, sent: float, give_up: float | None) -> float:
        """Returns when a call sent at `sent` must have ended, if its caller gives up at `give_up`."""
        limit = sent + self.patience
        return limit if give_up is None else min(limit, max(give_up, sent + LEAST_LIMIT))

    async def clean_up(self, ticket: Ticket, silent: bool = False) -> None:
        """Leaves nothing of this attempt on the store, whatever happens to the caller meanwhile.

        `silent`: the store has just failed to answer, so do not hope for much now.
        """
        limit = SILENT_CLEAN_UP_LIMIT if silent else CLEAN_UP_LIMIT

        async def leave() -> None:
            deadline = self.clock.now() + min(limit, self.patience)
            try:
                await self.backend.release(ticket.name, ticket.owner, deadline)
            except LockError as error:
                # Unrenewed, it ends by itself in any case: a place in the queue soon, a grant with
                # its TTL.
                self._note_silence()
                self.pending_releases.add(ticket, error)

        self._share_rest()
        await finish(leave, grace=self.patience)

    def tell(
        self, kind: str, name: str, owner: str, token: int, duration: float, detail: str = ""
    ) -> None:
        """Tells the listeners what happened."""
        if self.listeners:
            event = Event(kind, name, owner, token, duration, self.clock.wall(), detail)
            self.call(self.listeners.tell, event)

    def call(self, function: Callable[[Any], object], argument: object) -> None:
        """Calls what belongs to users. A `close` inside does not wait for one that waits for us."""
        caller = current()
        outer = caller in self._callers
        self._callers.add(caller)
        try:
            function(argument)
        finally:
            if not outer:
                self._callers.discard(caller)

    # Its end.

    def body_ended(self) -> None:
        """Notes that a body of `with` has ended: `close` may be waiting for it."""
        if self.closed:
            self._drained.set()

    def _runs(self, lease: Hold) -> bool:
        """Tells whether a body runs under the lease, in a task or thread that is not closing."""
        return any(body.runner not in self._closers for body in list(lease._usage.bodies))

    async def _wait_for_bodies(self) -> None:
        """Waits until the bodies of recalled leases have ended, and frees those leases."""
        until = self.clock.now() + BODY_LIMIT
        while self._recalled:
            lease = self._recalled[-1]
            while self._runs(lease) and await self._drained.wait(until):
                pass
            if not lease._freeing:
                pass  # it was freed at the end of its body
            elif not self._runs(lease):
                await lease._free()
            else:
                detail = "its body goes on after its manager was closed"
                self.tell("release_failed", lease.name, lease.owner, lease.token, 0.0, detail)
            self._recalled.pop()

    def _note_silence(self) -> None:
        """Leaves little time to the rest of `close`, if there is one: the store did not answer."""
        if self.closed and self._close_by is None:
            self._close_by = self.clock.now() + CLOSE_REST

    def _share_rest(self) -> None:
        """Gives the next call of `close` what is left for all."""
        if self._close_by is not None:
            self.patience = max(self._close_by - self.clock.now(), 0.0)

    async def close(self, caller: object = None) -> None:
        """Ends every wait and every lease, and lets go of the store.

        `caller` is the task or thread that closes: a body that it runs itself is not waited for. Of
        several at once one does the work, and the others wait for it. A call that was interrupted may
        be repeated, and finishes what is left. From the first one on nothing is renewed.
        """
        again = caller in self._closers
        # unasync: aio-only
        again = (
            False  # an earlier call of this task, which was cancelled, goes on in the background
        )
        # unasync: end
        if again:
            return  # from a callback, or a signal's handler: the call that it interrupts goes on
        first = False
        try:
            with self.mutex:
                self.closed = True
                first = not self._closing
                self._closing = True
                self._closers.add(caller)
            if first:
                await self._close()
            self._drained.set()  # its own body is not to be waited for
            while self._closing and not first and caller not in self._callers:
                await Signal(self.clock).wait(self.clock.now() + CLOSING_LOOK)
        finally:
            if first:
                self._closing = False  # before the next call, which may be interrupted
            self._closers.discard(caller)

    def drop(self) -> None:
        """Closes the session in the background, because its manager is gone; unless it holds a lease.

        Called where an object is finalized, so this takes no mutex.
        """
        if not self.leases and not self.tickets:
            in_background(self.close, self.home)

    # unasync: aio-only
    def strand(self) -> None:
        """Lets go of the store after the end of the event loop, in which nothing was closed."""
        with self.mutex:
            self.closed = self.finished = True
            holds = list(self.leases.values())
        for hold in holds:
            hold._end("the event loop of its manager has ended")
        strand = getattr(self.backend, "strand", None)
        if strand is not None:
            strand()

    # unasync: end

    async def _close(self) -> None:
        with self.mutex:
            tickets, leases = list(self.tickets.values()), list(self.leases.values())
        self._close_by, self.patience = None, IO_LIMIT - CLOSE_REST
        for lease in leases:
            if lease._wants_to_know():
                self._recalled.append(lease)
                lease._recall("its manager was closed")
        for ticket in tickets:
            await self.clean_up(ticket)
            ticket.tell()  # it finds the session closed
        await self._wait_for_bodies()
        while self.leases:
            lease = next(iter(self.leases.values()))
            self._share_rest()
            if not await lease._give_all_back():
                self._note_silence()
            self.leases.pop(lease.owner, None)  # also one whose end was interrupted half-way
        self._share_rest()
        until = self.deadline()
        while self.tickets and await self._drained.wait(until):
            pass
        self._share_rest()
        await self.pending_releases.close()
        await self.keeper.close()
        self.alarm.close()
        await self.backend.close()
        self.finished = True

    def check_open(self) -> None:
        if self.closed:
            raise LockError("this connection is closed; call connect() for a new one")
