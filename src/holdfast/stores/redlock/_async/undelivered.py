"""What a node could not be told while it was out: that a lock was given back, or is waited for no more.

It is told as soon as it votes again, so that nobody waits there for the end of a hold that is over.
"""

from __future__ import annotations

from threading import Lock
from typing import Any

from ....clock import Clock
from ....errors import LockError
from ..members import Settings
from ..membership import Board, Seat
from ..wire.aio import Fan

MOST = 1000
"""Commands for one node. After that, what it has ends with its TTL."""
AT_ONCE = 100


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
        self._owe(index, command, self._clock.now() + ttl)
        seat = self._board.seats[index]
        if seat.vote:  # it came back a moment ago, and was told the rest then
            self.pay(seat)

    async def settle(self, seat: Seat) -> None:
        """Tell a node that votes again what it is owed. What it has answered is owed no more."""
        now = self._clock.now()
        with self._mutex:
            left = {one: until for one, until in self._owed[seat.index].items() if until > now}
            self._owed[seat.index] = left
            owed = list(left)
        for start in range(0, len(owed), AT_ONCE):
            some = owed[start : start + AT_ONCE]
            try:
                replies = await self._fan.batch(
                    seat.index, some, self._clock.now() + self._patience
                )
            except LockError as error:
                self._board.failed(seat.index, f"it cannot be told what was given up: {error}")
                return
            for command, reply in zip(some, replies, strict=True):
                if type(reply) is int:
                    with self._mutex:
                        self._owed[seat.index].pop(command, None)
                else:
                    self._board.failed(seat.index, f"it cannot be told what was given up: {reply}")

    def pay(self, seat: Seat) -> None:
        """Tell it without waiting; what it does not answer is owed again."""
        for command, until in self._taken(seat).items():
            if not self._told(seat.index, command, until):
                self._owe(seat.index, command, until)
                self._board.failed(seat.index, "it cannot be told what was given up meanwhile")

    def _taken(self, seat: Seat) -> dict[bytes, float]:
        """What still matters; it is not owed any more."""
        with self._mutex:
            owed, self._owed[seat.index] = self._owed[seat.index], {}
        now = self._clock.now()
        return {command: until for command, until in owed.items() if until > now}

    def _owe(self, index: int, command: bytes, until: float) -> None:
        with self._mutex:
            owed = self._owed[index]
            if len(owed) < MOST:
                owed[command] = until

    def _told(self, index: int, command: bytes, until: float) -> bool:
        """Whether it could be sent. If it is not answered it is owed again: it may not have arrived."""

        def heard(index: int, reply: Any) -> bool:
            if type(reply) is not int:
                self.owe(index, command, until - self._clock.now())
            return False

        commands: list[bytes | None] = [None] * len(self._board.seats)
        commands[index] = command
        return not self._fan.post(commands, self._clock.now() + self._patience, heard)
