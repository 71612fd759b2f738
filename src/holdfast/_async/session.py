"""A session: the backend, the keeper, the alarm and the leases that all locks of a manager share.

A session is made on first use, belongs to one process (and, in asyncio, to one event loop), and
is never used by a forked child: the manager makes a new one there.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from .. import forks
from .._runtime.aio import Alarm, Signal, current, finish, here, in_background
from ..errors import GuaranteeError, LockError
from ..events import Event, Listeners
from ..lifecycle import drift_margin, handed_for
from ..model import Granted, Label, new_session_id, sessions_around
from ..refusals import owner_used_again
from ..stores._async.contract import Backend, Ticket
from .closing import Closing
from .keeper import Keeper
from .pending_releases import PendingReleases
from .renewals import Renewals
from .usage import Usage
from .waiter import Waiter

if TYPE_CHECKING:
    from .hold import Hold
    from .request import Request

IO_LIMIT = 5.0
"""Seconds after which a call to the store counts as failed."""
LEAST_LIMIT = 2.0
"""Seconds that the store is given to answer a caller that does not want to wait as long."""
CLEAN_UP_LIMIT, SILENT_CLEAN_UP_LIMIT = 2.0, 0.25
"""Seconds that a caller waits for its clean-up; less if the store has just failed to answer it."""
MANY = 1000
"""Leases among which those that have run out are looked for; then again when they are twice as many."""
REMEMBERED_OWNERS = 10_000


class Session:
    """One connection to a store, and all that hangs on it."""

    __slots__ = (
        "_burned",
        "_sweep_at",
        "alarm",
        "backend",
        "body_signals",
        "callers",
        "claim",
        "claim_window",
        "clock",
        "closed",
        "closing",
        "finished",
        "generation",
        "heartbeat",
        "home",
        "id",
        "keeper",
        "label",
        "leases",
        "listeners",
        "mutex",
        "now",
        "observers",
        "patience",
        "pending_releases",
        "provisional",
        "realm",
        "recalled",
        "reentrant",
        "renewals",
        "tickets",
        "waiters",
    )

    def __init__(
        self, backend: Backend, listeners: Listeners[Event], label: str, realm: str = ""
    ) -> None:
        self.backend = backend
        self.realm = realm
        """The place where the tokens of all its locks are counted."""
        self.provisional = False
        """Whether the store said what it promises when it was opened, after requests were made."""
        self.clock = backend.clock
        self.now = backend.clock.now
        self.claim_window = backend.claim_window
        self.claim = handed_for(backend.claim_window)
        self.heartbeat = backend.heartbeat
        self.listeners = listeners
        self.label = Label(os.uname().nodename, os.getpid(), label)
        self.id = new_session_id() + sessions_around()
        """The characters that its owner ids begin with: who looks at the store knows them by that."""
        self.generation = forks.current()
        self.home = here()
        # Guards the state of every lease here, and is only ever held for a few statements. It is
        # needed in asyncio too: a lease may be asked, and a clock moved, from another thread.
        # One that may be entered again, because a signal's handler may release a lease.
        self.mutex = forks.mutex()
        self.leases: dict[str, Hold] = {}
        """The leases that are held, by owner."""
        self.recalled: dict[str, Hold] = {}
        """The leases that have ended for us, and have still to be freed at the store or told of, by
        owner."""
        self.tickets: dict[str, Ticket] = {}
        """The attempts under way, by owner. `close` waits until each has left nothing behind."""
        self.waiters: dict[str, Waiter] = {}
        """The attempts that are in a queue, by owner."""
        self.observers: dict[str, Ticket] = {}
        """The observers of elections, by owner."""
        self.body_signals: list[Signal] = []
        """The signals of those who wait for the end of bodies."""
        self.reentrant: dict[tuple[str, object], Hold] = {}
        """Leases that may be taken again: by name, and by the task or thread that holds them."""
        self.renewals = Renewals(self)
        self.alarm = Alarm(self.clock)
        self.keeper = Keeper(self)
        self.pending_releases = PendingReleases(self)
        self.closed = False
        """Being closed, or closed: nothing is granted or renewed any more."""
        self.finished = False
        """Closed to its end."""
        self.closing = Closing(self)
        self.callers: set[object] = set()
        """The tasks or threads that are inside a user's callback or listener."""
        self.patience = IO_LIMIT
        """Seconds that the store is given to answer."""
        self._burned: dict[str, None] = {}
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
            if not isinstance(one, Waiter) and not one._wants_renewal():
                in_background(partial(self._ask_about, one), self.home)
            elif one._kept:
                self.keeper.hurry(one, now)
            elif isinstance(one, Waiter) and not one.ended:
                self.keeper.keep(one, now)

    async def _ask_about(self, hold: Hold) -> None:
        """Ends a lease that is not renewed, if the store does not have it any more."""
        try:
            state = await self.backend.inspect(hold.name, self.deadline())
        except LockError:
            return  # it ends with its TTL
        if hold._releases or hold._detaching:
            return  # that is no loss
        if all(holder.owner != hold.owner for holder in state.holders):
            hold._end("the store says that it has ended")

    # Attempts.

    def begin(self, request: Request, owner: str, queue: bool, give_up: float | None) -> Ticket:
        """Returns the ticket of a new attempt, known here before anything is sent."""
        if len(self.leases) >= self._sweep_at:
            self._sweep()
        ticket = Ticket(request.terms_for(self), owner, queue)
        ticket.until = give_up
        ticket.runner = current()
        # Nothing is called behind this: a signal's handler could raise there, before the caller has it.
        # No mutex: this first writes and then looks; `close` first says so, and then looks.
        self.tickets[owner] = ticket
        if self.closed:
            self.leave(owner)
            self.check_open()
        return ticket

    def hold(
        self, request: Request, ticket: Ticket, token: int, ttl: float, sent: float
    ) -> Hold | None:
        """Returns the hold that was granted in reply to what was sent at `sent`.

        None if that came too late to be of use: the attempt has to be given up.
        """
        clock = self.now
        hold = self._new_hold(request, ticket, token, ttl, sent, clock(), Usage(self.mutex))
        if hold is None:
            return None
        with self.mutex:
            if self.closed:
                return None
            self.leases[ticket.owner] = hold
            self.tickets.pop(ticket.owner, None)
        due = hold._due(sent)
        if due is not None:
            self.keeper.keep(hold, due)
        return hold

    def hold_all(
        self,
        requests: Sequence[Request],
        tickets: Sequence[Ticket],
        grants: Sequence[Granted],
        sent: float,
    ) -> list[Hold] | None:
        """Returns the holds that were granted together, which have one usage.

        None if any came too late to be of use.
        """
        now = self.now()
        usage = Usage(self.mutex)
        holds: list[Hold] = []
        for request, ticket, grant in zip(requests, tickets, grants, strict=True):
            begun = grant.since or sent
            hold = self._new_hold(request, ticket, grant.token, grant.ttl, begun, now, usage)
            if hold is None:
                return None
            holds.append(hold)
        with self.mutex:
            if self.closed:
                return None
            for hold in holds:
                owner = hold._ticket.owner
                self.leases[owner] = hold
                self.tickets.pop(owner, None)
        for hold, grant in zip(holds, grants, strict=True):
            due = hold._due(grant.since or sent)
            if due is not None:
                self.keeper.keep(hold, due)
        return holds

    def _new_hold(
        self,
        request: Request,
        ticket: Ticket,
        token: int,
        ttl: float,
        sent: float,
        now: float,
        usage: Usage,
    ) -> Hold | None:
        """Returns a hold that nobody knows of yet; None if it is over by `now`."""
        delay = ticket.terms.delay
        if delay and ttl <= delay:
            store = self.backend.guarantees.store
            raise GuaranteeError(
                f"{ticket.name!r} cannot have a lock_delay of {delay:g} s: {store} gives leases of at "
                f"most {ttl:g} s, and the delay is part of them",
                name=ticket.name,
            )
        deadline = sent + ttl - delay - drift_margin(ttl)
        if deadline <= now:
            return None
        ticket.ttl = ttl
        hold = request.hold_type(self, request, ticket, usage)
        hold._grant(token, ttl - delay, deadline, now)
        return hold

    def leave(self, owner: str) -> None:
        """Forgets an attempt that ended without a grant, and of which nothing is left."""
        waiter = self.waiters.get(owner)
        if waiter is not None:
            waiter.end()
        with self.mutex:
            self.tickets.pop(owner, None)
            if self.closed:
                self.closing.drained.set()

    async def give_up(self, ticket: Ticket, silent: bool = False) -> LockError | None:
        """Ends an attempt of which the store may know something, as `clean_up` does."""
        if self.generation != forks.current():
            return None  # and no mutex, which another thread of the parent may have had at the fork
        waiter = self.waiters.get(ticket.owner)
        if waiter is not None:
            waiter.end()
        lease = self.leases.get(ticket.owner)
        if lease is not None:  # interrupted on the threshold: nobody else has it
            self.keeper.forget(lease)
            lease._freed(True)
        try:
            return await self.clean_up(ticket, silent)
        finally:
            self.leave(ticket.owner)

    def give_up_later(self, ticket: Ticket) -> None:
        """Does as `give_up`, in the background; also what one that was interrupted has left."""
        lease = self.leases.get(ticket.owner)
        if lease is not None:
            lease._free_later()
        else:
            self.pending_releases.add(ticket)
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

    async def clean_up(self, ticket: Ticket, silent: bool = False) -> LockError | None:
        """Leaves nothing of this attempt on the store, whatever happens to the caller meanwhile.

        `silent`: the store has just failed to answer, so do not hope for much now. Returns the error
        if the store could not be told, which is then tried again in the background.
        """
        if self.generation != forks.current():
            return None  # it is the parent's, who is in the middle of it
        limit = SILENT_CLEAN_UP_LIMIT if silent else CLEAN_UP_LIMIT
        failure: LockError | None = None

        async def leave() -> None:
            nonlocal failure
            deadline = self.clock.now() + min(limit, self.patience)
            try:
                await self.backend.release(ticket.name, ticket.owner, deadline)
            except LockError as error:
                # Unrenewed, it ends by itself in any case: a place in the queue soon, a grant with
                # its TTL.
                self.closing.note_silence()
                self.pending_releases.add(ticket, error)
                failure = error

        try:
            self.closing.share_rest()
            await finish(leave, grace=self.patience)
        except BaseException:
            self.pending_releases.add(ticket)  # it is harmless to release it twice
            raise
        return failure

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
        outer = caller in self.callers
        try:
            self.callers.add(caller)
            function(argument)
        finally:
            if not outer:
                self.callers.discard(caller)

    # Its end.

    def body_ended(self) -> None:
        """Notes that a body of `with` has ended: `close` may be waiting for it, or who resigns."""
        for signal in list(self.body_signals):
            signal.set()
        if self.closed:
            self.closing.drained.set()

    async def close(self, caller: object = None) -> None:
        """Ends every wait and every lease, and lets go of the store.

        `caller` is the task or thread that closes: a body that it runs itself is not waited for. Of
        several at once one does the work, and the others wait for it. A call that was interrupted may
        be repeated, and finishes what is left. From the first one on nothing is renewed.
        """
        await self.closing.run(caller)

    def drop(self, interrupted: bool) -> None:
        """Closes the session in the background, because its manager is gone; unless it holds a lease.

        `interrupted`: the manager's `close` was begun and not finished, so leases are ended, too.
        Called where an object is finalized, so this takes no mutex.
        """
        cut_off: Callable[[], object] | None = None
        # unasync: aio-only
        cut_off = self.closing.strand_if_ended
        # unasync: end
        if interrupted or not (self.leases or self.tickets):
            in_background(self.close, self.home, cut_off)

    def check_open(self) -> None:
        forks.refuse_inherited(self.generation)
        if self.closed:
            raise LockError("this connection is closed; call connect() for a new one")
