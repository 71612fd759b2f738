"""`redis+sentinel://`: one Redis at a time, whichever the sentinels say is the primary.

The sentinels are asked whenever a connection is made, and once a second: a primary that they have
replaced goes on calling itself one until they have told it, and what it grants meanwhile is lost. A
reply counts only if its server calls itself the primary. One that was demoted, or is not yet promoted,
is left, and the sentinels are asked again while the call has time. Sentinels may disagree for a moment:
those with the highest configuration epoch know of the latest failover. So all are asked, but for those
that did not answer last time: most of them may not have heard of a failover yet, while the old primary
is back already.
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
from ..sentinel import SENTINEL_OPTIONS, SentinelAddress, read_primary, sentinel_address_of
from ..wire.aio import Wire
from ..wire.protocol import Lost, pack, require_hiredis
from ..wire.refusals import TRANSIENT_IN_FAILOVER
from .backend import COMMON_OPTIONS, RedisBackend
from .replicated import replicated
from .several import OneServerBackend

EACH_SENTINEL_LIMIT = 0.5
"""Seconds for one sentinel: one that hangs must not use up the time for all."""
CHECK_INTERVAL = 1.0
"""Seconds between checks that the primary has not been replaced."""
FRESHNESS = 1.0
"""Seconds for which the sentinels' reply is used again, unless `doubt` is called."""


def prepare(
    target: Target, namespace: str, options: dict[str, Any]
) -> tuple[Guarantees, Callable[[], Backend]]:
    """Checks all that can be checked without opening; returns the guarantees and a function to open."""
    settings = merge_options(target, options, {**COMMON_OPTIONS, **SENTINEL_OPTIONS})
    address = sentinel_address_of(target, settings)
    require_hiredis()
    return prepare_sentinel(address, namespace, settings)


def prepare_sentinel(
    address: SentinelAddress, namespace: str, settings: dict[str, Any]
) -> tuple[Guarantees, Callable[[], Backend]]:
    """Prepares the store at `address`, as `prepare` does for a URL."""
    timing = timing_of(settings)
    naming = Naming(namespace, settings["key"])

    def make() -> RedisBackend:
        return SentinelBackend(address, naming, timing)

    return replicated(guarantees.REDIS_SENTINEL, make, settings)


class SentinelBackend(OneServerBackend):
    """The adapter to a primary that sentinels watch."""

    guarantees = guarantees.REDIS_SENTINEL
    transient = TRANSIENT_IN_FAILOVER

    def __init__(
        self,
        address: SentinelAddress,
        naming: Naming,
        timing: Timing,
    ) -> None:
        self._sentinels = Sentinels(address, BootClock())
        super().__init__(address.primary, naming, timing, self._sentinels)
        self._stop = Signal(self.clock)
        self._closed = False
        self._routine: Routine | None = None

    async def open(self, deadline: float) -> None:
        try:
            await super().open(deadline)
        except BaseException:
            await finish(self._sentinels.close, grace=OPEN_LIMIT)
            raise
        self._routine = Routine(self._watch_primary, "holdfast-sentinel")

    async def close(self, deadline: float | None = None) -> None:
        self._closed = True
        self._stop.set()
        if self._routine is not None:
            # A question to sentinels that do not answer fails when their connections are closed.
            left = None if deadline is None else max(deadline - self.clock.now(), 0.0)
            await self._routine.join(left)
        await super().close(deadline)
        await self._sentinels.close()

    async def _watch_primary(self) -> None:
        """Leaves a primary that the sentinels have replaced, though it still replies."""
        while not self._closed:
            await self._stop.wait(self.clock.now() + CHECK_INTERVAL)
            if self._closed:
                return
            try:
                moved = await self._sentinels.moved_from(self._wire.address)
            except LockError:
                continue  # a command that needs the sentinels will report that
            if moved:
                self._wire.drop_connections()
                if self._replica_wire is not None:
                    self._replica_wire.drop_connections()


class Sentinels:
    """The sentinels, as the finder of a wire: they say where the primary is."""

    def __init__(self, address: SentinelAddress, clock: Clock) -> None:
        self._sentinels = list(address.sentinels)
        self._service = address.service
        self._primary = address.primary
        self._clock = clock
        name = address.service.encode()
        self._questions = [
            pack(b"SENTINEL", b"GET-MASTER-ADDR-BY-NAME", name),
            pack(b"SENTINEL", b"MASTER", name),
        ]
        self._known: tuple[Address, float] | None = None
        self._wires: dict[Address, Wire] = {}
        self._silent: set[Address] = set()
        """The sentinels that did not answer the last time."""
        self._closed = False

    def doubt(self) -> None:
        self._known = None

    async def find(self, deadline: float) -> Address:
        known = self._known
        if known is not None and self._clock.now() - known[1] < FRESHNESS:
            return known[0]
        host, port = await self._ask_sentinels(deadline)
        address = self._primary._replace(host=host, port=port)
        self._known = address, self._clock.now()
        return address

    async def moved_from(self, address: Address) -> bool:
        deadline = self._clock.now() + EACH_SENTINEL_LIMIT * len(self._sentinels)
        self._silent.clear()  # nobody waits for this
        return await self._ask_sentinels(deadline) != (address.host, address.port)

    async def close(self) -> None:
        self._closed = True
        wires, self._wires = list(self._wires.values()), {}
        for wire in wires:
            await wire.close()

    async def _ask_sentinels(self, deadline: float) -> tuple[str, int]:
        """Returns host and port of the primary: asks all sentinels, or those that answered last time
        if most of all agree."""
        reasons: list[Exception] = []
        strangers = 0
        for patient in (False, True):  # the second time with all the time left: they may be slow
            votes: dict[tuple[int, str, int], int] = {}
            waiting = list(self._sentinels)
            while waiting and (not patient or self._clock.now() < deadline):
                share = (
                    0.9 * (deadline - self._clock.now()) / len(waiting)
                    if patient
                    else EACH_SENTINEL_LIMIT
                )
                sentinel = waiting.pop(0)
                try:
                    primary = read_primary(await self._ask_one(sentinel, deadline, share), sentinel)
                except (BackendUnavailable, ConfigError) as error:
                    reasons.append(error)
                    self._ask_last(sentinel)
                    continue
                self._silent.discard(sentinel)
                if primary is None:
                    strangers += 1
                    continue
                votes[primary] = votes.get(primary, 0) + 1
                agreed = max(votes.values()) > len(self._sentinels) // 2
                if agreed and self._silent.issuperset(waiting):
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
                raise reason  # it says more than that another sentinel did not reply
        names = ", ".join(map(str, self._sentinels))
        raise BackendUnavailable(f"no sentinel answers ({names}): {reasons[0]}")

    async def _ask_one(self, sentinel: Address, deadline: float, share: float) -> Sequence[Any]:
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
            return await wire.batch(self._questions, limit)  # the sentinel was restarted meanwhile

    def _ask_last(self, sentinel: Address) -> None:
        """Puts a sentinel that did not answer behind the others for the next time."""
        self._silent.add(sentinel)
        self._sentinels = [s for s in self._sentinels if s != sentinel] + [sentinel]
