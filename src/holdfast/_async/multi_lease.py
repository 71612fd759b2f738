"""The lease on several locks at once, as users have it. `multi_hold` has the engine's side."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Self
from weakref import ref

from .. import checks, forks
from .._runtime.aio import Signal, call_all
from ..errors import LeaseLost
from ..events import Ignored
from ..lifecycle import LOST
from .hold import HOLDING
from .lease import Lease
from .lease_object import LeaseObject
from .multi_hold import MultiHold, PartHold, in_words
from .usage import Body

if TYPE_CHECKING:
    from .opening import Opening


class MultiLease(LeaseObject["MultiLease"]):
    """Several locks that are held as one. Safe to use from any thread, or any task of its event loop.

    It is held while every one of them is.
    """

    __slots__ = ("__weakref__", "_hold", "_opening", "leases")

    _hold: MultiHold

    leases: Mapping[str, Lease]
    """The lease on each lock, by name, in sorted order."""

    def __init__(self, hold: MultiHold, leases: Sequence[Lease], opening: Opening) -> None:
        self._hold = hold
        self._opening = opening
        self.leases = MappingProxyType(
            {part._ticket.terms.name: lease for part, lease in zip(hold.holds, leases, strict=True)}
        )

    def __repr__(self) -> str:
        return f"<MultiLease {in_words(self.names)} {self.state}>"

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the locks, in sorted order."""
        return tuple(self.leases)

    @property
    def tokens(self) -> Mapping[str, int]:
        """The fencing token of each lock, by name."""
        return MappingProxyType({name: lease.token for name, lease in self.leases.items()})

    @property
    def ttl(self) -> float:
        """The seconds that the store gives from each renewal on: the fewest of any lock."""
        return min(lease.ttl for lease in self.leases.values())

    @property
    def state(self) -> str:
        """`held`, `uncertain`, `lost` or `released`: the worst of any lock's."""
        return self._hold.state

    @property
    def held(self) -> bool:
        """Whether all of it is ours now, by our own clock. In a forked child it never is."""
        return self.remaining() > 0

    def remaining(self) -> float:
        """Returns the seconds for which all of it is ours even if no renewal succeeds from now on."""
        return min(lease.remaining() for lease in self.leases.values())

    def ensure(self, at_least: float = 0.0) -> None:
        """Raises `LeaseLost` unless all of it is held, and for `at_least` seconds more."""
        checks.at_least(at_least)
        self._hold.refuse_fork()
        if self.remaining() <= 0:
            raise self._hold.loss()
        for lease in self.leases.values():
            lease.ensure(at_least)

    def on_lost(self, callback: Callable[[MultiLease], Ignored]) -> None:
        """Calls `callback(lease)` once when any of it is lost; at once if that has happened.

        As for a lease of one lock; a release is no loss.
        """
        checks.callback("on_lost", callback)
        hold = self._hold
        hold.refuse_fork()
        mutex, opening = hold._session.mutex, self._opening
        here = ref(self)  # only users keep the lease
        calls: list[bool] = []

        def once(part: Lease) -> Ignored:
            with mutex:
                calls.append(True)
                first = len(calls) == 1
            if not first:
                return None
            return callback(here() or MultiLease(hold, _leases_of(hold, opening), opening))

        for lease in self.leases.values():
            lease.on_lost(once)

    async def wait_lost(self, timeout: float | None = None) -> bool:
        """Waits until any of it is lost: True. False after `timeout`, or when it was released."""
        hold = self._hold
        timeout = checks.timeout(timeout)
        hold.refuse_fork()
        session = hold._session
        clock = session.clock
        until = None if timeout is None else clock.now() + timeout
        signal = Signal(clock)
        try:
            with session.mutex:
                for part in hold.holds:
                    part._watchers = [*(part._watchers or ()), signal]
            session.closing.recall_late(hold.holds[0])  # which takes the others along
            while hold.state in HOLDING:
                if until is not None and clock.now() >= until:
                    break
                deadline = hold.deadline
                await signal.wait(deadline if until is None else min(until, deadline))
            return hold.state == LOST
        finally:
            with session.mutex:
                for part in hold.holds:
                    part._watchers = [one for one in part._watchers or () if one is not signal]

    async def renew(self, ttl: float | None = None) -> None:
        """Renews all of it now, and from now on for `ttl` seconds if that is given.

        Raises `LeaseLost` if any of it has ended, `BackendUnavailable` if the store does not answer.
        """
        if ttl is not None:
            checks.ttl(ttl)
        self.ensure()
        await call_all([partial(lease.renew, ttl) for lease in self.leases.values()])
        self.ensure()

    async def release(self) -> bool:
        """Releases all of it: True if it was all still ours, False if any had ended.

        If the store cannot be reached this raises `BackendUnavailable`, and may be tried again;
        otherwise the TTL frees what is left.
        """
        # unasync: aio-only
        self._hold._session.closing.strand_if_ended()
        # unasync: end
        return await self._hold.release()

    # For `with`.

    async def _to_enter(self) -> MultiLease:
        return self

    def _take_by_hand(self) -> tuple[MultiLease, Body]:
        return self, self._body_by_hand()

    def _title(self) -> str:
        return in_words(self.names)

    def _set_alarm(self) -> None:
        for part in self._hold.holds:
            part._set_alarm()

    def _loss(self) -> LeaseLost:
        return self._hold.loss()

    if TYPE_CHECKING:

        async def __aenter__(self) -> Self: ...

    async def _leave(self, error: BaseException | None, body: Body) -> None:
        """Ends a body of `with`: the last one to end releases all; raises if any of it was lost."""
        hold = self._hold
        session = hold._session
        try:
            stopped_by_us = hold._usage.settle(body, error)
            if error is None:
                hold.refuse_fork()
            elif session.generation != forks.current():
                return
            lost = hold.state == LOST
            if hold._usage.leave(1) and not hold.calls_back:  # else it is freed after them
                await hold._release_quietly()
                lost = lost or hold.state == LOST
        except BaseException:
            # Interrupted, before the release or behind it: nobody else has the lease any more.
            hold._usage.end(body)
            if session.generation == forks.current() and not hold._usage.bodies:
                hold._free_later()
            raise
        finally:
            session.body_ended()
        if lost:
            if error is None or stopped_by_us:
                raise hold.loss() from None
            error.add_note(f"The lease on {in_words(self.names)} had been lost meanwhile.")


def join(leases: Sequence[Lease], opening: Opening) -> MultiLease:
    """Returns the leases as one."""
    holds = [lease._hold for lease in leases]
    parts = [hold for hold in holds if isinstance(hold, PartHold)]
    return MultiLease(MultiHold(parts[0]._session, parts), leases, opening)


def _leases_of(whole: MultiHold, opening: Opening) -> list[Lease]:
    return [Lease(hold, opening) for hold in whole.holds]
