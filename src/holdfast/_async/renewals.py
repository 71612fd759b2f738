"""The renewals that are under way: whoever gives a lease a set end waits for them first.

A renewal that arrived behind that would lengthen the lease again, to its TTL. One whose answer never
came may still do so: nobody can wait for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from .._runtime.aio import Signal
from ..entries import Claim
from ..model import Outcome

if TYPE_CHECKING:
    from .session import Session


class Unwanted(Exception):
    """Raised when a call was not made, since not all of it is wanted any more."""


class RenewalCall:
    """One call to the store, and the signals of those who wait for its end."""

    __slots__ = ("claims", "signals")

    def __init__(self, claims: Sequence[Claim]) -> None:
        self.claims = claims
        self.signals: list[Signal] = []

    def renews(self, owner: str) -> bool:
        return any(claim.owner == owner for claim in self.claims)


class Renewals:
    """The calls of one session."""

    __slots__ = ("_session", "under_way")

    def __init__(self, session: Session) -> None:
        self._session = session
        self.under_way: list[RenewalCall] = []

    async def send(
        self, claims: Sequence[Claim], deadline: float, wanted: Callable[[], bool] | None = None
    ) -> Sequence[Outcome]:
        """Renews leases and waiters, as the backend does.

        Raises `Unwanted` if `wanted` says no, which is asked when the call is known here.
        """
        call = RenewalCall(claims)
        try:
            self.under_way.append(call)
            if wanted is not None and not wanted():
                raise Unwanted
            return await self._session.backend.renew(claims, deadline)
        finally:
            if call in self.under_way:  # else interrupted
                self.under_way.remove(call)
            for signal in call.signals:
                signal.set()

    async def end(self, owner: str, until: float) -> None:
        """Waits until no renewal of `owner` is under way any more, or until `until`."""
        for call in list(self.under_way):
            if call.renews(owner):
                signal = Signal(self._session.clock)
                call.signals.append(signal)
                if call in self.under_way:  # else nobody may set the signal any more
                    await signal.wait(until)
