"""The turn of one request at its resource: when it ends, and whether its token stays remembered.

A request that changes something has the resource to itself until it has been answered. A reader's has
it until the application has said how it answers; if its token was remembered before, it needs no turn
at all. So readers read at the same time, and a long body keeps nobody waiting.
"""

from __future__ import annotations

from collections.abc import Callable

from .request_memory import Hold

ABSENT = (404, 410)
"""Statuses by which a reader learns that there is nothing: an older writer must not make it then."""


class RequestTurn:
    """The turn that a request has taken, by a hold that was entered."""

    def __init__(self, hold: Hold, reads: bool, accepted: Callable[[int], bool]) -> None:
        self._hold: Hold | None = hold
        self._reads = reads
        self._accepted = accepted
        self._status: int | None = None
        self._failed = False
        if reads and not hold.changed:
            self.end()

    def answered(self, status: int) -> None:
        """Notes the status of the application's response, which goes out next."""
        self._status = status
        if self._reads:
            self.end()

    def end(self) -> None:
        """Ends the turn, if it has not ended; takes the token back if the application refused."""
        hold, self._hold = self._hold, None
        if hold is None:
            return
        try:
            if self._status is not None and not self._failed and not self._counts(self._status):
                hold.retract()
        finally:
            hold.__exit__(None, None, None)

    def fail(self) -> None:
        """Notes that the application failed: it may have written, whatever it answered."""
        self._failed = True

    def abandon(self) -> None:
        """Ends the turn of a request whose application failed."""
        self.fail()
        self.end()

    def _counts(self, status: int) -> bool:
        return self._accepted(status) or (self._reads and status in ABSENT)
