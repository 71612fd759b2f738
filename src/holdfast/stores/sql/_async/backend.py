"""The adapter to a database. Its calls block, so asyncio makes them on worker threads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from ...._runtime.aio import Poller, Worker, finish
from ....clock import system_clock
from ....entries import MISSED_HEARTBEATS, AcquireRequest, Claim
from ....errors import BackendUnavailable, LockError
from ....guarantees import Guarantees
from ....model import Busy, Gone, Granted, LockState, Observation, Outcome, Queued, Renewed
from ..._async.contract import OBSERVED_FOR, OPEN_LIMIT, Backend, Ticket
from ..._async.turnstile import Turnstile
from ...timing import Timing, timing_of
from ...urls import Target, merge_options
from ..options import SQL_OPTIONS, connections_of
from ..store import Database, SqlStore
from .wakeups import Listener, Wakeups


def prepared(
    target: Target,
    namespace: str,
    options: dict[str, Any],
    database: Database,
    listener: Listener | None,
    promised: Guarantees,
) -> tuple[Guarantees, Callable[[], Backend]]:
    """Checks the options that all databases have; returns the guarantees and the opener."""
    settings = merge_options(target, options, dict(SQL_OPTIONS))
    timing = timing_of(settings)
    connections = connections_of(settings)

    def opener() -> Backend:
        return SqlBackend(database, listener, promised, namespace, timing, connections)

    return promised, opener


class SqlBackend:
    """The adapter to one database, for one namespace."""

    def __init__(
        self,
        database: Database,
        listener: Listener | None,
        guarantees: Guarantees,
        namespace: str,
        timing: Timing,
        connections: int,
    ) -> None:
        self.guarantees = guarantees
        self.clock = system_clock()
        self.heartbeat, self.claim_window = timing
        self._address = database.address
        self._store = SqlStore(database, namespace, self.clock, connections)
        self._turnstile = Turnstile(connections, self.clock)
        self._worker = Worker("holdfast-sql", connections)
        self._keeper = Worker("holdfast-sql-keeping")
        """Renewals wait for nobody."""
        self._poller = Poller("holdfast-wakeups")
        self._wakeups = Wakeups(self._store, listener, self._worker, self._poller, self.clock)
        self._closed = False

    @property
    def look(self) -> Callable[[Iterable[str]], None]:
        """The function that is called with owners whose leases were ended by force."""
        return self._wakeups.recall

    @look.setter
    def look(self, look: Callable[[Iterable[str]], None]) -> None:
        self._wakeups.recall = look

    async def open(self, deadline: float) -> None:
        async def undone() -> None:
            await self.close()

        try:
            await self._worker.call(self._store.open, deadline)
        except BaseException:
            await finish(undone, grace=OPEN_LIMIT)
            raise

    async def acquire(self, ticket: Ticket, deadline: float) -> Granted | Queued | Busy:
        self._refuse_if_closed()
        wakeups = self._wakeups
        queue = ticket.queue and wakeups.ready
        answer, deadline = await self._turnstile.ask(
            partial(self._acquire, ticket, queue), deadline, ticket.until, self._too_late
        )
        if isinstance(answer, Busy) and ticket.queue and not queue:
            # The first waiter: from now on there is something to wake it.
            await wakeups.prepare(deadline)
            answer = await self._acquire(ticket, True, deadline)
        if isinstance(answer, Busy) and self._store.doubts(ticket.owner):
            # A copy of the request may still arrive, and nobody would know of its grant.
            await self._worker.call(self._store.release, ticket.name, ticket.owner, deadline)
        return answer

    async def _acquire(
        self, ticket: Ticket, queue: bool, deadline: float
    ) -> Granted | Queued | Busy:
        wakeups = self._wakeups
        if queue:
            wakeups.add(ticket)
        self._store.doubt(ticket.owner)
        answer = None
        try:
            answer = await self._worker.call(
                self._store.acquire, self._request(ticket, queue), wakeups.home, deadline
            )
        finally:
            if not isinstance(answer, Queued):
                wakeups.drop(ticket.owner)
        self._turnstile.answered()
        if isinstance(answer, Granted):
            wakeups.granted(ticket.owner)
        return answer

    def _request(self, ticket: Ticket, queue: bool = False) -> AcquireRequest:
        return AcquireRequest(
            ticket.name,
            ticket.owner,
            ticket.ttl,
            ticket.weight,
            ticket.capacity,
            ticket.kind,
            queue,
            ticket.barge,
            self.claim_window + ticket.terms.delay,
            self.heartbeat * MISSED_HEARTBEATS,
            ticket.label,
        )

    async def acquire_all(
        self, tickets: Sequence[Ticket], deadline: float
    ) -> Sequence[Granted] | Busy:
        self._refuse_if_closed()
        for ticket in tickets:
            self._store.doubt(ticket.owner)
        requests = [self._request(ticket) for ticket in tickets]
        answer = await self._worker.call(
            self._store.acquire_all, requests, self._wakeups.home, deadline
        )
        for ticket in tickets:
            if not isinstance(answer, Busy):
                self._wakeups.granted(ticket.owner)
            elif self._store.doubts(ticket.owner):
                await self._worker.call(self._store.release, ticket.name, ticket.owner, deadline)
        return answer

    def doubt(self, owner: str) -> None:
        """Notes that an acquire of `owner`, which another process sent, may still arrive."""
        self._store.doubt(owner)

    async def adopt(self, ticket: Ticket, giver: str, deadline: float) -> Granted | Gone:
        self._refuse_if_closed()
        self._store.doubt(ticket.owner)
        answer = await self._worker.call(
            self._store.adopt, self._request(ticket), giver, self._wakeups.home, deadline
        )
        if isinstance(answer, Granted):
            self._wakeups.granted(ticket.owner)
        elif self._store.doubts(ticket.owner):
            await self._worker.call(self._store.release, ticket.name, ticket.owner, deadline)
        return answer

    async def amend(
        self, name: str, owner: str, deadline: float, weight: int = 0, text: str | None = None
    ) -> bool:
        self._refuse_if_closed()
        return await self._worker.call(self._store.amend, name, owner, weight, text, deadline)

    async def detach(self, name: str, owner: str, ttl: float, deadline: float) -> bool:
        self._refuse_if_closed()
        return await self._worker.call(self._store.detach, name, owner, ttl, deadline)

    async def observe(self, ticket: Ticket, after: int, deadline: float) -> Observation:
        self._refuse_if_closed()
        wakeups = self._wakeups
        if not wakeups.ready:
            await wakeups.prepare(deadline)
        channel = wakeups.channel
        known = ticket.owner in wakeups.tickets
        wakeups.observe(ticket)
        observation = None
        try:
            observation = await self._worker.call(
                self._store.observe,
                ticket.name,
                ticket.owner,
                after,
                OBSERVED_FOR,
                channel,
                deadline,
            )
        finally:
            if observation is None and not known:
                wakeups.drop(ticket.owner)
        await wakeups.check(channel, [ticket.owner], deadline)
        return observation

    async def unobserve(self, ticket: Ticket, deadline: float) -> None:
        self._refuse_if_closed()
        self._wakeups.drop(ticket.owner)
        await self._worker.call(self._store.unobserve, ticket.owner, deadline)

    async def renew(self, claims: Sequence[Claim], deadline: float) -> Sequence[Outcome]:
        self._refuse_if_closed()
        waiting = self._wakeups.tickets
        channel = self._wakeups.channel
        outcomes = await self._keeper.call(
            self._store.renew, claims, frozenset(waiting), channel, deadline
        )
        if waiting:
            for claim, outcome in zip(claims, outcomes, strict=True):
                if isinstance(outcome, Renewed | Gone):
                    self._wakeups.drop(claim.owner)
            await self._wakeups.check(channel, [claim.owner for claim in claims], deadline)
        return outcomes

    async def release(self, name: str, owner: str, deadline: float) -> bool:
        self._refuse_if_closed()
        self._wakeups.drop(owner)
        return await self._worker.call_ahead(self._store.release, name, owner, deadline)

    async def wait(self, ticket: Ticket, until: float | None) -> Granted | None:
        return await ticket.wait(self.clock, until, self._poller)

    async def inspect(self, name: str, deadline: float) -> LockState:
        self._refuse_if_closed()
        return await self._worker.call(self._store.inspect, name, deadline)

    async def list(self, prefix: str, deadline: float) -> Sequence[LockState]:
        self._refuse_if_closed()
        return await self._worker.call(self._store.list_all, prefix, deadline)

    async def force_release(self, name: str, actor: str, deadline: float, above: int = 0) -> bool:
        self._refuse_if_closed()
        return await self._worker.call(self._store.force_release, name, actor, above, deadline)

    async def tether(self, name: str, owner: str, deadline: float) -> int | None:
        return None

    async def close(self, deadline: float | None = None) -> None:
        if not self._closed:
            self._closed = True
            self._wakeups.close()
            self._poller.close()
            # What was asked for is done first: a release whose caller was cancelled.
            self._worker.close(self._store.close)
            self._keeper.close()

    # unasync: aio-only
    def strand(self) -> None:
        self._closed = True
        self._wakeups.close()
        self._poller.close()
        self._worker.close(self._store.close)
        self._keeper.close()

    # unasync: end

    def _too_late(self) -> LockError:
        return BackendUnavailable(f"{self._address} did not answer in time")

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise BackendUnavailable(f"this connection to {self._address} is closed")
