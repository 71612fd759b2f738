"""What all locks of one connection share: the backend, the keeper, the alarm, and who holds what.

A session is made on first use, belongs to one process (and, in asyncio, to one event loop), and
is never used by a forked child: the manager makes a new one there.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from threading import RLock
from typing import TYPE_CHECKING

from .. import forks
from .._runtime.aio import Alarm, Signal, finish, here
from ..errors import LockError
from ..events import Event, Listeners
from ..lifecycle import handed_for
from ..model import Label
from ..refusals import owner_used_again
from ..stores._async.contract import Backend, Ticket
from .keeper import Keeper
from .pending_releases import Debts

if TYPE_CHECKING:
    from .lease import Lease

IO_LIMIT = 5.0
"""Seconds after which a call to the store counts as failed."""
LEAST_LIMIT = 2.0
"""Seconds that the store is given to answer somebody who does not want to wait as long."""
LEAVING, LEAVING_THE_SILENT = 2.0, 0.25
"""Seconds that a caller waits for its clean-up; less if the store has just failed to answer it."""
MANY = 1000
"""Leases among which those that have run out are looked for; then again when they are twice as many."""
REMEMBERED_OWNERS = 10_000


class Session:
    __slots__ = (
        "alarm",
        "attempts",
        "backend",
        "burned",
        "claim",
        "claim_window",
        "clock",
        "closed",
        "debts",
        "drained",
        "full",
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
        "realm",
        "reentrant",
    )

    def __init__(self, backend: Backend, listeners: Listeners, label: str, realm: str = "") -> None:
        self.backend = backend
        self.realm = realm
        """Where the tokens of all its locks are counted."""
        self.clock = backend.clock
        self.now = backend.clock.now
        self.claim_window = backend.claim_window
        self.claim = handed_for(backend.claim_window)
        self.heartbeat = backend.heartbeat
        self.listeners = listeners
        self.label = Label(os.uname().nodename, os.getpid(), label)
        self.generation = forks.generation
        self.home = here()
        # Guards the state of every lease here, and is only ever held for a few statements. It is
        # needed in asyncio too: a lease may be asked, and a clock moved, from another thread.
        # One that may be entered again, because a signal's handler may release a lease.
        self.mutex = RLock()
        self.leases: dict[str, Lease] = {}
        self.full = MANY
        """By owner: those held, and those asked for."""
        self.burned: dict[str, None] = {}
        self.reentrant: dict[tuple[str, object], Lease] = {}
        """Those that may be taken again: by name, and by the task or thread that has it."""
        self.alarm = Alarm(self.clock)
        self.keeper = Keeper(self)
        self.debts = Debts(self)
        self.closed = False
        self.patience = IO_LIMIT
        self.attempts: set[str] = set()
        """Those that `close` found under way; it waits for them, so that each leaves nothing behind."""
        self.drained = Signal(self.clock)
        if hasattr(backend, "look"):
            backend.look = self.look_at

    def look_at(self, owners: Iterable[str]) -> None:
        """The backend has news of these: ask about them now. From any thread."""
        now = self.clock.now()
        for owner in owners:
            lease = self.leases.get(owner)
            if lease is None:
                continue
            if lease._kept:
                self.keeper.hurry(lease, now)
            elif lease._waiting():
                self.keeper.keep(lease, now)

    def sweep(self) -> None:
        """Forget leases that have run out unseen: not renewed, not released, looked at by nobody."""
        for lease in list(self.leases.values()):
            lease._look()
        self.full = max(MANY, 2 * len(self.leases))

    def leave(self, owner: str) -> None:
        """An attempt has ended without a grant, and nothing is left of it."""
        with self.mutex:
            self.leases.pop(owner, None)
            if owner in self.attempts:
                self.attempts.remove(owner)
                self.drained.set()

    def burn(self, owner: str) -> None:
        """Remember an owner id that came from outside: it serves for one attempt only."""
        with self.mutex:
            if owner in self.burned or owner in self.leases:
                raise owner_used_again(owner)
            self.burned[owner] = None
            if len(self.burned) > REMEMBERED_OWNERS:
                del self.burned[next(iter(self.burned))]

    def deadline(self) -> float:
        """When a call to the store that starts now must have ended."""
        return self.clock.now() + self.patience

    def deadline_for(self, sent: float, give_up: float | None) -> float:
        """The same, for a call sent then by somebody who gives up at `give_up`."""
        limit = sent + self.patience
        return limit if give_up is None else min(limit, max(give_up, sent + LEAST_LIMIT))

    def tell(
        self, kind: str, name: str, owner: str, token: int, duration: float, detail: str = ""
    ) -> None:
        if self.listeners:
            wall = self.clock.wall()
            self.listeners.tell(Event(kind, name, owner, token, duration, wall, detail))

    async def clean_up(self, ticket: Ticket, silent: bool = False) -> None:
        """Leave nothing of this attempt on the store, whatever happens to the caller meanwhile.

        `silent`: the store has just failed to answer, so do not hope for much now.
        """
        deadline = self.clock.now() + min(LEAVING_THE_SILENT if silent else LEAVING, self.patience)

        async def leave() -> None:
            try:
                await self.backend.release(ticket.name, ticket.owner, deadline)
            except LockError as error:
                # Unrenewed, it ends by itself in any case: a place in the queue soon, a grant with
                # its TTL.
                self.debts.owe(ticket, error)

        await finish(leave, grace=self.patience)

    async def close(self) -> None:
        """Give back what is held, end every wait, and let go of the store."""
        with self.mutex:
            if self.closed:
                return
            self.closed = True
            leases = list(self.leases.values())
            self.attempts = {lease.owner for lease in leases if not lease.token}
        limit: float | None = None
        for lease in leases:
            if limit is not None:
                # The store did not answer for one. All the others together get as long again.
                self.patience = max(limit - self.clock.now(), 0.0)
            if not lease.token:
                await self.clean_up(lease._ticket)
                lease._ticket.tell()  # it finds the session closed
            elif not await lease._give_all_back() and limit is None:
                limit = self.deadline()
        self.patience = IO_LIMIT
        until = self.deadline()
        while self.attempts and await self.drained.wait(until):
            pass
        await self.debts.close()
        await self.keeper.close()
        self.alarm.close()
        await self.backend.close()

    def check_open(self) -> None:
        if self.closed:
            raise LockError("this connection is closed; call connect() for a new one")
