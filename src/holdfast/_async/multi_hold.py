"""The engine's side of a lease on several locks. One that is lost loses the whole.

Each lock has a lease of its own, here called a part, with its token and its end. All parts have one
`Usage`: a body of `with` runs under all of them. So when one part is lost, its body is told as for
any lease; then the other parts are recalled, which tells whoever waits for them, lets the body end
while the store keeps them, and frees them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from .._runtime.aio import call_all
from ..errors import BackendUnavailable, LeaseLost, LockError
from ..lifecycle import LOST, RELEASED, UNCERTAIN
from .hold import HOLDING, Hold

if TYPE_CHECKING:
    from .session import Session


class PartHold(Hold):
    """The engine's side of the lease on one of several locks."""

    _whole: MultiHold | None = None
    """The whole, once all of its locks were granted."""

    def _unwatch(self) -> None:
        whole = self._whole
        if whole is None or whole._ending or not any(one._state in HOLDING for one in whole.holds):
            super()._unwatch()
        else:  # it was released alone: the others may still be dropped
            self._usage.unwatch_lease(self)

    def _tell_others(self) -> None:
        if self._whole is not None:
            self._whole._recall_rest(self)

    def _tellers(self) -> list[object]:
        if self._whole is None:
            return super()._tellers()
        return [hold._teller for hold in self._whole.holds if hold._teller is not None]


class MultiHold:
    """The engine's side of a lease on several locks."""

    def __init__(self, session: Session, holds: Sequence[PartHold]) -> None:
        self._session = session
        self._usage = usage = holds[0]._usage
        self.holds = tuple(holds)
        self._ending = False
        """Whether the whole is being released: what becomes of one part is no news to the others."""
        self._lost: PartHold | None = None
        """The part that was lost first, and for whose sake the others were recalled."""
        for hold in self.holds:
            if hold._usage is not usage:  # they were waited for one by one
                usage.watches.extend(hold._usage.watches)
                hold._usage = usage
            hold._whole = self

    @property
    def state(self) -> str:
        for hold in self.holds:
            hold._look()  # one that ends takes the others along
        states = [hold._look() for hold in self.holds]
        for state in (LOST, RELEASED, UNCERTAIN):
            if state in states:
                return state
        return states[0]

    def is_held(self, now: float) -> bool:
        """Returns whether all parts are held."""
        for hold in self.holds:
            if hold._state not in HOLDING:
                return False
            if now >= hold._deadline:
                return False
        return True

    @property
    def calls_back(self) -> bool:
        """Whether callbacks are being told of the loss of any part."""
        return any(hold._calling_back for hold in self.holds)

    @property
    def deadline(self) -> float:
        """The end of the part that ends first."""
        return min(hold._deadline for hold in self.holds)

    def loss(self) -> LeaseLost:
        """Returns the error that tells of the part whose end came first."""
        lost = self._lost
        if lost is None:
            ended = [hold for hold in self.holds if hold._state not in HOLDING]
            lost = ended[0] if ended else self.holds[0]
        return lost._loss()

    def refuse_fork(self) -> None:
        self.holds[0]._refuse_fork()

    # Its end.

    def _recall_rest(self, lost: PartHold) -> None:
        """Ends the other parts, because `lost` is lost, and its callbacks were called."""
        if self._ending:
            return
        if self._lost is None:
            self._lost = lost
        session = self._session
        for hold in self.holds:
            if hold._state in HOLDING:
                hold._recall(f"the lease on {self._lost.name!r}, which it was taken with, was lost")
            elif hold._freeing and not hold._untold and not session.closed:
                # Its body, which would have freed it, may have ended while the callbacks ran.
                session.keeper.keep(hold, max(session.now(), hold._free_at()))

    async def release(self) -> bool:
        """Releases all parts: True if all were still ours. Raises the first failure, after all."""
        self.refuse_fork()
        freed, failure = await self._release_each()
        if failure is not None:
            raise failure
        return freed

    async def _release_quietly(self) -> bool:
        """Releases what is still held, and frees what was recalled, at the end of `with`."""
        _, failure = await self._release_each()
        if failure is not None:
            self._session.tell(
                "release_failed",
                failure.name or "",
                failure.owner or "",
                failure.token or 0,
                0.0,
                str(failure),
            )
        return failure is None

    async def _release_each(self) -> tuple[bool, LockError | None]:
        """Returns whether all parts were still ours, and the first failure.

        After a failure the rest is released in the background: a store that does not answer is given
        its time once, and not for each part.
        """
        self._ending = True
        held = self.is_held(self._session.now())
        if held and hasattr(self._session.backend, "release_all"):
            return await self._release_together()
        freed = True
        failure: LockError | None = None

        async def release(hold: PartHold) -> None:
            nonlocal freed, failure
            if hold._freeing:
                freed = False
                if self._session.pending_releases:
                    hold._free_later()
                else:
                    await hold._free()
            elif failure is not None and hold._state in HOLDING:
                hold._free_later()
            else:
                try:
                    ours = await hold.release()
                    freed = freed and ours
                except LockError as error:
                    failure = failure or error

        try:
            await call_all([partial(release, hold) for hold in self.holds])
        except BaseException:
            self._free_later()
            raise
        return freed, failure

    async def _release_together(self) -> tuple[bool, LockError | None]:
        """Releases all parts in one call; returns as `_release_each` does."""
        session = self._session
        pairs: list[tuple[str, str]] = []
        try:
            for hold in self.holds:
                session.keeper.forget(hold)
                hold._releases += 1
                ticket = hold._ticket
                pairs.append((ticket.terms.name, ticket.owner))
            answers = await session.backend.release_all(pairs, session.deadline())  # type: ignore[attr-defined]
        except BackendUnavailable as error:
            first, *rest = self.holds
            for hold in rest:
                hold._free_later()
            return False, first._unavailable(
                "could not be given back, and ends by itself unless that is tried again", error
            )
        except BaseException:
            self._free_later()
            raise
        ours = True
        for hold, freed in zip(self.holds, answers, strict=True):
            ours = (hold._freed(True) if freed else hold._answered(False)) and ours
        return ours, None

    def _free_later(self) -> None:
        """Has all that is left of it freed at the store, in the background."""
        for hold in self.holds:
            if hold._freeing or hold._state in HOLDING:
                hold._free_later()

    def _abandon(self, depth: int) -> None:
        """Gives it up, because its body is over. Called where an object is finalized."""
        for hold in self.holds:
            hold._abandon(depth)


def in_words(names: Sequence[str]) -> str:
    """Returns the names for a message: the first ones, where there are many."""
    shown = ", ".join(repr(name) for name in names[:4])
    return shown if len(names) <= 4 else f"{shown} and {len(names) - 4} more"
