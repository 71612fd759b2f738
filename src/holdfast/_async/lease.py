"""A lease: the proof that we hold a lock, with its token and its end.

`held`, `remaining` and `ensure` ask the clock each time; nothing has to run for them to be right, so
a process that was frozen past its deadline is told by the first look. Whoever wants to be told
unasked (`on_lost`, the body of `async with`) is told by the alarm, which no store can hold up.

The engine itself keeps the `Hold` behind a lease, never the lease: when nobody has that any more, it
says so.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn, Self
from weakref import ref

from .. import checks, forks
from .._runtime.aio import Signal
from ..entries import Claim
from ..errors import BackendUnavailable, ConfigError, GuaranteeError, LeaseLost
from ..events import Ignored
from ..lifecycle import LOST
from ..model import Gone, Renewed, Unknown, slot_of
from .amending import amend
from .hold import HOLDING, Hold
from .lease_object import LeaseObject
from .telling import call_back
from .usage import Body, Watch

if TYPE_CHECKING:
    from ..fences import BoundFence
    from .opening import Opening


def _on_drop(watch: Watch) -> None:
    """Warns that nobody can release a lease any more, which goes on being renewed."""
    if sys.is_finalizing():  # asked first: modules may be gone, where the server is in C
        return
    hold = watch.hold
    session = hold._session
    if not hold._usage.take_drop(watch) or session.closed:
        return
    if session.generation != forks.current():
        return
    if not hold._usage.given:
        hold._abandon(hold._usage.depth)
    elif (
        hold._state in HOLDING and hold._wants_renewal() and hold._kept and not hold._usage.dropped
    ):
        warnings.warn(
            f"the lease on {hold.name!r} (token {hold.token}) was dropped and never released: it is "
            "renewed until its manager is closed; keep it, or use `with`",
            ResourceWarning,
            stacklevel=2,
        )


class Lease(LeaseObject["Lease"]):
    """A lock that is held. Safe to use from any thread, or any task of its event loop."""

    __slots__ = ("__weakref__", "_hold", "_opening")

    _hold: Hold

    def __init__(self, hold: Hold, opening: Opening) -> None:
        self._hold = hold
        self._opening = opening  # a manager whose lease is in use is in use itself
        hold._usage.watch(hold, self, _on_drop)

    def __repr__(self) -> str:
        return f"<Lease {self.name!r} token={self.token} {self.state}>"

    @property
    def name(self) -> str:
        """The lock's name."""
        return self._hold.name

    @property
    def owner(self) -> str:
        """The id of this one acquisition."""
        return self._hold.owner

    @property
    def token(self) -> int:
        """The fencing token, greater than that of every grant of this lock that ended before."""
        return self._hold.token

    @property
    def ttl(self) -> float:
        """The seconds that the store gives it from each renewal on."""
        return self._hold.ttl

    @property
    def state(self) -> str:
        """`held`, `uncertain`, `lost` or `released`. Until a release is answered it is `uncertain`."""
        return self._hold._look()

    @property
    def held(self) -> bool:
        """Whether the lease is ours now, by our own clock. In a forked child it never is."""
        return self.remaining() > 0

    @property
    def kind(self) -> str:
        """`lock`, `semaphore`, `rwlock`, `election` or `once`."""
        return self._hold._ticket.kind

    @property
    def shared(self) -> bool:
        """Whether others may hold at the same time: one of a semaphore's, or a reader's."""
        hold = self._hold
        return hold._shared or hold._ticket.weight < hold._ticket.capacity

    @property
    def slot(self) -> int | None:
        """The slot of a semaphore's holder: from 0 to permits - 1, and no other holder's meanwhile.

        A resource that each slot has to itself can be fenced. None for other locks, and where the
        store cannot tell.
        """
        hold = self._hold
        ticket = hold._ticket
        if ticket.slot is not None or not hold._session.backend.guarantees.slots:
            return ticket.slot
        return slot_of(self.token, ticket.kind, ticket.capacity)

    @property
    def lock_id(self) -> str:
        """The lock's name among those of all stores and namespaces: what a fence keeps."""
        hold = self._hold
        hold._refuse_fork()  # a fence asks for it whenever a lease is shown
        return f"{hold._session.realm}/{hold._ticket.name}"

    @property
    def guard(self) -> BoundFence:
        """The fence that the lock protects its resource with, showing this lease at every call."""
        hold = self._hold
        fence = hold._request.options.protects
        if fence is None:
            raise GuaranteeError(
                f"the lock {self.name!r} was made without a fence; name it with protects=",
                name=self.name,
                owner=self.owner,
                token=self.token,
            )
        from ..fences import BoundFence

        return BoundFence(fence, self)

    def remaining(self) -> float:
        """Returns the seconds for which it is ours even if no renewal succeeds from now on."""
        hold = self._hold
        if hold._state not in HOLDING or hold._session.generation != forks.current():
            return 0.0
        if hold._releases:
            return 0.0  # the store may have freed it
        left = hold._deadline - hold._session.clock.now()
        if left > 0:
            return left
        hold._look()
        return 0.0

    def ensure(self, at_least: float = 0.0) -> None:
        """Raises `LeaseLost` unless the lease is held, and for `at_least` seconds more."""
        hold = self._hold
        at_least = checks.at_least(at_least)
        hold._refuse_fork()
        left = self.remaining()
        if left <= 0:
            raise hold._loss()
        if left < at_least:
            raise LeaseLost(
                f"the lease on {self.name!r} is still held, but only {left:.3f} s of it are left, "
                f"less than the {at_least:g} s asked for",
                name=self.name,
                owner=self.owner,
                token=self.token,
                reason="too little is left of it",
            )

    def on_lost(self, callback: Callable[[Lease], Ignored]) -> None:
        """Calls `callback(lease)` once when the lease is lost; at once if it already is.

        It is called in the thread, or the event loop, that notices; a release is no loss. `async def`
        is refused: nobody would await it.
        """
        checks.callback("on_lost", callback)
        hold = self._hold
        hold._refuse_fork()
        with hold._session.mutex:
            if hold._state in HOLDING:
                if hold._callbacks is None:
                    hold._callbacks = []
                hold._callbacks.append((callback, ref(self), self._opening))
                callback_now = False
            else:
                callback_now = hold._state == LOST
        if callback_now:
            call_back(hold, callback, self)
        else:
            hold._set_alarm()
            hold._session.closing.recall_late(hold)

    async def wait_lost(self, timeout: float | None = None) -> bool:
        """Waits until the lease is lost: True. False after `timeout`, or when it was released."""
        hold = self._hold
        timeout = checks.timeout(timeout)
        hold._refuse_fork()
        clock = hold._session.clock
        until = None if timeout is None else clock.now() + timeout
        signal = Signal(clock)
        try:
            with hold._session.mutex:
                if hold._watchers is None:
                    hold._watchers = []
                hold._watchers.append(signal)
            hold._session.closing.recall_late(hold)
            while self.state in HOLDING:
                if until is not None and clock.now() >= until:
                    break
                deadline = hold._deadline
                await signal.wait(deadline if until is None else min(until, deadline))
            return hold._state == LOST
        finally:
            with hold._session.mutex:
                if hold._watchers is not None and signal in hold._watchers:  # else interrupted
                    hold._watchers.remove(signal)

    async def renew(self, ttl: float | None = None) -> None:
        """Renews the lease now, and from now on for `ttl` seconds if that is given.

        Raises `LeaseLost` if it has ended, `BackendUnavailable` if the store does not answer; the
        lease then lasts until its present end.
        """
        hold = self._hold
        asked = self.ttl if ttl is None else checks.ttl(ttl)
        hold._refuse_fork()
        session = hold._session
        # unasync: aio-only
        session.closing.strand_if_ended()
        # unasync: end
        sent = session.clock.now()
        if hold._expire_if_due(sent) or hold._releases:
            raise hold._loss()
        delay = hold._ticket.terms.delay
        claim = Claim(self.name, self.owner, asked + delay)
        try:
            (outcome,) = await session.renewals.send([claim], session.deadline())
        except BackendUnavailable as error:
            raise hold._unavailable("could not be renewed", error) from error
        if isinstance(outcome, Gone) and hold._releases:
            raise hold._loss()  # another thread or task is releasing it: that is no loss
        due = hold._hear(outcome, sent, "the store did not answer for this lease")
        if isinstance(outcome, Renewed) and outcome.token == self.token:
            # A store may give more than was asked for, where it counts in whole seconds; or never
            # more than it did at first.
            renew_ttl = session.backend.guarantees.renew_ttl
            given = max(asked + delay, outcome.ttl) if renew_ttl else outcome.ttl
            hold.ttl, hold._ticket.ttl = given - delay, given
            due = hold._due(outcome.since or sent)
        if isinstance(outcome, Unknown):
            raise BackendUnavailable(
                f"the store did not say whether the lease on {self.name!r} was renewed; it lasts "
                f"{self.remaining():.3f} s more",
                name=self.name,
                owner=self.owner,
                token=self.token,
            )
        self.ensure()
        if hold._kept and due is not None:
            session.keeper.hurry(hold, due)

    async def release(self) -> bool:
        """Releases it: True if it was still ours, False if it had ended. Never frees another's.

        From the first call on it is neither held nor renewed any more. If the store cannot be reached
        this raises `BackendUnavailable`, and may be tried again; otherwise the TTL frees it.
        """
        # unasync: aio-only
        self._hold._session.closing.strand_if_ended()
        # unasync: end
        return await self._hold.release()

    async def downgrade(self) -> None:
        """Makes a writer's lease a reader's, with the same token; whoever waits to read is let in.

        Nobody writes in between. Not the other way round: see `upgrade`.
        """
        hold = self._hold
        self.ensure()
        if self.kind != "rwlock":
            raise ConfigError(
                f"only the writer of a rwlock can become a reader; {self.name!r} is a {self.kind}",
                name=self.name,
            )
        hold._shared = True  # from now on: the answer may be lost
        await amend(hold, "may be a reader's now, and counts as one; try that again", weight=1)

    def upgrade(self) -> NoReturn:
        """Refuses: two readers that waited for each other to end would wait for ever."""
        raise GuaranteeError(
            f"a reader of {self.name!r} cannot become its writer: two that tried would wait for each "
            "other for ever; release it and ask for write(), or write first and then downgrade()",
            name=self.name,
            owner=self.owner,
            token=self.token,
        )

    async def export(self) -> str:
        """Gives the lease away, and returns a text by which `locks.adopt` takes it, anywhere.

        It has ended for us then, and is not renewed: it lasts for its TTL unless it is adopted before.
        The adopter gets a higher token, so what we still write is stale. Whoever has the text may take
        the lease.
        """
        from .exporting import export  # slow to import, and seldom needed

        return await export(self)

    def _exported_text(self) -> str:
        """Returns what the adopter is to be shown as; empty: as itself."""
        return ""

    async def tether(self) -> int | None:
        """Returns a file descriptor for a child process to inherit, so that the lease outlives us.

        None where that is not needed, because the lease does not end with our process.
        """
        session = self._hold._session
        # unasync: aio-only
        session.closing.strand_if_ended()
        # unasync: end
        self.ensure()
        return await session.backend.tether(self.name, self.owner, session.deadline())

    # For `with`.

    async def _to_enter(self) -> Lease:
        return self

    def _take_by_hand(self) -> tuple[Lease, Body]:
        return self, self._body_by_hand()

    def _title(self) -> str:
        return repr(self.name)

    def _set_alarm(self) -> None:
        self._hold._set_alarm()

    def _loss(self) -> LeaseLost:
        return self._hold._loss()

    if TYPE_CHECKING:

        async def __aenter__(self) -> Self: ...

    async def _leave(self, error: BaseException | None, body: Body) -> None:
        """Ends a body of `with`: releases the lease, and raises if it had been lost meanwhile.

        Where several bodies run under one lease, the last one to end releases it.
        """
        hold = self._hold
        session, usage = hold._session, hold._usage
        depth = usage.depth
        try:
            stopped_by_us = usage.settle(body, error)
            if session.generation != forks.current():
                if error is not None:
                    return
                hold._refuse_fork()
            last = usage.leave(depth)
            clock = session.now
            if not hold._expire_if_due(clock()):
                if last:
                    await hold._release_quietly()
            elif hold._freeing and not usage.bodies and not hold._calling_back:
                await hold._free()
        except BaseException:
            # Interrupted, before the release or behind it: nobody else has the lease any more.
            usage.end(body)
            ours = session.generation == forks.current() and usage.depth == depth
            if hold._state in HOLDING and ours and (depth > 1 or not usage.bodies):
                await hold._release_quietly()
            raise
        finally:
            session.body_ended()
        if hold._state == LOST:
            if error is None or stopped_by_us:
                raise hold._loss() from None
            error.add_note(f"The lease on {self.name!r} had been lost meanwhile.")
