"""`memory://` and `memory://NAME`: the adapter to a store in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from .... import forks
from ....clock import Clock
from ....entries import MISSED_HEARTBEATS, SEPARATOR, AcquireRequest, Claim
from ....errors import BackendUnavailable, ConfigError
from ....guarantees import Guarantees
from ....model import Busy, Gone, Granted, LockState, Observation, Outcome, Queued
from ..._async.contract import OBSERVED_FOR, Backend, Ticket
from ...timing import TIMING_OPTIONS, Timing, timing_of
from ...urls import Target, merge_options
from .. import guarantees
from ..store import MemoryStore, join, leave


def prepare(
    target: Target, namespace: str, options: dict[str, Any]
) -> tuple[Guarantees, Callable[[], Backend]]:
    """Checks all that can be checked without opening; returns the guarantees and the opener."""
    known = {"clock": None, **TIMING_OPTIONS}
    settings = merge_options(target, options, known)
    clock = settings["clock"]
    if clock is not None and not all(hasattr(clock, verb) for verb in ("now", "wall", "subscribe")):
        raise ConfigError("clock must be a clock, such as holdfast.clock.ManualClock()")
    timing = timing_of(settings)
    if "/" in target.rest or "@" in target.rest:
        raise ConfigError("write memory:// or memory://NAME; it has neither a path nor a user")
    return guarantees.MEMORY, lambda: MemoryBackend(target.rest, namespace, clock, timing)


class MemoryBackend:
    """The adapter to a store in this process."""

    guarantees = guarantees.MEMORY

    def __init__(
        self,
        store_name: str,
        namespace: str,
        clock: Clock | None,
        timing: Timing,
    ) -> None:
        self._store_name = store_name
        self._prefix = namespace + SEPARATOR
        self._store: MemoryStore = join(store_name, clock)
        self._made_in = forks.current()
        self._closed = False
        self.look: Callable[[Iterable[str]], None] = lambda owners: None
        self._store.backends.append(self)
        self.clock = self._store.clock
        self.heartbeat, self.claim_window = timing

    async def open(self, deadline: float) -> None:
        pass

    def is_inside(self, thread: int) -> bool:
        """Tells whether that thread is inside a step, under a signal's handler."""
        return self._store.is_inside(thread)

    async def acquire(self, ticket: Ticket, deadline: float) -> Granted | Queued | Busy:
        return self._usable_store().acquire(self._request(ticket), ticket.tell)

    async def acquire_all(
        self, tickets: Sequence[Ticket], deadline: float
    ) -> Sequence[Granted] | Busy:
        return self._usable_store().acquire_all([self._request(ticket) for ticket in tickets])

    def _request(self, ticket: Ticket) -> AcquireRequest:
        return AcquireRequest(
            self._prefix + ticket.name,
            ticket.owner,
            ticket.ttl,
            ticket.weight,
            ticket.capacity,
            ticket.kind,
            ticket.queue,
            ticket.barge,
            self.claim_window + ticket.terms.delay,
            self.heartbeat * MISSED_HEARTBEATS,
            ticket.label,
        )

    async def renew(self, claims: Sequence[Claim], deadline: float) -> Sequence[Outcome]:
        prefix = self._prefix
        return self._usable_store().renew(
            [Claim(prefix + name, owner, ttl) for name, owner, ttl in claims]
        )

    async def release(self, name: str, owner: str, deadline: float) -> bool:
        return self._usable_store().release(self._prefix + name, owner)

    async def wait(self, ticket: Ticket, until: float | None) -> Granted | None:
        return await ticket.wait(self.clock, until)

    async def inspect(self, name: str, deadline: float) -> LockState:
        return self._without_namespace(self._usable_store().inspect(self._prefix + name))

    async def list(self, prefix: str, deadline: float) -> Sequence[LockState]:
        states = self._usable_store().list(self._prefix + prefix)
        return [self._without_namespace(state) for state in states]

    async def force_release(self, name: str, actor: str, deadline: float, above: int = 0) -> bool:
        return self._usable_store().force_release(self._prefix + name, actor, above)

    async def amend(
        self, name: str, owner: str, deadline: float, weight: int = 0, text: str | None = None
    ) -> bool:
        return self._usable_store().amend(self._prefix + name, owner, weight, text)

    async def detach(self, name: str, owner: str, ttl: float, deadline: float) -> bool:
        return self._usable_store().detach(self._prefix + name, owner, ttl)

    async def adopt(self, ticket: Ticket, giver: str, deadline: float) -> Granted | Gone:
        return self._usable_store().adopt(self._request(ticket), giver)

    async def observe(self, ticket: Ticket, after: int, deadline: float) -> Observation:
        name = self._prefix + ticket.name
        until = self.clock.now() + OBSERVED_FOR
        return self._usable_store().observe(name, ticket.owner, after, until, ticket.tell)

    async def unobserve(self, ticket: Ticket, deadline: float) -> None:
        self._usable_store().unobserve(self._prefix + ticket.name, ticket.owner)

    async def tether(self, name: str, owner: str, deadline: float) -> int | None:
        return None

    async def close(self, deadline: float | None = None) -> None:
        self._leave()

    # unasync: aio-only
    def strand(self) -> None:
        """Leaves the store after the event loop has ended, in which it was not closed."""
        self._leave()

    # unasync: end
    def _leave(self) -> None:
        if not self._closed:
            self._closed = True
            if self._made_in == forks.current():
                self._store.backends.remove(self)
                leave(self._store_name, self._store)

    def _without_namespace(self, state: LockState) -> LockState:
        return state._replace(name=state.name[len(self._prefix) :])

    def _usable_store(self) -> MemoryStore:
        if self._closed:
            raise BackendUnavailable("this connection to memory:// is closed")
        if self._made_in != forks.current():
            raise BackendUnavailable(
                "this connection to memory:// belongs to the parent of this forked process"
            )
        return self._store
