"""`redis+cluster://`: locks spread over the servers of a Redis cluster, each lock on one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import RLock
from typing import Any

from ...._runtime.aio import finish
from ....entries import Claim
from ....errors import BackendUnavailable, LockError
from ....guarantees import Guarantees
from ....model import GONE, UNKNOWN, Granted, Outcome, Renewed
from ..._async.contract import OPEN_LIMIT, Backend, Ticket
from ...timing import Timing, timing_of
from ...urls import Target, merge_options
from .. import guarantees
from ..address import Address
from ..cluster import CLUSTER_OPTIONS, ClusterNaming, seeds_of
from ..keys import Naming
from ..owners import OwnerSet
from ..wire.aio import PrimaryFinder
from ..wire.protocol import require_hiredis
from ..wire.refusals import TRANSIENT_IN_CLUSTER
from .backend import COMMON_OPTIONS, RedisBackend
from .cluster_router import ENROL_LIMIT, ClusterRouter
from .replicated import replicated
from .retry import AnyWire
from .scan import lock_names


def prepare(
    target: Target, namespace: str, options: dict[str, Any]
) -> tuple[Guarantees, Callable[[], Backend]]:
    """Checks all that can be checked without opening; returns the guarantees and a function to open."""
    settings = merge_options(target, options, {**COMMON_OPTIONS, **CLUSTER_OPTIONS})
    seeds = seeds_of(target, settings)
    require_hiredis()
    return prepare_cluster(seeds, namespace, settings)


def prepare_cluster(
    seeds: list[Address], namespace: str, settings: dict[str, Any]
) -> tuple[Guarantees, Callable[[], Backend]]:
    """Prepares the cluster that `seeds` belong to, as `prepare` does for a URL."""
    timing = timing_of(settings)
    naming = ClusterNaming(namespace, settings["key"])

    def make() -> RedisBackend:
        return ClusterBackend(seeds, naming, timing)

    return replicated(guarantees.REDIS_CLUSTER, make, settings)


class ClusterBackend(RedisBackend):
    """The adapter to a cluster."""

    guarantees = guarantees.REDIS_CLUSTER
    transient = TRANSIENT_IN_CLUSTER

    def __init__(self, seeds: list[Address], naming: ClusterNaming, timing: Timing) -> None:
        self._seeds = seeds
        self._mutex = RLock()
        self._enrolling: set[str] = set()
        """Owners of waiters that are just being enrolled on the server that their lock moved to."""
        self._enrolment_count = 0
        """The number of enrolments that have ended so far."""
        self._gone = OwnerSet()
        """Owners that a heartbeat found to be gone, and that are not enrolled again."""
        super().__init__(seeds[0], naming, timing)
        assert isinstance(self._wire, ClusterRouter)
        self._router = self._wire

    def _make_wire(self, address: Address, naming: Naming, finder: PrimaryFinder | None) -> AnyWire:
        return ClusterRouter(self._seeds, self.clock, naming.channels, self._commands.script_loads)

    async def _call_pair(
        self, wire: AnyWire, command: bytes, then: bytes, deadline: float
    ) -> Sequence[Any]:
        assert isinstance(wire, ClusterRouter)
        return await wire.call_pair(command, then, deadline)

    async def open(self, deadline: float) -> None:
        try:
            await self._router.open(deadline)
        except BaseException:
            await finish(self._router.close, grace=OPEN_LIMIT)
            raise

    async def renew(self, claims: Sequence[Claim], deadline: float) -> Sequence[Outcome]:
        """Renews in one round trip for each server, so that one that fails affects no other."""
        if not self._router.attentive:
            self._router.attend("")
        outcomes: list[Outcome] = [UNKNOWN] * len(claims)
        enrolments = self._enrolment_count
        rest = range(len(claims))
        plain = [i for i in rest if claims[i].owner not in self._singly_renewed]
        keeps = [self._commands.renew_many([claims[i]]) for i in plain]
        others = [i for i in rest if claims[i].owner in self._singly_renewed]
        failed: Exception | None = None
        for i, reply in zip(plain, await self._router.call_each(keeps, deadline), strict=True):
            if type(reply) is not list:
                failed = reply
            elif reply[0]:
                outcomes[i] = Renewed(reply[0], claims[i].ttl)
            else:
                others.append(i)
        if others:
            beats = [self._commands.renew_one(claims[i]) for i in others]
            for i, reply in zip(others, await self._router.call_each(beats, deadline), strict=True):
                if reply == -1 and not self._mark_gone(claims[i].owner, enrolments):
                    continue  # the next heartbeat asks again
                if isinstance(reply, Exception):
                    failed = reply
                    continue
                outcomes[i] = self._outcome(claims[i], reply)
                if outcomes[i] is GONE and claims[i].owner in self._doubtful_owners:
                    with suppress(LockError):  # the lease ends by itself
                        await self.release(claims[i].name, claims[i].owner, deadline)
        if failed is not None and all(outcome is UNKNOWN for outcome in outcomes):
            raise failed if isinstance(failed, LockError) else self._retrier.error_for(failed)
        return outcomes  # the keeper soon asks again for those that are unknown

    async def wait(self, ticket: Ticket, until: float | None) -> Granted | None:
        enrolment = self._router.moved_enrolment(ticket)
        if enrolment is None:
            return await super().wait(ticket, until)
        # The ticket is in a queue that nobody serves any more. Its owner is the same, so it keeps its
        # place if the queue was moved along; and the reply tells if it was given up meanwhile.
        with self._mutex:
            if ticket.owner in self._gone:
                return None
            self._enrolling.add(ticket.owner)
        self._doubtful_owners.add(ticket.owner)
        deadline = self.clock.now() + ENROL_LIMIT
        limit = deadline if until is None else min(deadline, until)
        try:
            reply = await self._router.acquire(ticket, enrolment.command, enrolment.owner, limit)
        except BackendUnavailable:
            return None
        finally:
            with self._mutex:
                self._enrolling.discard(ticket.owner)
                self._enrolment_count += 1
        if type(reply) is bytes:
            self._router.forget(ticket.owner)
            return Granted(int(reply), ticket.ttl, handed=True)
        if type(reply) is Granted:
            return self._accept_hand_over(reply, ticket)
        if type(reply) is int and reply >= 0:
            return await super().wait(ticket, until)
        return None

    def _mark_gone(self, owner: str, enrolments: int) -> bool:
        """Marks `owner` as gone, unless there were enrolments since `enrolments` was read.

        An owner that is being enrolled, or was since, may have been granted the lock: that grant must
        not be released as the remains of a place in the queue that was lost.
        """
        with self._mutex:
            if owner in self._enrolling or self._enrolment_count != enrolments:
                return False
            self._gone.add(owner)
            return True

    async def _lock_names(self, prefix: str, deadline: float) -> set[str]:
        names: set[str] = set()
        for endpoint in self._router.endpoints():

            async def call(command: bytes) -> Any:
                return await self._router.call_at(endpoint, command, deadline)  # noqa: B023

            names |= await lock_names(self._commands.naming, prefix, call)
        return names
