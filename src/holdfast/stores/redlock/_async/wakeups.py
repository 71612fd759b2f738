"""Who waits for a lock, and the node that wakes it.

All clients prefer the same node, the first that votes: its list of waiters is then in the order of
their arrival, and one of them is woken at a time. If that node goes out, they move on to the next. A
wake-up is a hint; the heartbeat finds a lock that is free without one.
"""

from __future__ import annotations

from ...._runtime.aio import Signal
from ....clock import Clock
from ....errors import BackendUnavailable
from ....model import Granted
from ..._async.contract import Ticket
from ...redis.wire.aio import Wire
from ...redis.wire.protocol import bulk
from ..commands import Commands, Words
from ..members import Settings
from ..membership import Board

NO_CHANNEL = bulk(b"")
TRY_ANYWAY = 3
"""After so many heartbeats a round is tried, though the node that wakes us says that the lock is held:
what it has may be the rest of a round that failed."""
ALONE = 0.1
"""Seconds until it is tried again where no node can wake us."""


class Waiter:
    """One attempt, and its rounds."""

    __slots__ = (
        "_beats",
        "_rounds",
        "again",
        "bell",
        "granted",
        "left",
        "strays",
        "ticket",
        "trying",
        "words",
    )

    def __init__(self, ticket: Ticket, words: Words) -> None:
        self.ticket = ticket
        self.words = words
        self.bell: int | None = None
        """The node that wakes it."""
        self.strays: dict[int, bool] = {}
        """Nodes that may know of it, and are to forget it; and whether they said that they do."""
        self.trying = False
        self.again = False
        """It was told something while it was trying."""
        self.granted = False
        """It has the lock. A heartbeat that set out before must not take it for itself again."""
        self.left = False
        """It was given up, perhaps while a round was under way."""
        self._rounds = 0
        self._beats = 0

    def next_round(self) -> str:
        """An owner id that was never used before."""
        number = self._rounds
        self._rounds += 1
        return f"{self.ticket.owner}~{number}" if number else self.ticket.owner

    def is_time(self) -> bool:
        self._beats += 1
        return self._beats % TRY_ANYWAY == 0


class Bells:
    def __init__(self, settings: Settings, board: Board, commands: Commands, clock: Clock) -> None:
        self._board = board
        self._clock = clock
        self._timeout = settings.node_timeout
        self._wires = [
            Wire(address, clock, commands.naming.channels) for address in settings.addresses
        ]

    async def attend(self, waiter: Waiter, deadline: float) -> float:
        """Be known to a node; answers for how many seconds the lock is held there, 0 if it is free."""
        owner = waiter.ticket.owner
        end = bulk(owner.encode())
        bell = waiter.bell
        if bell is not None:
            if self._board.seats[bell].vote:
                try:
                    command = waiter.words.wait + NO_CHANNEL + end
                    reply = await self._wires[bell].call(command, self._limit(deadline))
                    if type(reply) is int and reply >= 0:
                        return reply / 1000
                except BackendUnavailable:
                    pass
            self.forget(waiter)
        for seat in self._board.seats:
            if not seat.vote or waiter.left:
                continue
            wire = self._wires[seat.index]
            try:
                reply = await wire.enqueue(
                    waiter.ticket, waiter.words.wait, end, self._limit(deadline)
                )
            except BaseException as error:
                wire.forget(owner)
                waiter.strays[seat.index] = False
                if isinstance(error, BackendUnavailable):
                    continue
                raise
            if type(reply) is int and reply >= 0:
                waiter.bell = seat.index  # not before: it is listened to from now on
                waiter.strays.pop(seat.index, None)
                return reply / 1000
            wire.forget(owner)
        return ALONE if not waiter.is_time() else 0.0

    def _limit(self, deadline: float) -> float:
        """Each node has its own: one that hangs does not use up the time of the others."""
        return min(deadline, self._clock.now() + self._timeout)

    async def listen(self, waiter: Waiter, until: float | None) -> Granted | None:
        bell = waiter.bell
        if bell is None:
            # Not for long: a heartbeat may find a node meanwhile, and then that is to be listened to.
            moment = self._clock.now() + ALONE
            await Signal(self._clock).wait(moment if until is None else min(until, moment))
            return None
        return await self._wires[bell].listen(waiter.ticket, until)

    def forget(self, waiter: Waiter) -> None:
        """It waits there no more; the node still has to be told."""
        bell, waiter.bell = waiter.bell, None
        if bell is not None:
            self._wires[bell].forget(waiter.ticket.owner)
            waiter.strays.setdefault(bell, True)

    async def close(self) -> None:
        for wire in self._wires:
            await wire.close()
