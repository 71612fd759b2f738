"""`sqlite:///path`: the adapter to the embedded store.

Its calls block for some ten microseconds, or as long as the disk takes; so asyncio makes them on a
worker thread. A waiter is woken by a datagram; the first in the queue also watches the holder's
process, to ask again the moment it dies.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from threading import RLock
from typing import Any

from ...._runtime.aio import Poller, Worker, finish
from ....clock import BootClock
from ....entries import MISSED_HEARTBEATS, SEPARATOR, AcquireRequest, Claim, Entry
from ....guarantees import Guarantees
from ....model import Busy, Gone, Granted, LockState, Observation, Outcome, Queued, Renewed
from ..._async.contract import OBSERVED_FOR, OPEN_LIMIT, Backend, Ticket
from ...timing import TIMING_OPTIONS, Timing, timing_of
from ...urls import Target, merge_options
from .. import guarantees, location
from ..mailbox import Mailbox
from ..store import Store


def prepare(
    target: Target, namespace: str, options: dict[str, Any]
) -> tuple[Guarantees, Callable[[], Backend]]:
    """Checks all that can be checked without opening; returns the guarantees and the opener."""
    known = {**TIMING_OPTIONS}
    settings = merge_options(target, options, known)
    timing = timing_of(settings)
    path = location.path_of_url(f"sqlite://{target.rest}")
    location.refuse_unsuitable(path)
    return guarantees.SQLITE, lambda: SqliteBackend(path, namespace, timing)


class SqliteBackend:
    """The adapter to the embedded store at one path."""

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
        """The waiting attempts, by owner."""
        self._watches: dict[str, dict[str, int]] = {}
        """The descriptors by which a waiter (by owner) watches holders' processes (by name)."""
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

    def is_inside(self, thread: int) -> bool:
        """Tells whether that thread is inside a step, under a signal's handler."""
        return self._store.is_inside(thread)

    async def acquire(self, ticket: Ticket, deadline: float) -> Granted | Queued | Busy:
        request = self._request(ticket)
        if request.queue:
            self._tickets[ticket.owner] = ticket
        answer, blockers = await self._worker.call(self._store.acquire, request, deadline)
        if isinstance(answer, Busy) and ticket.queue and not request.queue:
            # The first waiter of this manager: from now on there is a mailbox to wake it.
            self._open_mailbox()
            self._tickets[ticket.owner] = ticket
            request.queue = True
            answer, blockers = await self._worker.call(self._store.acquire, request, deadline)
        if blockers:
            self._watch_holders(blockers)
        if self._tickets and not isinstance(answer, Queued):
            self._tickets.pop(ticket.owner, None)
        return answer

    async def acquire_all(
        self, tickets: Sequence[Ticket], deadline: float
    ) -> Sequence[Granted] | Busy:
        requests = [self._request(ticket) for ticket in tickets]
        return await self._worker.call(self._store.acquire_all, requests, deadline)

    def _request(self, ticket: Ticket) -> AcquireRequest:
        terms = ticket.terms
        return AcquireRequest(
            self._prefix + terms.name,
            ticket.owner,
            ticket.ttl,
            terms.weight,
            terms.capacity,
            terms.kind,
            ticket.queue and bool(self._store.address),
            terms.barge,
            self.claim_window + terms.delay,
            self.heartbeat * MISSED_HEARTBEATS,
            terms.label,
            terms.bound and not terms.delay,
        )

    async def renew(self, claims: Sequence[Claim], deadline: float) -> Sequence[Outcome]:
        prefix = self._prefix
        full = [Claim(prefix + name, owner, ttl) for name, owner, ttl in claims]
        outcomes, blockers = await self._worker.call_ahead(self._store.renew, full, deadline)
        if self._watches or self._tickets:
            for claim, outcome in zip(claims, outcomes, strict=True):
                if isinstance(outcome, Renewed | Gone):
                    self._stop_waiting(claim.owner)
            for owner in list(self._watches):
                if owner not in self._tickets:
                    self._unwatch(owner)  # handed over, and perhaps lost before it was renewed
        if blockers:
            self._watch_holders(blockers)
        return outcomes

    async def release(self, name: str, owner: str, deadline: float) -> bool:
        try:
            return await self._worker.call(
                self._store.release, self._prefix + name, owner, deadline
            )
        finally:
            # After the step, as others may wait for the lock.
            if owner in self._tickets or owner in self._watches:
                self._stop_waiting(owner)

    async def wait(self, ticket: Ticket, until: float | None) -> Granted | None:
        # Its watches are ended when it releases: to do it here would delay the grant.
        return await ticket.wait(self.clock, until, self._poller)

    async def inspect(self, name: str, deadline: float) -> LockState:
        return self._without_namespace(
            await self._worker.call(self._store.inspect, self._prefix + name, deadline)
        )

    async def list(self, prefix: str, deadline: float) -> Sequence[LockState]:
        states = await self._worker.call(self._store.list, self._prefix + prefix, deadline)
        return [self._without_namespace(state) for state in states]

    async def force_release(self, name: str, actor: str, deadline: float, above: int = 0) -> bool:
        return await self._worker.call(
            self._store.force_release, self._prefix + name, actor, deadline, above
        )

    async def amend(
        self, name: str, owner: str, deadline: float, weight: int = 0, text: str | None = None
    ) -> bool:
        full = self._prefix + name
        return await self._worker.call(self._store.amend, full, owner, weight, text, deadline)

    async def detach(self, name: str, owner: str, ttl: float, deadline: float) -> bool:
        full = self._prefix + name
        return await self._worker.call(self._store.detach, full, owner, ttl, deadline)

    async def adopt(self, ticket: Ticket, giver: str, deadline: float) -> Granted | Gone:
        request = self._request(ticket)
        return await self._worker.call(self._store.adopt, request, giver, deadline)

    async def observe(self, ticket: Ticket, after: int, deadline: float) -> Observation:
        self._open_mailbox()
        self._tickets[ticket.owner] = ticket
        return await self._worker.call(
            self._store.observe,
            self._prefix + ticket.name,
            ticket.owner,
            after,
            OBSERVED_FOR,
            deadline,
        )

    async def unobserve(self, ticket: Ticket, deadline: float) -> None:
        self._tickets.pop(ticket.owner, None)
        await self._worker.call(
            self._store.unobserve, self._prefix + ticket.name, ticket.owner, deadline
        )

    async def tether(self, name: str, owner: str, deadline: float) -> int | None:
        return await self._worker.call(self._store.tether, self._prefix + name, owner, deadline)

    async def close(self, deadline: float | None = None) -> None:
        with self._mutex:
            self._watches.clear()
        self._poller.close()
        if self._mailbox is not None:
            self._mailbox.close()
        await self._worker.call(self._store.close)
        self._worker.close()

    # unasync: aio-only
    def strand(self) -> None:
        self._poller.close()
        if self._mailbox is not None:
            self._mailbox.close()
        self._worker.close(self._store.close)

    # unasync: end

    def _without_namespace(self, state: LockState) -> LockState:
        return state._replace(name=state.name[len(self._prefix) :])

    # Being woken.

    def _open_mailbox(self) -> None:
        """Makes the mailbox, and listens to it."""
        with self._mutex:
            if self._mailbox is None:
                self._mailbox = Mailbox(self._store.folder, self._store.process)
            if not self._store.address:
                self._poller.watch(self._mailbox.duplicate(), self._read_mail)
                self._store.address = self._mailbox.address

    def _read_mail(self) -> None:
        """Reads one wake-up, and passes it on. The poller calls again while there are more."""
        if self._mailbox is not None:
            for message in self._mailbox.receive(1):
                owner, _, number = message.decode("ascii", "replace").partition(" ")
                ticket = self._tickets.get(owner)
                if ticket is not None and number.isdecimal():
                    token = int(number)
                    if token:
                        self._tickets.pop(owner, None)
                    ticket.tell(Granted(token, ticket.ttl, True) if token else None)

    def _watch_holders(self, blockers: Mapping[str, Sequence[Entry]]) -> None:
        """Has each of these waiters ask again when a holder that it waits for has died."""
        for owner, holders in blockers.items():
            ticket = self._tickets.get(owner)
            if ticket is None:
                continue
            for holder in holders:
                if holder.process and holder.process != self._store.process:
                    self._watch_process(owner, ticket, holder.process)
                    # In this order: a death before the watch began is seen here.
                    if self._store.is_dead(holder):
                        ticket.tell()

    def _watch_process(self, owner: str, ticket: Ticket, process: str) -> None:
        """Watches a holder's process on behalf of a waiter."""
        with self._mutex:
            if self._tickets.get(owner) is not ticket:
                return  # given up meanwhile
            watched = self._watches.setdefault(owner, {})
            if process not in watched:
                opened: list[int] = []
                try:
                    self._store.watch(process, opened)
                    for fd in opened:
                        self._poller.watch(fd, self._on_hang_up(owner, ticket, process, fd))
                        watched[process] = fd
                except BaseException:  # raised by a signal's handler
                    for fd in opened:
                        if not self._poller.unwatch(fd):
                            os.close(fd)
                    raise

    def _on_hang_up(self, owner: str, ticket: Ticket, process: str, fd: int) -> Callable[[], None]:
        """Returns a function to call when that process has died."""

        def ready() -> None:
            with self._mutex:
                if self._watches.get(owner, {}).get(process) != fd:
                    return
            self._unwatch(owner)
            ticket.tell()

        return ready

    def _stop_waiting(self, owner: str) -> None:
        """Forgets a waiter that was granted the lock or gave up."""
        with self._mutex:
            self._tickets.pop(owner, None)
        self._unwatch(owner)

    def _unwatch(self, owner: str) -> None:
        """Ends all watches of a waiter."""
        with self._mutex:
            watched = self._watches.get(owner, {})
            for process, fd in list(watched.items()):
                del watched[process]
                # Twice, as a signal's handler may raise at its very entry. The next call ends what is
                # left then.
                try:
                    self._poller.unwatch(fd)
                except BaseException:
                    self._poller.unwatch(fd)
                    raise
            self._watches.pop(owner, None)
