"""`min_replicas=n`: a grant counts only once n replicas have received it. Best effort.

Whoever was granted a lock renews it and sends `WAIT` behind that, on the same connection: replicas that
have received all that came before it have received the grant. With fewer than n, it is given back, and
the caller is told. This narrows what a failover can forget; it is no consensus: a replica that has not
received it may be promoted all the same, and a renewal or a release is not waited for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import Lock
from typing import Any, Protocol

from ....clock import Clock
from ....entries import Claim
from ....errors import BackendUnavailable, ConfigError, LockError
from ....guarantees import Guarantees
from ....model import GONE, UNKNOWN, Busy, Granted, LockState, Outcome, Queued, Renewed
from ..._async.contract import Backend, Ticket
from ..wire.protocol import pack

LIMIT = 1.0
"""Seconds for the replicas to acknowledge."""
REMEMBERED = 100_000

_QUEUED, _CONFIRMING, _GIVEN_BACK, _CONFIRMED = "queued", "confirming", "given back", "confirmed"


class Confirming(Backend, Protocol):
    """A backend that can send a command behind the renewal of a lease, on the same connection."""

    async def followed_by(self, claim: Claim, command: bytes, deadline: float) -> tuple[bool, Any]:
        """Whether it was renewed, and the answer to the command."""
        ...


def replicated(
    promises: Guarantees, make: Callable[[], Confirming], settings: dict[str, Any]
) -> tuple[Guarantees, Callable[[], Backend]]:
    """The same, with the `min_replicas` that were asked for."""
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
    def __init__(self, inner: Confirming, count: int, promises: Guarantees) -> None:
        self.guarantees = promises
        self._inner = inner
        self._count = count
        self._owners: dict[str, str] = {}
        """Those that wait, to whom a grant has yet to be confirmed, and how far that is."""
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

    async def open(self, deadline: float) -> None:
        await self._inner.open(deadline)

    async def acquire(self, ticket: Ticket, deadline: float) -> Granted | Queued | Busy:
        answer = await self._inner.acquire(ticket, deadline)
        if isinstance(answer, Granted):
            await self._confirm(Claim(ticket.name, ticket.owner, ticket.ttl), deadline)
        elif isinstance(answer, Queued):
            with self._mutex:
                self._owners[ticket.owner] = _QUEUED
                if len(self._owners) > REMEMBERED:
                    del self._owners[next(iter(self._owners))]
        return answer

    async def wait(self, ticket: Ticket, until: float | None) -> Granted | None:
        grant = await self._inner.wait(ticket, until)
        if grant is None:
            return None
        before = self._begin(ticket.owner)
        if before is _QUEUED:
            deadline = self.clock.now() + min(self.claim_window, ticket.ttl)
            await self._confirm_once(Claim(ticket.name, ticket.owner, ticket.ttl), deadline)
        elif before is not _CONFIRMED:
            return None  # a heartbeat was quicker: what becomes of it has to be asked
        return grant

    async def renew(self, claims: Sequence[Claim], deadline: float) -> Sequence[Outcome]:
        outcomes = list(await self._inner.renew(claims, deadline))
        for i, claim in enumerate(claims):
            if isinstance(outcomes[i], Renewed) and claim.owner in self._owners:
                outcomes[i] = await self._found(claim, outcomes[i], deadline)
        return outcomes

    async def _found(self, claim: Claim, outcome: Outcome, deadline: float) -> Outcome:
        """A waiter has been granted, as it seems."""
        before = self._begin(claim.owner)
        if before is _CONFIRMING:
            return UNKNOWN  # the other will know
        if before is _GIVEN_BACK:
            return GONE
        if before is _QUEUED:
            try:
                await self._confirm_once(claim, deadline)
            except BackendUnavailable:
                return GONE  # it asks anew, and is told why
        return outcome

    def _begin(self, owner: str) -> str:
        """Answers how far it is; who finds it queued has to confirm it, and nobody else.

        Its wake-up, the keeper's heartbeat and its own question may all find the same grant. If one
        gave it back that another has passed on, somebody would hold what is free.
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
        limit = max(1, int(min(LIMIT, left * 0.8) * 1000))
        wait = pack(b"WAIT", b"%d" % self._count, b"%d" % limit)
        try:
            kept, count = await self._inner.followed_by(claim, wait, deadline)
            if isinstance(count, Exception):
                raise BackendUnavailable(f"the server refused to wait for its replicas: {count}")
        except LockError:
            await self._give_back(claim)
            raise
        if count < self._count or not kept:
            await self._give_back(claim)
            raise BackendUnavailable(
                f"{claim.name!r} was granted, but only {count} of min_replicas={self._count} replicas "
                "received that in time, so it was given back; see why the others are behind",
                name=claim.name,
                owner=claim.owner,
            )

    async def _give_back(self, claim: Claim) -> None:
        with suppress(LockError):  # the engine tries again, and else it ends by itself
            await self._inner.release(claim.name, claim.owner, self.clock.now() + LIMIT)

    async def release(self, name: str, owner: str, deadline: float) -> bool:
        with self._mutex:
            self._owners.pop(owner, None)
        return await self._inner.release(name, owner, deadline)

    async def inspect(self, name: str, deadline: float) -> LockState:
        return await self._inner.inspect(name, deadline)

    async def list(self, prefix: str, deadline: float) -> Sequence[LockState]:
        return await self._inner.list(prefix, deadline)

    async def force_release(self, name: str, actor: str, deadline: float) -> bool:
        return await self._inner.force_release(name, actor, deadline)

    async def tether(self, name: str, owner: str, deadline: float) -> int | None:
        return await self._inner.tether(name, owner, deadline)

    async def close(self) -> None:
        await self._inner.close()
