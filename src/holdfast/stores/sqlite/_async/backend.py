"""`sqlite:///path`: the adapter to the embedded store.

Its calls block for some ten microseconds, or as long as the disk takes; so asyncio makes them on a
thread of its own. A waiter is woken by a datagram; the first in line also watches the holder's
process, to ask again the moment it dies, and to be awake when it releases.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from threading import RLock
from typing import Any

from ...._runtime.aio import Poller, Worker, finish
from ....clock import BootClock
from ....entries import MISSED_HEARTBEATS, SEPARATOR, Ask, Claim, Entry
from ....guarantees import Guarantees
from ....model import Busy, Gone, Granted, LockState, Outcome, Queued, Renewed
from ..._async.contract import OPEN_LIMIT, Backend, Ticket
from ...timing import TIMING_OPTIONS, Timing, timing_of
from ...urls import Target, merge_options
from .. import guarantees
from .. import location as place
from ..mailbox import Mailbox
from ..presence import stirred
from ..store import Store


def prepare(
    target: Target, namespace: str, options: dict[str, Any]
) -> tuple[Guarantees, Callable[[], Backend]]:
    """Check everything that can be checked without opening; answers how to open."""
    known = {**TIMING_OPTIONS}
    settings = merge_options(target, options, known)
    timing = timing_of(settings)
    path = place.path_of_url(f"sqlite://{target.rest}")
    place.refuse_unsuitable(path)
    return guarantees.SQLITE, lambda: SqliteBackend(path, namespace, timing)


class SqliteBackend:
    guarantees = guarantees.SQLITE

    def __init__(self, path: str, namespace: str, timing: Timing) -> None:
        self._path = path
        self._prefix = namespace + SEPARATOR
        self.clock = BootClock()
        self.heartbeat, self.claim_window = timing
        self._worker = Worker("holdfast-sqlite")
        self._poller = Poller("holdfast-wakeups")
        self._mutex = RLock()
        self._mailbox: Mailbox | None = None
        self._tickets: dict[str, Ticket] = {}
        """Those that wait, by owner."""
        self._watches: dict[str, dict[str, int]] = {}
        self._store: Store

    async def open(self, deadline: float) -> None:
        made: list[Store] = []

        def undo() -> None:
            for store in made:
                store.close(deadline)

        async def undone() -> None:
            await self._worker.call(undo)  # behind what may still be under way
            self._worker.close()

        try:
            await self._worker.call(lambda: made.append(Store(self._path)))
            (self._store,) = made
            await self._worker.call(self._store.open, deadline)
        except BaseException:
            await finish(undone, grace=OPEN_LIMIT)
            raise

    async def acquire(self, ticket: Ticket, deadline: float) -> Granted | Queued | Busy:
        ask = Ask(
            self._prefix + ticket.name,
            ticket.owner,
            ticket.ttl,
            ticket.weight,
            ticket.capacity,
            ticket.kind,
            ticket.queue and self._mailbox is not None,
            ticket.barge,
            self.claim_window,
            self.heartbeat * MISSED_HEARTBEATS,
            ticket.label,
        )
        if ask.queue:
            self._tickets[ticket.owner] = ticket
        answer, blockers = await self._worker.call(self._store.acquire, ask, deadline)
        if isinstance(answer, Busy) and ticket.queue and not ask.queue:
            # The first who has to wait: from now on there is a place to be woken.
            self._open_mailbox()
            self._tickets[ticket.owner] = ticket
            ask.queue = True
            answer, blockers = await self._worker.call(self._store.acquire, ask, deadline)
        if blockers:
            self._watch(blockers)
        if self._tickets and not isinstance(answer, Queued):
            self._tickets.pop(ticket.owner, None)
        return answer

    async def renew(self, claims: Sequence[Claim], deadline: float) -> Sequence[Outcome]:
        prefix = self._prefix
        full = [Claim(prefix + name, owner, ttl) for name, owner, ttl in claims]
        outcomes, blockers = await self._worker.call(self._store.renew, full, deadline)
        if self._watches or self._tickets:
            for claim, outcome in zip(claims, outcomes, strict=True):
                if isinstance(outcome, Renewed | Gone):
                    self._forget(claim.owner)
            for owner in list(self._watches):
                if owner not in self._tickets:
                    self._unwatch(owner)  # handed over, and perhaps lost before it was renewed
        if blockers:
            self._watch(blockers)
        return outcomes

    async def release(self, name: str, owner: str, deadline: float) -> bool:
        try:
            return await self._worker.call(
                self._store.release, self._prefix + name, owner, deadline
            )
        finally:
            # After it, as somebody may wait for the lock.
            if owner in self._tickets or owner in self._watches:
                self._forget(owner)

    async def wait(self, ticket: Ticket, until: float | None) -> Granted | None:
        # Whom it watched is forgotten with its release: now there is no time for that.
        return await ticket.wait(self.clock, until, self._poller)

    async def inspect(self, name: str, deadline: float) -> LockState:
        return self._shown(
            await self._worker.call(self._store.inspect, self._prefix + name, deadline)
        )

    async def list(self, prefix: str, deadline: float) -> Sequence[LockState]:
        states = await self._worker.call(self._store.list, self._prefix + prefix, deadline)
        return [self._shown(state) for state in states]

    async def force_release(self, name: str, actor: str, deadline: float) -> bool:
        return await self._worker.call(
            self._store.force_release, self._prefix + name, actor, deadline
        )

    async def tether(self, name: str, owner: str, deadline: float) -> int | None:
        return await self._worker.call(self._store.tether, self._prefix + name, owner, deadline)

    async def close(self) -> None:
        with self._mutex:
            self._watches.clear()
        self._poller.close()
        if self._mailbox is not None:
            self._mailbox.close()
        await self._worker.call(self._store.close)
        self._worker.close()

    def _shown(self, state: LockState) -> LockState:
        return state._replace(name=state.name[len(self._prefix) :])

    # Being woken.

    def _open_mailbox(self) -> None:
        with self._mutex:
            if self._mailbox is None:
                mailbox = Mailbox(self._store.live, self._store.process)
                self._poller.watch(os.dup(mailbox.fileno()), self._mail)
                self._store.address = mailbox.address
                self._mailbox = mailbox

    def _mail(self) -> bool:
        """Whether there was any."""
        found = False
        if self._mailbox is not None:
            # One at a time: whoever polls comes back while there are more.
            for message in self._mailbox.receive(1):
                found = True
                owner, _, number = message.decode("ascii", "replace").partition(" ")
                ticket = self._tickets.get(owner)
                if ticket is not None and number.isdecimal():
                    token = int(number)
                    if token:
                        self._tickets.pop(owner, None)
                        self._store.active = self.clock.now()
                    ticket.tell(Granted(token, ticket.ttl, True) if token else None)
        return found

    def _watch(self, blockers: Mapping[str, Sequence[Entry]]) -> None:
        """Have each of these waiters ask again when a holder that it waits for has died."""
        for owner, holders in blockers.items():
            ticket = self._tickets.get(owner)
            if ticket is None:
                continue
            for holder in holders:
                if holder.process and holder.process != self._store.process:
                    self._watch_one(owner, ticket, holder.process)
                    # In this order: a death before the watch is seen by the question.
                    if self._store.dead(holder):
                        ticket.tell()

    def _watch_one(self, owner: str, ticket: Ticket, process: str) -> None:
        with self._mutex:
            if self._tickets.get(owner) is not ticket:
                return  # given up meanwhile
            watched = self._watches.setdefault(owner, {})
            if process not in watched:
                fd = self._store.watch(process)
                if fd is not None:
                    watched[process] = fd
                    self._poller.watch(fd, self._news(owner, ticket, process, fd))

    def _news(self, owner: str, ticket: Ticket, process: str, fd: int) -> Callable[[], None]:
        def ready() -> None:
            with self._mutex:  # under which it is still open, or not there any more
                if self._watches.get(owner, {}).get(process) != fd:
                    return
                stirs = stirred(fd)
            if stirs:
                # It releases something, perhaps what we wait for: a hint, like every wake-up. While
                # it does, fetch the code that a grant will run into the processor's caches.
                Ticket(ticket.terms, "").tell(Granted(0, ticket.ttl, True))
                self._poller.expect(self._mail)
            else:
                self._unwatch(owner)
                ticket.tell()

        return ready

    def _forget(self, owner: str) -> None:
        """It does not wait any more."""
        with self._mutex:
            self._tickets.pop(owner, None)
        self._unwatch(owner)

    def _unwatch(self, owner: str) -> None:
        with self._mutex:
            watched = self._watches.pop(owner, {})
        for fd in watched.values():
            self._poller.unwatch(fd)
