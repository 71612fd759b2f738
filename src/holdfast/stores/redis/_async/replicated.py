"""`min_replicas=n`: a grant counts only once n replicas have received it. Best effort.

After a grant, the client renews the lease and sends `WAIT` behind that, on the same connection: a
replica that has received all that came before the `WAIT` has received the grant. With fewer than n
replicas the lock is released again, and the caller gets an error. This narrows what a failover can
forget, but it is no consensus: a replica that has not received the grant may be promoted all the same,
and renewals and releases are not confirmed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from threading import Lock
from typing import Any, Protocol

from ....clock import Clock
from ....entries import Claim
from ....errors import BackendUnavailable, ConfigError, LockError
from ....guarantees import Guarantees
from ....model import (
    GONE,
    UNKNOWN,
    Busy,
    Gone,
    Granted,
    LockState,
    Observation,
    Outcome,
    Queued,
    Renewed,
)
from ..._async.contract import Backend, Ticket
from ..wire.protocol import pack

CONFIRM_LIMIT = 1.0
"""Seconds for the replicas to acknowledge."""
LONGER = 0.001
"""Seconds that the confirming renewal adds to the lease. In the millisecond of the grant it would
change nothing otherwise, and `WAIT` looks no further than the last change that its connection made."""
REMEMBERED_OWNERS = 100_000

_QUEUED, _CONFIRMING, _GIVEN_BACK, _CONFIRMED = "queued", "confirming", "given back", "confirmed"


class ConfirmingBackend(Backend, Protocol):
    """A backend that can send a command behind the renewal of a lease, on the same connection."""

    look: Callable[[Iterable[str]], None]

    def doubt(self, owner: str) -> None: ...

    async def renew_then(self, claim: Claim, command: bytes, deadline: float) -> tuple[bool, Any]:
        """Renews a lease and sends `command` behind it; returns if it was renewed, and the reply."""
        ...


def replicated(
    promises: Guarantees, make: Callable[[], ConfirmingBackend], settings: dict[str, Any]
) -> tuple[Guarantees, Callable[[], Backend]]:
    """Returns `promises` and `make` for backends that confirm each grant, if `min_replicas` is set."""
    count = settings["min_replicas"]
    if isinstance(count, float) and count.is_integer():
        count = int(count)
    if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count <= 1000:
        raise ConfigError(f"min_replicas must be a number of replicas, not {count!r:.40}")
    if not count:
        return promises, make
    words = f"; a grant counts only once min_replicas={count} of them have it, which is best effort"
    promises = promises._replace(consistency=promises.consistency + words)
    return promises, lambda: ReplicatedBackend(make(), count, promises)


class ReplicatedBackend:
    """A backend that confirms each grant of another backend."""

    def __init__(self, inner: ConfirmingBackend, count: int, promises: Guarantees) -> None:
        self.guarantees = promises
        self._inner = inner
        self._count = count
        self._owners: dict[str, str] = {}
        """Owners of waiters whose grant has yet to be confirmed, and how far that is."""
        self._mutex = Lock()

    @property
    def clock(self) -> Clock:
        return self._inner.clock

    @property
    def claim_window(self) -> float:
        return self._inner.claim_window

    @property
    def heartbeat(self) -> float:
        return self._inner.heartbeat

    @property
    def look(self) -> Callable[[Iterable[str]], None]:
        return self._inner.look

    @look.setter
    def look(self, look: Callable[[Iterable[str]], None]) -> None:
        self._inner.look = look

    async def open(self, deadline: float) -> None:
        await self._inner.open(deadline)

    async def acquire(self, ticket: Ticket, deadline: float) -> Granted | Queued | Busy:
        reply = await self._inner.acquire(ticket, deadline)
        if isinstance(reply, Granted):
            await self._confirm(Claim(ticket.name, ticket.owner, ticket.ttl), deadline)
        elif isinstance(reply, Queued):
            with self._mutex:
                self._owners[ticket.owner] = _QUEUED
                if len(self._owners) > REMEMBERED_OWNERS:
                    del self._owners[next(iter(self._owners))]
        return reply

    def doubt(self, owner: str) -> None:
        self._inner.doubt(owner)

    async def wait(self, ticket: Ticket, until: float | None) -> Granted | None:
        grant = await self._inner.wait(ticket, until)
        if grant is None:
            return None
        before = self._begin_confirming(ticket.owner)
        if before is _QUEUED:
            deadline = self.clock.now() + min(self.claim_window, ticket.ttl)
            await self._confirm_once(Claim(ticket.name, ticket.owner, ticket.ttl), deadline)
        elif before is not _CONFIRMED:
            return None  # a heartbeat was quicker: the waiter has to ask what became of the grant
        return grant

    async def renew(self, claims: Sequence[Claim], deadline: float) -> Sequence[Outcome]:
        outcomes = list(await self._inner.renew(claims, deadline))
        for i, claim in enumerate(claims):
            if isinstance(outcomes[i], Renewed) and claim.owner in self._owners:
                outcomes[i] = await self._confirm_renewed(claim, outcomes[i], deadline)
        return outcomes

    async def _confirm_renewed(self, claim: Claim, outcome: Outcome, deadline: float) -> Outcome:
        """Returns the outcome for a waiter that a heartbeat found granted, once that is confirmed."""
        before = self._begin_confirming(claim.owner)
        if before is _CONFIRMING:
            return UNKNOWN  # whoever confirms it will know
        if before is _GIVEN_BACK:
            return GONE
        if before is _QUEUED:
            try:
                await self._confirm_once(claim, deadline)
            except BackendUnavailable:
                return GONE  # the waiter asks anew, and gets the error
        return outcome

    def _begin_confirming(self, owner: str) -> str:
        """Returns how far the grant of `owner` is. The caller that gets "queued" has to confirm it.

        The wake-up, the keeper's heartbeat and a repeated acquire may all find the same grant. If one
        of them released a grant that another has passed on, its holder would hold a free lock.
        """
        with self._mutex:
            before = self._owners.get(owner, _CONFIRMED)
            if before is _QUEUED:
                self._owners[owner] = _CONFIRMING
        return before

    async def _confirm_once(self, claim: Claim, deadline: float) -> None:
        try:
            await self._confirm(claim, deadline)
        except BaseException:
            with self._mutex:
                self._owners[claim.owner] = _GIVEN_BACK
            raise
        with self._mutex:
            self._owners.pop(claim.owner, None)

    async def _confirm(self, claim: Claim, deadline: float) -> None:
        left = deadline - self.clock.now()
        limit = max(1, int(min(CONFIRM_LIMIT, left * 0.8) * 1000))
        wait = pack(b"WAIT", b"%d" % self._count, b"%d" % limit)
        longer = claim._replace(ttl=claim.ttl + LONGER)
        try:
            kept, count = await self._inner.renew_then(longer, wait, deadline)
            if isinstance(count, Exception):
                raise BackendUnavailable(f"the server refused to wait for its replicas: {count}")
        except LockError:
            await self._give_back(claim)
            raise
        if count < self._count or not kept:
            await self._give_back(claim)
            raise BackendUnavailable(
                f"{claim.name!r} was granted, but only {count} of min_replicas={self._count} replicas "
                "received that in time, so it was released again; find out why the others are behind",
                name=claim.name,
                owner=claim.owner,
            )

    async def _give_back(self, claim: Claim) -> None:
        with suppress(LockError):  # the engine tries again; failing that, the lease ends by itself
            await self._inner.release(claim.name, claim.owner, self.clock.now() + CONFIRM_LIMIT)

    async def release(self, name: str, owner: str, deadline: float) -> bool:
        with self._mutex:
            self._owners.pop(owner, None)
        return await self._inner.release(name, owner, deadline)

    async def inspect(self, name: str, deadline: float) -> LockState:
        return await self._inner.inspect(name, deadline)

    async def list(self, prefix: str, deadline: float) -> Sequence[LockState]:
        return await self._inner.list(prefix, deadline)

    async def force_release(self, name: str, actor: str, deadline: float, above: int = 0) -> bool:
        return await self._inner.force_release(name, actor, deadline, above)

    async def amend(
        self, name: str, owner: str, deadline: float, weight: int = 0, text: str | None = None
    ) -> bool:
        return await self._inner.amend(name, owner, deadline, weight, text)

    async def detach(self, name: str, owner: str, ttl: float, deadline: float) -> bool:
        return await self._inner.detach(name, owner, ttl, deadline)

    async def adopt(self, ticket: Ticket, giver: str, deadline: float) -> Granted | Gone:
        reply = await self._inner.adopt(ticket, giver, deadline)
        if isinstance(reply, Granted):
            await self._confirm(Claim(ticket.name, ticket.owner, ticket.ttl), deadline)
        return reply

    async def observe(self, ticket: Ticket, after: int, deadline: float) -> Observation:
        return await self._inner.observe(ticket, after, deadline)

    async def unobserve(self, ticket: Ticket, deadline: float) -> None:
        await self._inner.unobserve(ticket, deadline)

    async def tether(self, name: str, owner: str, deadline: float) -> int | None:
        return await self._inner.tether(name, owner, deadline)

    async def close(self, deadline: float | None = None) -> None:
        await self._inner.close(deadline)
