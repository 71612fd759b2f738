"""A lease: the proof that we hold a lock, with its token and its end.

`held`, `remaining` and `ensure` ask the clock each time; nothing has to run for them to be right, so
a process that was frozen past its deadline is told by the first look. Whoever wants to be told
unasked (`on_lost`, the body of `async with`) is told by the alarm, which no store can hold up.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Self

from .. import checks, forks
from .._runtime.aio import Interrupt, Signal, current
from ..entries import Claim
from ..errors import BackendUnavailable, GuaranteeError, LeaseLost, LockError
from ..events import Ignored
from ..lifecycle import HELD, LOST
from ..model import Renewed, Unknown, slot_of
from .hold import HOLDING, Hold

if TYPE_CHECKING:
    from ..fences import BoundFence


class Lease(Hold):
    """A lock that is held. Safe to use from any thread, or any task of its event loop."""

    def __repr__(self) -> str:
        return f"<Lease {self.name!r} token={self.token} {self.state}>"

    @property
    def state(self) -> str:
        """`held`, `uncertain`, `lost` or `released`."""
        self._look()
        return self._state

    @property
    def held(self) -> bool:
        """Whether the lease is ours now, by our own clock. In a forked child it never is."""
        return self.remaining() > 0

    @property
    def kind(self) -> str:
        """`lock`, `semaphore` or `rwlock`."""
        return self._ticket.kind

    @property
    def shared(self) -> bool:
        """Whether others may hold at the same time: one of a semaphore's, or a reader's."""
        return self._ticket.weight < self._ticket.capacity

    @property
    def slot(self) -> int | None:
        """The slot of a semaphore's holder: from 0 to permits - 1, and no other holder's meanwhile.

        A resource that each slot has to itself can be fenced. None for other locks, and where the
        store cannot tell.
        """
        ticket = self._ticket
        slots = self._session.backend.guarantees.slots
        return slot_of(self.token, ticket.kind, ticket.capacity) if slots else None

    @property
    def lock_id(self) -> str:
        """The lock's name among those of all stores and namespaces: what a fence keeps."""
        self._refuse_fork()  # a fence asks for it whenever a lease is shown
        return f"{self._session.realm}/{self._ticket.name}"

    @property
    def guard(self) -> BoundFence:
        """The fence that the lock protects its resource with, showing this lease at every call."""
        fence = self._request.options.protects
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
        if self._state not in HOLDING or self._session.generation != forks.generation:
            return 0.0
        left = self._deadline - self._session.clock.now()
        if left > 0:
            return left
        self._look()
        return 0.0

    def ensure(self, at_least: float = 0.0) -> None:
        """Raises `LeaseLost` unless the lease is held, and for `at_least` seconds more."""
        at_least = checks.at_least(at_least)
        self._refuse_fork()
        left = self.remaining()
        if left <= 0:
            raise self._loss()
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
        self._refuse_fork()
        with self._session.mutex:
            if self._state in HOLDING:
                if self._callbacks is None:
                    self._callbacks = []
                self._callbacks.append(callback)
                callback_now = False
            else:
                callback_now = self._state == LOST
        if callback_now:
            self._call(callback)
        else:
            self._set_alarm()

    async def wait_lost(self, timeout: float | None = None) -> bool:
        """Waits until the lease is lost: True. False after `timeout`, or when it was released."""
        timeout = checks.timeout(timeout)
        self._refuse_fork()
        clock = self._session.clock
        until = None if timeout is None else clock.now() + timeout
        signal = Signal(clock)
        with self._session.mutex:
            if self._watchers is None:
                self._watchers = []
            self._watchers.append(signal)
        try:
            while self.state in HOLDING:
                if until is not None and clock.now() >= until:
                    break
                deadline = self._deadline
                await signal.wait(deadline if until is None else min(until, deadline))
            return self._state == LOST
        finally:
            with self._session.mutex:
                self._watchers.remove(signal)

    async def renew(self, ttl: float | None = None) -> None:
        """Renews the lease now, and from now on for `ttl` seconds if that is given.

        Raises `LeaseLost` if it has ended, `BackendUnavailable` if the store does not answer; the
        lease then lasts until its present end.
        """
        asked = self.ttl if ttl is None else checks.ttl(ttl)
        self._refuse_fork()
        session = self._session
        sent = session.clock.now()
        if self._expire_if_due(sent):
            raise self._loss()
        claim = Claim(self.name, self.owner, asked)
        try:
            (outcome,) = await session.backend.renew([claim], session.deadline())
        except BackendUnavailable as error:
            raise self._unavailable("could not be renewed", error) from error
        if isinstance(outcome, Renewed) and outcome.token == self.token:
            # A store may give more than was asked for, where it counts in whole seconds; or never
            # more than it did at first.
            renew_ttl = session.backend.guarantees.renew_ttl
            self.ttl = self._ticket.ttl = max(asked, outcome.ttl) if renew_ttl else outcome.ttl
        due = self._hear(outcome, sent, "the store did not answer for this lease")
        if isinstance(outcome, Unknown):
            raise BackendUnavailable(
                f"the store did not say whether the lease on {self.name!r} was renewed; it lasts "
                f"{self.remaining():.3f} s more",
                name=self.name,
                owner=self.owner,
                token=self.token,
            )
        self.ensure()
        if self._kept and due is not None:
            session.keeper.hurry(self, due)

    async def release(self) -> bool:
        """Releases it: True if it was still ours, False if it had ended. Never frees another's.

        From the first call on it is not renewed any more. If the store cannot be reached this
        raises `BackendUnavailable`, and may be tried again; otherwise the TTL frees it.
        """
        session = self._session
        if session.generation != forks.generation:
            self._refuse_fork()
        clock = session.now  # by way of a name, which is quicker for what is no method
        now = clock()
        if (self._state is not HELD or now >= self._deadline) and self._expire_if_due(now):
            return False  # where `max_hold` ended it, the keeper still has to free it
        ticket = self._ticket
        try:
            session.keeper.forget(self)
            deadline = now + session.patience
            freed = await session.backend.release(ticket.terms.name, ticket.owner, deadline)
        except BackendUnavailable as error:
            self._release_doubtful = True
            raise self._unavailable(
                "could not be given back, and ends by itself unless that is tried again", error
            ) from error
        except BaseException:
            # Cancelled, perhaps before it was sent. It is over for us in any case (and before the
            # next await, which may be cancelled too); it is harmless to send it twice.
            self._freed(True)
            await session.clean_up(self._ticket)
            raise
        if not freed and self._release_doubtful and self.held:
            freed = True  # an earlier call, whose answer was lost, has done it
        return self._freed(freed)

    async def tether(self) -> int | None:
        """Returns a file descriptor for a child process to inherit, so that the lease outlives us.

        None where that is not needed, because the lease does not end with our process.
        """
        self.ensure()
        return await self._session.backend.tether(self.name, self.owner, self._session.deadline())

    async def __aenter__(self) -> Self:
        self._enter()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._leave(error)

    # For `with`, and for close.

    def _enter(self) -> None:
        """Begins the body of `with`, which is stopped, where that can be done, if the lease is lost."""
        self.ensure()
        self._body = current()
        self._interrupt = Interrupt()
        if Interrupt.works:
            self._set_alarm()

    async def _leave(self, error: BaseException | None) -> None:
        """Ends the body of `with`: releases the lease, and raises if it had been lost meanwhile."""
        try:
            self._body = None
            interrupt, self._interrupt = self._interrupt, None
            stopped_by_us = interrupt is not None and interrupt.settle(error)
            if error is None:
                self._refuse_fork()
            elif self._session.generation != forks.generation:
                return
            if self.state in HOLDING:
                await self._release_quietly()
            elif self._freeing:
                await self._free()
            self._session.body_ended()
        except BaseException:
            # Interrupted, before the release or behind it: nobody else has the lease any more.
            if self._state in HOLDING and self._session.generation == forks.generation:
                self._release_doubtful = True
                await self._release_quietly()
            raise
        if self._state == LOST:
            if error is None or stopped_by_us:
                raise self._loss() from None
            error.add_note(f"The lease on {self.name!r} had been lost meanwhile.")

    async def _give_all_back(self) -> bool:
        """Releases it for `close`, however often it was taken."""
        return await self._release_quietly()

    async def _release_quietly(self) -> bool:
        """Releases it at the end of `with` and for `close`: an event alone tells of a failure."""
        try:
            await self.release()
        except LockError as error:
            self._session.tell(
                "release_failed", self.name, self.owner, self.token, 0.0, detail=str(error)
            )
            return False
        return True
