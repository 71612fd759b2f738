"""`zookeeper://h1:2181,h2:2181,h3:2181/chroot`: the adapter to a ZooKeeper ensemble.

`attempts` works by itself, in the threads of its connections; a verb here calls it, and waits for the
result until its deadline. Requests that were not answered by then go on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from .... import checks, forks
from ...._runtime.aio import Deputy, Signal
from ....clock import system_clock
from ....entries import Claim
from ....errors import BackendUnavailable
from ....guarantees import Guarantees
from ....model import Busy, Gone, Granted, LockState, Observation, Outcome, Queued
from ..._async.contract import Backend, Ticket
from ...timing import TIMING_OPTIONS, Timing, timing_of
from ...tls import TLS_OPTIONS
from ...urls import Target, merge_options
from .. import guarantees
from ..address import Address, address_of, require_kazoo
from ..names import Naming
from .elections import Elections
from .inspection import Inspection
from .transfers import Transfers

TICK = 2.0
"""Seconds: ZooKeeper's tickTime, unless it was configured otherwise."""
OPTIONS = {**TIMING_OPTIONS, **TLS_OPTIONS, "tick": TICK, "sasl": None}
CLOSE_LIMIT = 1.0
"""Seconds that `close` waits until the ensemble has closed our sessions."""
LATE, SECOND_LOOK = 0.1, 0.5
"""Seconds by which the end of a deadline is seen too late where this process stood still, and that its
threads are given then: what they wait for has come meanwhile."""


def prepare(
    target: Target, namespace: str, options: dict[str, Any]
) -> tuple[Guarantees, Callable[[], Backend]]:
    """Checks everything that can be checked without opening; returns a function that opens."""
    settings = merge_options(target, options, OPTIONS)
    timing = timing_of(settings)
    tick = checks.ttl(settings["tick"], "tick")
    require_kazoo()
    address = address_of(target, settings)
    naming = Naming(address.chroot, namespace)
    return guarantees.ZOOKEEPER, lambda: ZooKeeperBackend(address, naming, timing, tick)


class ZooKeeperBackend:
    """The backend of one manager."""

    guarantees = guarantees.ZOOKEEPER

    def __init__(
        self,
        address: Address,
        naming: Naming,
        timing: Timing,
        tick: float,
    ) -> None:
        from ..attempts import Attempts  # kazoo takes a tenth of a second to import

        self._address = address
        self._naming = naming
        self.clock = system_clock()
        self.heartbeat, self.claim_window = timing
        self._attempts = Attempts(address, naming, self.clock, timing.claim_window, tick)
        self._inspection = Inspection(self._attempts, naming, self.clock, self._call)
        self._elections = Elections(
            self._attempts, self._inspection, naming, self.clock, self._call
        )
        self._transfers = Transfers(
            self._attempts, self._inspection, self._elections, naming, self.clock, self._call
        )
        self._deputy = Deputy()
        self._made_in = forks.current()

    @property
    def look(self) -> Callable[[Iterable[str]], None] | None:
        return self._attempts.on_doubt

    @look.setter
    def look(self, look: Callable[[Iterable[str]], None]) -> None:
        self._attempts.on_doubt = look

    async def open(self, deadline: float) -> None:
        try:
            await self._call(self._attempts.open, deadline=deadline, changes=False)
        except BaseException:
            # The caller has no time left to wait for that.
            self._deputy.call(partial(self._attempts.close, _ignore))
            self._deputy.close()
            raise

    async def acquire(self, ticket: Ticket, deadline: float) -> Granted | Queued | Busy:
        patience = deadline - self.clock.now()
        later = partial(self._attempts.later_deadline, ticket.owner, ticket.until, patience)
        result: Granted | Queued | Busy = await self._call(
            self._attempts.acquire, ticket, deadline=deadline, later=later
        )
        return result

    async def renew(self, claims: Sequence[Claim], deadline: float) -> Sequence[Outcome]:
        outcomes: Sequence[Outcome] = await self._call(
            self._attempts.renew, claims, deadline=deadline
        )
        return outcomes

    async def release(self, name: str, owner: str, deadline: float) -> bool:
        kind = self._attempts.kind_of(name, owner)
        freed: bool | None = await self._call(
            self._attempts.release, name, owner, deadline=deadline
        )
        if freed is None:
            # An attempt of another manager; but a caller that knows the owner may end its lease.
            freed, kind = await self._inspection.end(name, owner, deadline)
        if freed and kind == "election":
            await self._elections.settle(name, deadline)
        return freed

    async def wait(self, ticket: Ticket, until: float | None) -> Granted | None:
        return await ticket.wait(self.clock, until)

    async def inspect(self, name: str, deadline: float) -> LockState:
        return await self._inspection.inspect(name, deadline)

    async def list(self, prefix: str, deadline: float) -> Sequence[LockState]:
        return await self._inspection.list(prefix, deadline)

    async def force_release(self, name: str, actor: str, deadline: float, above: int = 0) -> bool:
        freed, kind = await self._inspection.force_release(name, actor, deadline, above)
        if kind == "election":
            await self._elections.settle(name, deadline)
        return freed

    async def amend(
        self, name: str, owner: str, deadline: float, weight: int = 0, text: str | None = None
    ) -> bool:
        return await self._transfers.amend(name, owner, deadline, weight, text)

    async def detach(self, name: str, owner: str, ttl: float, deadline: float) -> bool:
        return await self._transfers.detach(name, owner, ttl, deadline)

    async def adopt(self, ticket: Ticket, giver: str, deadline: float) -> Granted | Gone:
        return await self._transfers.adopt(ticket, giver, deadline)

    async def observe(self, ticket: Ticket, after: int, deadline: float) -> Observation:
        return await self._elections.observe(ticket, after, deadline)

    async def unobserve(self, ticket: Ticket, deadline: float) -> None:
        await self._elections.unobserve(ticket)

    async def tether(self, name: str, owner: str, deadline: float) -> int | None:
        return None

    async def close(self, deadline: float | None = None) -> None:
        if self._made_in == forks.current():
            # What has not been closed by then ends by itself.
            deadline = deadline or self.clock.now() + CLOSE_LIMIT
            await self._result(self._attempts.close, deadline=deadline)
            self._deputy.close()

    # unasync: aio-only
    def strand(self) -> None:
        self._attempts.close(_ignore)

    # unasync: end

    async def _call(
        self,
        verb: Callable[..., None],
        *args: Any,
        deadline: float,
        changes: bool = True,
        later: Callable[[], float] | None = None,
    ) -> Any:
        """Calls a verb of `attempts` and returns its result; raises if there is none by `deadline`.

        `changes` says whether the verb may change something at the store, and `later` when it has to
        be answered if it is not by then.
        """
        forks.refuse_inherited(self._made_in)
        results = await self._result(verb, *args, deadline=deadline, later=later)
        if not results:
            forks.refuse_inherited(self._made_in)  # a fork meanwhile: the mutexes may be others'
            failure = self._attempts.failure()
            self._attempts.try_other_servers()
            raise BackendUnavailable(
                f"ZooKeeper at {self._address} did not answer in time{failure and f' ({failure})'}"
                + ("; what was asked of it may still happen" if changes else "")
            )
        if isinstance(results[0], Exception):
            raise results[0]
        return results[0]

    async def _result(
        self,
        verb: Callable[..., None],
        *args: Any,
        deadline: float,
        later: Callable[[], float] | None = None,
    ) -> Sequence[Any]:
        """Returns the result of a verb of `attempts`; nothing if there is none by `deadline`."""
        signal = Signal(self.clock, self._made_in)
        results: list[Any] = []
        in_time = self.clock.now() < deadline

        def on_result(result: Any) -> None:
            results.append(result)
            signal.set()

        def call() -> None:
            try:
                verb(*args, on_result)
            except Exception as error:
                on_result(error)

        self._deputy.call(call)
        while not results:
            if await signal.wait(deadline):
                continue
            now = self.clock.now()
            moved = later() if later is not None else 0.0
            if in_time and now - deadline > LATE:
                moved = max(moved, now + SECOND_LOOK)
            if moved <= deadline:
                break
            deadline = moved
        return results


def _ignore(result: Any) -> None:
    """Ignores a result that nobody waits for."""
