"""The job of many machines that is done once in each period: `locks.once(name, period)`.

The one who gets the slot of a period holds a lease while it works. When the work is done, the lease is
detached for the rest of the period: nobody else gets the slot, though nobody renews it. When the work
has failed, it is given back, and the next one may try. When its worker dies, the lease runs out, and
the next one may try: that is the catch-up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import checks
from .._runtime.aio import finish, in_background
from ..errors import ConfigError, GuaranteeError, LockError
from ..guarantees import MAX_DETACHED
from .detaching import detach
from .hold import Hold
from .lease import Lease
from .waiting import obtain

if TYPE_CHECKING:
    from ..cron import Cron
    from ..guarantees import Guarantees
    from .opening import Opening
    from .request import Request
    from .usage import Body

SOON = 0.001
"""Seconds for which a slot is kept whose end came while renewals were waited for."""


class OnceHold(Hold):
    """The engine's side of a period's lease."""

    _slot_ends = 0.0
    """The end of the period on our clock."""
    _kept_at_least_until = 0.0
    """Until when the slot is kept even if the work fails."""
    _failed = False
    """Whether the body raised."""

    _done = False
    """Whether the work was said to be done."""

    async def release(self) -> bool:
        """Keeps the slot for the rest of the period; or gives it back, if the work has failed."""
        self._done = not self._failed
        end = self._slot_ends if self._done else self._kept_at_least_until
        if end <= self._session.now():
            return await super().release()
        return await detach(self, lambda: self._rest(end))

    def _rest(self, end: float) -> float:
        """Returns the seconds until `end`; some, also if that has come by now."""
        return max(end - self._session.now(), SOON)

    async def _give_all_back(self) -> bool:
        """Gives the slot back for `close`, unless the work was said to be done."""
        self._failed = not self._done
        return await super()._give_all_back()

    def _free_later(self) -> None:
        """Frees the slot in the background, `at_most` being over; but not before `at_least` is."""
        end = self._kept_at_least_until
        if end <= self._session.now():
            super()._free_later()
            return
        session = self._session
        session.keeper.forget(self)
        self._freeing = True  # until it is kept: `close` waits for that
        session.recalled[self._ticket.owner] = self
        self._freed(True)
        in_background(self._keep, session.home)

    async def _free(self) -> None:
        session = self._session
        if self._kept_at_least_until <= session.now():
            await super()._free()
            return
        try:
            session.keeper.forget(self)
            await finish(self._keep, grace=session.patience)
        except BaseException:  # by a signal's handler, or cancelled
            self._free_later()
            raise

    async def _keep(self) -> None:
        """Keeps the slot until `at_least` is over."""
        session, ticket = self._session, self._ticket
        session.closing.share_rest()
        deadline = session.deadline()
        await session.renewals.end(ticket.owner, deadline - session.patience / 2)
        try:
            rest = self._rest(self._kept_at_least_until)
            await session.backend.detach(ticket.name, ticket.owner, rest, deadline)
        except LockError:
            session.closing.note_silence()  # it ends with its TTL
        self._is_free()


class OnceLease(Lease):
    """The lease of a period. Leaving `with` keeps the slot; if the body raised, gives it back."""

    __slots__ = ()

    async def release(self) -> bool:
        """Says that the work is done: the slot is kept for the rest of the period."""
        return await super().release()

    async def give_back(self) -> bool:
        """Says that the work has failed: somebody else may try, in the same period."""
        hold = self._hold
        assert isinstance(hold, OnceHold)
        hold._failed = True
        return await hold.release()

    async def export(self) -> str:
        """Refuses: whoever adopted it would not know of the period, and give the slot back."""
        raise GuaranteeError(
            f"the lease of a period of {self.name!r} cannot be given away: its adopter would not know "
            "when the period ends; do the work here, or ask once() there",
            name=self.name,
            owner=self.owner,
            token=self.token,
        )

    async def _leave(self, error: BaseException | None, body: Body) -> None:
        hold = self._hold
        assert isinstance(hold, OnceHold)
        if error is not None:
            hold._failed = True
        await super()._leave(error, body)


class Period:
    """The time from one run of a job to the next: some seconds, or what a cron expression says."""

    __slots__ = ("_cron", "_seconds")

    def __init__(self, period: float | str, timezone: str = "UTC") -> None:
        self._cron: Cron | None = None
        self._seconds = 0.0
        if isinstance(period, str):
            from ..cron import Cron  # slow to import, and not always needed

            self._cron = Cron(period, timezone)
        else:
            self._seconds = checks.ttl(period, "period")

    def checked(self, at_least: float) -> float:
        """Returns `at_least`, unless it is longer than the period itself."""
        if self._cron is None and at_least > self._seconds:
            raise ConfigError(
                f"at_least={at_least:g} is longer than the period of {self._seconds:g} s, after which "
                "the slot is anybody's; make it shorter, or the period longer"
            )
        return at_least

    def refuse_too_long(
        self, name: str, guarantees: Guarantees, seconds: float | None = None
    ) -> None:
        """Raises `GuaranteeError` if the store cannot keep a slot for so many seconds."""
        longest = guarantees.longest_detached
        seconds = self._seconds if seconds is None else seconds
        if seconds > longest:
            advice = "give a shorter one, or use another store"
            if longest < MAX_DETACHED:
                advice = (
                    f"give all clients of the store max_ttl={seconds:g} (a node that restarted stays "
                    "out for that long), or use another store"
                )
            raise GuaranteeError(
                f"{guarantees.store} keeps what nobody renews for {longest:g} s at most, and the "
                f"period of {name!r} is {seconds:g} s; {advice}",
                name=name,
            )

    async def rest(self, lease: Lease, opening: Opening) -> float:
        """Returns the seconds from the grant of `lease` to the end of its period."""
        if self._cron is None:
            return self._seconds
        state = await opening.ask(
            f"asked about {lease.name!r}",
            lease.name,
            lambda session, deadline: session.backend.inspect(lease.name, deadline),
        )
        for holder in state.holders:
            if holder.owner == lease.owner:
                seconds = self._cron.after(holder.since) - holder.since
                self.refuse_too_long(lease.name, opening.guarantees, seconds)
                return seconds
        lease.ensure()
        raise lease._hold._loss()


async def once(
    opening: Opening, request: Request, period: Period, at_least: float
) -> OnceLease | None:
    """Returns the lease of this period, or None if somebody has it or has done the work."""
    lease = await obtain(opening, request, 0.0, None)
    if lease is None:
        return None
    hold = lease._hold
    assert isinstance(lease, OnceLease)
    assert isinstance(hold, OnceHold)
    try:
        rest = await period.rest(lease, opening)
        hold._slot_ends = hold._granted_at + rest
        hold._kept_at_least_until = hold._granted_at + min(at_least, rest)
    except BaseException:
        await hold._give_all_back()
        raise
    hold._usage.given = True
    return lease
