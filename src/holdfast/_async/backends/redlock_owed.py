"""What a node could not be told while it was out: that a lock was given back, or is waited for no more.

It is told as soon as it votes again, so that nobody waits there for the end of a hold that is over.
"""

from __future__ import annotations

from threading import Lock

from ...clock import Clock
from ...redlock.aio import Fan
from ...redlock.members import Settings
from ...redlock.standing import Board, Seat

MOST = 1000
"""Commands for one node. After that, what it has ends with its TTL."""


class Owed:
    def __init__(self, settings: Settings, board: Board, fan: Fan, clock: Clock) -> None:
        self._patience = settings.patience
        self._board = board
        self._fan = fan
        self._clock = clock
        self._mutex = Lock()
        self._owed: list[dict[bytes, float]] = [{} for _ in board.seats]
        """Until when each still matters."""

    def owe(self, index: int, command: bytes, ttl: float) -> None:
        """Tell a node this as soon as it is back. After `ttl` it does not matter any more."""
        with self._mutex:
            owed = self._owed[index]
            if len(owed) < MOST:
                owed[command] = self._clock.now() + ttl
        seat = self._board.seats[index]
        if seat.vote:  # it came back a moment ago, and was told the rest then
            self.pay(seat)

    def pay(self, seat: Seat) -> None:
        """Tell a node that votes what it is owed."""
        with self._mutex:
            owed, self._owed[seat.index] = self._owed[seat.index], {}
        now = self._clock.now()
        for command, until in owed.items():
            if until > now:
                commands: list[bytes | None] = [None] * len(self._board.seats)
                commands[seat.index] = command
                if self._fan.post(commands, self._clock.now() + self._patience):
                    with self._mutex:
                        self._owed[seat.index][command] = until
                    self._board.failed(seat.index, "it cannot be told what was given up meanwhile")
