"""`redis+cluster://`: locks spread over the servers of a Redis cluster, each of them on one."""

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
from ..wire.aio import Finder
from ..wire.protocol import MOVING, require_hiredis
from .backend import COMMON_OPTIONS, RedisBackend, remember
from .cluster_router import ENROL_LIMIT, Nodes
from .replicated import replicated
from .retry import Link
from .scan import lock_names


def prepare(
    target: Target, namespace: str, options: dict[str, Any]
) -> tuple[Guarantees, Callable[[], Backend]]:
    """Check everything that can be checked without opening; answers how to open."""
    settings = merge_options(target, options, {**COMMON_OPTIONS, **CLUSTER_OPTIONS})
    seeds = seeds_of(target, settings)
    require_hiredis()
    return made(seeds, namespace, settings)


def made(
    seeds: list[Address], namespace: str, settings: dict[str, Any]
) -> tuple[Guarantees, Callable[[], Backend]]:
    timing = timing_of(settings)
    naming = ClusterNaming(namespace, settings["key"])

    def make() -> RedisBackend:
        return ClusterBackend(seeds, naming, timing)

    return replicated(guarantees.REDIS_CLUSTER, make, settings)


class ClusterBackend(RedisBackend):
    guarantees = guarantees.REDIS_CLUSTER
    passing = MOVING

    def __init__(self, seeds: list[Address], naming: ClusterNaming, timing: Timing) -> None:
        self._seeds = seeds
        self._mutex = RLock()
        self._enrolling: set[str] = set()
        """Waiters that are just being enrolled where their lock has moved to."""
        self._enrolments = 0
        """How many of those there have been."""
        self._out: dict[str, None] = {}
        """Owners that were found to be gone, and are not enrolled again."""
        super().__init__(seeds[0], naming, timing)
        assert isinstance(self._wire, Nodes)
        self._nodes = self._wire

    def _link(self, address: Address, naming: Naming, finder: Finder | None) -> Link:
        return Nodes(self._seeds, self.clock, naming.channels, self._commands.loads)

    async def _paired(
        self, link: Link, command: bytes, then: bytes, deadline: float
    ) -> Sequence[Any]:
        assert isinstance(link, Nodes)
        return await link.paired(command, then, deadline)

    async def open(self, deadline: float) -> None:
        try:
            await self._nodes.open(deadline)
        except BaseException:
            await finish(self._nodes.close, grace=OPEN_LIMIT)
            raise

    async def renew(self, claims: Sequence[Claim], deadline: float) -> Sequence[Outcome]:
        """One round trip for each server, so that what one cannot tell, the others can."""
        outcomes: list[Outcome] = [UNKNOWN] * len(claims)
        enrolments = self._enrolments
        rest = range(len(claims))
        plain = [i for i in rest if claims[i].owner not in self._special]
        keeps = [self._commands.keep([claims[i]]) for i in plain]
        others = [i for i in rest if claims[i].owner in self._special]
        failed: Exception | None = None
        for i, reply in zip(plain, await self._nodes.each(keeps, deadline), strict=True):
            if type(reply) is not list:
                failed = reply
            elif reply[0]:
                outcomes[i] = Renewed(reply[0], claims[i].ttl)
            else:
                others.append(i)
        if others:
            beats = [self._commands.beat(claims[i]) for i in others]
            for i, reply in zip(others, await self._nodes.each(beats, deadline), strict=True):
                if reply == -1 and not self._is_out(claims[i].owner, enrolments):
                    continue  # it is asked about again
                if isinstance(reply, Exception):
                    failed = reply
                    continue
                outcomes[i] = self._outcome(claims[i], reply)
                if outcomes[i] is GONE and claims[i].owner in self._doubtful:
                    with suppress(LockError):  # it ends by itself
                        await self.release(claims[i].name, claims[i].owner, deadline)
        if failed is not None and all(outcome is UNKNOWN for outcome in outcomes):
            raise failed if isinstance(failed, LockError) else self._calls.refused(failed)
        return outcomes  # what is unknown is asked again soon

    async def wait(self, ticket: Ticket, until: float | None) -> Granted | None:
        moved = self._nodes.moved(ticket)
        if moved is None:
            return await super().wait(ticket, until)
        # Enrolled where nobody looks any more. It has the same owner, so it keeps its place if that was
        # moved along; and if it was given up meanwhile, that is to be found out.
        with self._mutex:
            if ticket.owner in self._out:
                return None
            self._enrolling.add(ticket.owner)
        remember(self._doubtful, ticket.owner)
        deadline = self.clock.now() + ENROL_LIMIT
        limit = deadline if until is None else min(deadline, until)
        try:
            answer = await self._nodes.ask(ticket, moved.command, moved.owner, limit)
        except BackendUnavailable:
            return None
        finally:
            with self._mutex:
                self._enrolling.discard(ticket.owner)
                self._enrolments += 1
        if type(answer) is bytes:
            self._nodes.forget(ticket.owner)
            return Granted(int(answer), ticket.ttl, handed=True)
        if type(answer) is Granted:
            return self._handed(answer, ticket)
        if type(answer) is int and answer >= 0:
            return await super().wait(ticket, until)
        return None

    def _is_out(self, owner: str, enrolments: int) -> bool:
        """Whether it stays gone, as it was found when so many had been enrolled.

        One that is being enrolled, or was since, may have been granted what it waits for: that must
        not be given back as the remains of a place that was lost.
        """
        with self._mutex:
            if owner in self._enrolling or self._enrolments != enrolments:
                return False
            remember(self._out, owner)
            return True

    async def _names(self, prefix: str, deadline: float) -> set[str]:
        names: set[str] = set()
        for place in self._nodes.places():

            async def there(command: bytes) -> Any:
                return await self._nodes.call_at(place, command, deadline)  # noqa: B023

            names |= await lock_names(self._commands.naming, prefix, there)
        return names
