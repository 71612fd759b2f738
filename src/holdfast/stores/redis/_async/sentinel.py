"""`redis+sentinel://`: one Redis at a time, whichever the sentinels say is the primary.

The sentinels are asked whenever a connection is made, and once a second: a primary that they have
replaced goes on calling itself one until they have told it, and what it grants meanwhile is lost. An
answer counts only from a server that calls itself the primary: one that was demoted, or is not yet
promoted, is left, and the sentinels are asked again while the call has time. Sentinels may disagree
for a moment; those with the highest configuration epoch know of the latest failover.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...._runtime.aio import Routine, Signal, finish
from ....clock import BootClock, Clock
from ....errors import BackendUnavailable, ConfigError, LockError
from ....guarantees import Guarantees
from ..._async.contract import OPEN_LIMIT, Backend
from ...timing import Timing, timing_of
from ...urls import Target, merge_options
from .. import guarantees
from ..address import Address
from ..keys import Naming
from ..sentinel import SENTINEL_OPTIONS, Watched, read_place, watched_of
from ..wire.aio import Wire
from ..wire.protocol import PASSING_OVER, Lost, pack, require_hiredis
from .backend import COMMON_OPTIONS, RedisBackend
from .replicated import replicated

EACH = 0.5
"""Seconds for one sentinel, so that one that stands still does not use up the time for all."""
LOOK = 1.0
"""Seconds between looks at whether the primary is still the one."""
FRESH = 1.0
"""Seconds for which an answer of the sentinels is used again, unless something speaks against it."""


def prepare(
    target: Target, namespace: str, options: dict[str, Any]
) -> tuple[Guarantees, Callable[[], Backend]]:
    """Check everything that can be checked without opening; answers how to open."""
    settings = merge_options(target, options, {**COMMON_OPTIONS, **SENTINEL_OPTIONS})
    watched = watched_of(target, settings)
    require_hiredis()
    return made(watched, namespace, settings)


def made(
    watched: Watched, namespace: str, settings: dict[str, Any]
) -> tuple[Guarantees, Callable[[], Backend]]:
    timing = timing_of(settings)
    naming = Naming(namespace, settings["key"])

    def make() -> RedisBackend:
        return SentinelBackend(watched, naming, timing)

    return replicated(guarantees.REDIS_SENTINEL, make, settings)


class SentinelBackend(RedisBackend):
    guarantees = guarantees.REDIS_SENTINEL
    passing = PASSING_OVER

    def __init__(
        self,
        watched: Watched,
        naming: Naming,
        timing: Timing,
    ) -> None:
        self._sentinels = Sentinels(watched, BootClock())
        super().__init__(watched.primary, naming, timing, self._sentinels)
        self._stop = Signal(self.clock)
        self._closed = False
        self._routine: Routine | None = None

    async def open(self, deadline: float) -> None:
        try:
            await super().open(deadline)
        except BaseException:
            await finish(self._sentinels.close, grace=OPEN_LIMIT)
            raise
        self._routine = Routine(self._follow, "holdfast-sentinel")

    async def close(self) -> None:
        self._closed = True
        self._stop.set()
        if self._routine is not None:
            await self._routine.join()
        await super().close()
        await self._sentinels.close()

    async def _follow(self) -> None:
        """Leave a primary that the sentinels have replaced, though it still answers."""
        while not self._closed:
            await self._stop.wait(self.clock.now() + LOOK)
            if self._closed:
                return
            try:
                moved = await self._sentinels.moved_from(self._wire.address)
            except LockError:
                continue  # calls that need them say so
            if moved:
                self._wire.turn_away()
                if self._behind is not None:
                    self._behind.turn_away()


class Sentinels:
    def __init__(self, watched: Watched, clock: Clock) -> None:
        self._sentinels = list(watched.sentinels)
        self._service = watched.service
        self._primary = watched.primary
        self._clock = clock
        name = watched.service.encode()
        self._questions = [
            pack(b"SENTINEL", b"GET-MASTER-ADDR-BY-NAME", name),
            pack(b"SENTINEL", b"MASTER", name),
        ]
        self._known: tuple[Address, float] | None = None
        self._wires: dict[Address, Wire] = {}
        self._closed = False

    def doubt(self) -> None:
        self._known = None

    async def find(self, deadline: float) -> Address:
        known = self._known
        if known is not None and self._clock.now() - known[1] < FRESH:
            return known[0]
        host, port = await self._ask(deadline)
        address = self._primary._replace(host=host, port=port)
        self._known = address, self._clock.now()
        return address

    async def moved_from(self, address: Address) -> bool:
        deadline = self._clock.now() + EACH * len(self._sentinels)
        return await self._ask(deadline) != (address.host, address.port)

    async def close(self) -> None:
        self._closed = True
        wires, self._wires = list(self._wires.values()), {}
        for wire in wires:
            await wire.close()

    async def _ask(self, deadline: float) -> tuple[str, int]:
        """Until most of them agree, or all were asked."""
        reasons: list[Exception] = []
        strangers = 0
        for patient in (False, True):  # at last with all the time there is: they may only be slow
            votes: dict[tuple[int, str, int], int] = {}
            waiting = list(self._sentinels)
            while waiting and (not patient or self._clock.now() < deadline):
                share = 0.9 * (deadline - self._clock.now()) / len(waiting) if patient else EACH
                sentinel = waiting.pop(0)
                try:
                    place = read_place(await self._one(sentinel, deadline, share), sentinel)
                except (BackendUnavailable, ConfigError) as error:
                    reasons.append(error)
                    self._put_last(sentinel)
                    continue
                if place is None:
                    strangers += 1
                    continue
                votes[place] = votes.get(place, 0) + 1
                if votes[place] > len(self._sentinels) // 2:
                    break
            if votes:
                _, host, port = max(votes)
                return host, port
            if strangers or isinstance(reasons[0], ConfigError):
                break
        if strangers:
            raise ConfigError(
                f"the sentinels know no primary called {self._service!r}: check the name in the URL, "
                "redis+sentinel://host:26379/NAME"
            )
        for reason in reasons:
            if isinstance(reason, ConfigError):
                raise reason  # it says more than that another did not answer
        names = ", ".join(map(str, self._sentinels))
        raise BackendUnavailable(f"no sentinel answers ({names}): {reasons[0]}")

    async def _one(self, sentinel: Address, deadline: float, share: float) -> Sequence[Any]:
        wire = self._wires.get(sentinel)
        if self._closed:
            raise BackendUnavailable("this connection is closed")
        if wire is None:
            wire = self._wires[sentinel] = Wire(sentinel, self._clock, b"")
        limit = min(deadline, self._clock.now() + share)
        try:
            return await wire.batch(self._questions, limit)
        except Lost as error:
            if not error.broken:
                raise
            return await wire.batch(self._questions, limit)  # it had been restarted meanwhile

    def _put_last(self, sentinel: Address) -> None:
        """The others are asked before it next time."""
        self._sentinels = [s for s in self._sentinels if s != sentinel] + [sentinel]
