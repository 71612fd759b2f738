"""A waiter: an owner in the queue of a lock, and the requests that wait for it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from ..model import Renewed

if TYPE_CHECKING:
    from ..stores._async.contract import Ticket
    from .store import Store

SILENCE_LIMIT = 10.0
"""Seconds for which a waiter goes on though the store answers nothing."""
LEAST_SILENCES = 4
"""Heartbeats that have to be unanswered in that time."""


class Grant(NamedTuple):
    """A grant, as it is told to the caller."""

    token: int
    ttl: float
    sent: float
    """When that was sent to the store from which the lease counts."""
    slot: int | None = None
    handed: bool = False


HANDED_ON = Grant(0, 0.0, 0.0)
"""Told in place of the end of a wait to those who wait along: one of them is to lead."""


class ClientGone(Exception):
    """Raised when there is nobody left to be answered."""


class Waiter:
    """An owner in the queue of a lock, on behalf of a held request."""

    __slots__ = (
        "__weakref__",
        "_end",
        "_interested",
        "_silences",
        "_silent_since",
        "_store",
        "grant",
        "led",
        "left",
        "lost",
        "name",
        "over",
        "owner",
        "stopping",
        "ticket",
        "ttl",
        "unanswered",
    )

    def __init__(self, store: Store, ticket: Ticket) -> None:
        self._store = store
        self.ticket = ticket
        self.name = ticket.name
        self.owner = ticket.owner
        self.ttl = ticket.ttl
        self.grant: Grant | None = None
        """The grant that a renewal has confirmed."""
        self.lost = False
        """The store knows nothing of this owner any more."""
        self.unanswered = False
        self.stopping = False
        self.left = False
        """All its clients are gone."""
        self.led = False
        """One of its requests waits on behalf of all."""
        self.over = False
        """The wait has ended, and the queue is being left."""
        self._end: asyncio.Future[Grant | None] | None = None
        """Set where another request waits for the same owner: the end of the wait."""
        self._interested = 1
        self._silences = 0
        self._silent_since = 0.0

    # What is heard of it.

    def hear(self, outcome: Renewed, sent: float) -> None:
        """Notes that the waiter holds the lock, by a renewal that was sent at `sent`."""
        self.grant = Grant(outcome.token, outcome.ttl, outcome.since or sent, outcome.slot)
        self.ticket.tell()

    def answered(self) -> None:
        self._silences = 0

    def lose_place(self) -> None:
        self.lost = True
        self.ticket.tell()

    def note_silence(self, now: float) -> None:
        if not self._silences:
            self._silent_since = now
        self._silences += 1
        if self._silences >= LEAST_SILENCES and now >= self._silent_since + SILENCE_LIMIT:
            self.unanswered = True
            self.ticket.tell()

    def stop(self) -> None:
        """Ends the wait, because the service stops."""
        self.stopping = True
        self.ticket.tell()

    # Its clients.

    def join(self) -> None:
        """Notes that another request waits for the same owner."""
        self._interested += 1

    def shared_end(self) -> asyncio.Future[Grant | None]:
        """Returns the end of the wait, for those who do not lead it."""
        if self._end is None:
            self._end = asyncio.get_running_loop().create_future()
        return self._end

    def hand_on(self) -> bool:
        """Lets another request lead from now on; False if there is none."""
        if not self._interested:
            return False
        self.led = False
        self.finish(HANDED_ON)
        return True

    def finish(self, grant: Grant | None) -> None:
        """Tells those who wait along how the wait has ended."""
        end, self._end = self._end, None
        if end is not None and not end.done():
            end.set_result(grant)

    def fail(self, error: BaseException) -> None:
        """Tells those who wait along why the wait has ended."""
        end, self._end = self._end, None
        if end is not None and not end.done():
            end.set_exception(error)
            end.exception()  # lest Python warn that nobody took it

    def leave(self) -> None:
        """Notes that a client is gone, or waits no longer."""
        self._interested -= 1
        if not self._interested:
            self.left = True
            self.ticket.tell()
