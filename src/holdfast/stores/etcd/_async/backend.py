"""`etcd://`: the adapter to an etcd cluster. An ordered queue of leased keys for each lock.

Each holder of a lock, and each waiter, has a key in its queue, in the order of their creation;
`holdfast.admission` says which of them may hold it. A holder is made by a write to its own key,
and the revision of that write is the token:

- the creation of the key, if the queue is empty: one transaction;
- the transaction of a release, which grants the lock to the next as it deletes its own key;
- the waiter's own write, where nobody does that for it: on the condition that its key is as it was.

Each of them rests on conditions that etcd checks in the same step, so no stale read ever decides; and
a waiter that was admitted by an older read of the queue still is: only what stands before it matters,
and that only gets less.

A key is on a lease, which is shared (see `leases`). A waiter's is as long as the claim window,
so a dead one does not stand in the way for its whole TTL. A lock that was handed over stays on it until
the engine confirms it, which moves the key to a lease of the TTL that was asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ....clock import system_clock
from ....entries import Claim
from ....errors import BackendUnavailable, ConfigError
from ....guarantees import Guarantees
from ....model import (
    GONE,
    Busy,
    Gone,
    Granted,
    LockState,
    Observation,
    Outcome,
    Queued,
    Renewed,
    Waiting,
)
from ....refusals import owner_used_again
from ..._async.contract import Backend, Ticket
from ...timing import TIMING_OPTIONS, Timing, timing_of
from ...tls import TLS_OPTIONS
from ...urls import Target, merge_options
from .. import guarantees
from ..address import Address, address_of
from ..keys import Naming
from ..wire import messages
from ..wire.aio import Wire
from ..wire.http2.headers import require_hpack
from .acquire import Acquirer
from .adoption import Adopter
from .amendment import Amender
from .attempt import Attempt
from .attempts import Attempts
from .change_log import ChangeLog
from .force import Forcer
from .grant import Granter
from .inspection import Inspector
from .leases import Lease, Leases
from .observation import Observer
from .parts import Parts
from .release import Releaser
from .renewal import Renewer
from .retry import Retrier
from .settling import Settler
from .watches import Watches

CLAIM_WINDOW = 5.0
"""Seconds for which a waiter keeps its place without a heartbeat; a lock handed to it lasts as long."""
OPTIONS = {**TIMING_OPTIONS, "claim_window": CLAIM_WINDOW, "token_base": 0, **TLS_OPTIONS}
CLOSE_LIMIT = 2.0
"""Seconds for taking the leases away. They end by themselves, too."""


def prepare(
    target: Target, namespace: str, options: dict[str, Any]
) -> tuple[Guarantees, Callable[[], Backend]]:
    """Checks all that can be checked without opening; returns the guarantees, and how to open."""
    settings = merge_options(target, options, OPTIONS)
    timing = timing_of(settings)
    base = settings["token_base"]
    number = isinstance(base, int | float) and not isinstance(base, bool)
    if not number or not 0 <= base < 2**62 or base != int(base):
        raise ConfigError("token_base must be a whole number from 0 on, the same for every client")
    address = address_of(target, settings)
    require_hpack()
    naming = Naming(namespace)
    return guarantees.ETCD, lambda: EtcdBackend(address, naming, timing, int(base))


class EtcdBackend:
    """The adapter for one manager."""

    guarantees = guarantees.ETCD

    def __init__(
        self,
        address: Address,
        naming: Naming,
        timing: Timing,
        token_base: int,
    ) -> None:
        self._address = address
        self._naming = naming
        self.clock = clock = system_clock()
        self.heartbeat, self.claim_window = timing
        self._wire = Wire(address)
        self._retrier = retrier = Retrier(self._wire, address, clock)
        self._leases = leases = Leases(retrier, clock, self._settle, naming.root)
        self._watches = Watches(self._wire, clock)
        self._wakeups = Watches(self._wire, clock)
        self._attempts = attempts = Attempts(
            clock, naming, leases, self._watches, self._wakeups, token_base
        )
        log = ChangeLog(clock, naming, leases, token_base)
        parts = Parts(clock, naming, retrier, leases, attempts, log)
        self._releaser = Releaser(parts)
        self._settler = Settler(parts, self._releaser)
        self._granter = Granter(parts)
        self._acquirer = Acquirer(parts, self._granter, self._releaser, self.claim_window)
        self._renewer = Renewer(parts, self._granter, self._releaser)
        self._forcer = Forcer(parts, token_base, self._releaser)
        self._amender = Amender(parts, self._granter, self._releaser)
        self._adopter = Adopter(parts, self._granter)
        self._observer = Observer(parts, self._releaser, self._watches)
        self._inspector = Inspector(parts, token_base)

    @property
    def look(self) -> Callable[[Iterable[str]], None] | None:
        """The session's function to call with owners about whom `renew` is to be asked."""
        return self._attempts.ask_about

    @look.setter
    def look(self, look: Callable[[Iterable[str]], None]) -> None:
        self._attempts.ask_about = look

    async def open(self, deadline: float) -> None:
        try:
            await self._retrier.log_in(deadline)
            await self._retrier.range(messages.range_of(self._naming.root), deadline)
        except BaseException:
            await self._wire.close()
            raise

    async def acquire(self, ticket: Ticket, deadline: float) -> Granted | Queued | Busy:
        self._refuse_if_closed()
        attempt = self._attempts.enrol(ticket)
        if attempt.ticket is not ticket and not attempt.matches(ticket):
            raise owner_used_again(ticket.owner, ticket.name)
        answer = None
        if not attempt.created:
            try:
                answer, deadline = await self._acquirer.acquire(attempt, ticket.queue, deadline)
            except BaseException:
                if not attempt.may_be_stored:
                    self._attempts.forget(attempt)
                raise
            if isinstance(answer, Busy):
                await self._forget(attempt, deadline)
        return answer or await self._repeat(attempt, ticket, deadline)

    async def renew(self, claims: Sequence[Claim], deadline: float) -> Sequence[Outcome]:
        self._refuse_if_closed()
        outcomes, ended = await self._renewer.renew(claims, deadline)
        for attempt in ended:
            await self._forget(attempt, deadline)
        return outcomes

    async def release(self, name: str, owner: str, deadline: float) -> bool:
        self._refuse_if_closed()
        attempt = await self._renewer.find(name, owner, deadline)
        return attempt is not None and await self._releaser.release(attempt, deadline)

    async def wait(self, ticket: Ticket, until: float | None) -> Granted | None:
        attempt = self._attempts.known(ticket.name, ticket.owner)
        if attempt is None or not ticket.terms.bound:
            return await ticket.wait(self.clock, until)
        attempt.attend(1)
        try:
            return await ticket.wait(self.clock, until)
        finally:
            attempt.attend(-1)

    async def inspect(self, name: str, deadline: float) -> LockState:
        return await self._inspector.inspect(name, deadline)

    async def list(self, prefix: str, deadline: float) -> Sequence[LockState]:
        return await self._inspector.list(prefix, deadline)

    async def force_release(self, name: str, actor: str, deadline: float, above: int = 0) -> bool:
        return await self._forcer.force_release(name, actor, deadline, above)

    async def amend(
        self, name: str, owner: str, deadline: float, weight: int = 0, text: str | None = None
    ) -> bool:
        attempt = await self._held(name, owner, deadline)
        return attempt is not None and await self._amender.amend(attempt, weight, text, deadline)

    async def detach(self, name: str, owner: str, ttl: float, deadline: float) -> bool:
        attempt = await self._held(name, owner, deadline)
        return attempt is not None and await self._amender.detach(attempt, ttl, deadline)

    async def adopt(self, ticket: Ticket, giver: str, deadline: float) -> Granted | Gone:
        self._refuse_if_closed()
        attempt = self._attempts.enrol(ticket, adopted=True)
        if not attempt.queue.adopted or not attempt.matches(ticket):
            raise owner_used_again(ticket.owner, ticket.name)
        if not attempt.created:
            try:
                answer = await self._adopter.adopt(attempt, giver, deadline)
            except BaseException:
                if not attempt.may_be_stored:
                    self._attempts.forget(attempt)
                raise
            if isinstance(answer, Gone):
                await self._forget(attempt, deadline)
            if answer is not None:
                return answer
        claim = Claim(attempt.name, attempt.owner, attempt.ttl)
        (outcome,) = await self.renew([claim], deadline)
        if isinstance(outcome, Renewed):
            return Granted(outcome.token, outcome.ttl, since=outcome.since, slot=outcome.slot)
        return GONE

    async def observe(self, ticket: Ticket, after: int, deadline: float) -> Observation:
        self._refuse_if_closed()
        return await self._observer.observe(ticket, after, deadline)

    async def unobserve(self, ticket: Ticket, deadline: float) -> None:
        self._observer.unobserve(ticket)

    async def tether(self, name: str, owner: str, deadline: float) -> int | None:
        return None

    async def close(self, deadline: float | None = None) -> None:
        if self._wire.closed:
            return
        self._attempts.holder_watch.close()
        await self._watches.close()
        await self._wakeups.close()
        try:
            await self._leases.revoke_all(deadline or self.clock.now() + CLOSE_LIMIT)
        finally:
            await self._wire.close()

    async def _repeat(self, attempt: Attempt, ticket: Ticket, deadline: float) -> Granted | Queued:
        """Returns, for a request that was made before, what has become of it."""
        claim = Claim(attempt.name, attempt.owner, attempt.ttl)
        (outcome,) = await self.renew([claim], deadline)
        if isinstance(outcome, Renewed):
            return Granted(outcome.token, outcome.ttl, since=outcome.since, slot=outcome.slot)
        if isinstance(outcome, Waiting):
            self._attempts.waiter_watch.listen()
            return Queued(outcome.remaining, outcome.since)
        if ticket.queue:
            # It was in the queue, and has ended since: it asks at once, is told, and begins anew.
            ticket.tell()
            return Queued(0.0)
        raise BackendUnavailable(
            f"the request for {attempt.name!r} was carried out, and has ended since",
            name=attempt.name,
            owner=attempt.owner,
        )

    async def _held(self, name: str, owner: str, deadline: float) -> Attempt | None:
        """Returns the attempt of `owner`, unless it was given up."""
        self._refuse_if_closed()
        attempt = await self._renewer.find(name, owner, deadline)
        return None if attempt is None or attempt.released else attempt

    async def _forget(self, attempt: Attempt, deadline: float) -> None:
        """Forgets an attempt that is not stored; a request of it that may still arrive is refused."""
        if attempt.doubtful:
            await self._releaser.release(attempt, deadline)
        else:
            self._attempts.forget(attempt)

    async def _settle(self, lease: Lease, deadline: float) -> None:
        await self._settler.settle(lease, deadline)

    def _refuse_if_closed(self) -> None:
        if self._wire.closed:
            raise BackendUnavailable(f"this connection to {self._address} is closed")
