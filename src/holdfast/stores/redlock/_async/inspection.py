"""What all nodes together say of locks; and a lock released by force on all of them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from ....clock import Clock
from ....errors import BackendUnavailable
from ....model import LockState
from ...redis._async.scan import lock_names
from ..answers import lock_state
from ..commands import Commands
from ..members import Settings
from ..membership import Board
from ..wire.aio import Fan
from .recovery import Nodes

SHOWN_AT_ONCE = 100


class Looking:
    def __init__(
        self,
        settings: Settings,
        board: Board,
        fan: Fan,
        nodes: Nodes,
        commands: Commands,
        clock: Clock,
    ) -> None:
        self._timeout = settings.node_timeout
        self._quorum = settings.quorum
        self._board = board
        self._fan = fan
        self._nodes = nodes
        self._commands = commands
        self._clock = clock

    async def list(self, prefix: str, deadline: float) -> Sequence[LockState]:
        naming = self._commands.naming
        await self._nodes.majority(deadline)
        names: set[str] = set()
        for seat in self._board.seats:
            if not seat.vote:
                continue
            try:
                call = partial(self._call, seat.index, deadline)
                names |= await lock_names(naming, prefix, call)
            except BackendUnavailable as error:
                self._board.failed(seat.index, str(error))
        found = sorted(name for name in names if name.startswith(prefix))
        states: list[LockState] = []
        for start in range(0, len(found), SHOWN_AT_ONCE):
            states += await self.look(found[start : start + SHOWN_AT_ONCE], deadline)
        return [state for state in states if state.holders or state.waiters]

    async def _call(self, index: int, deadline: float, command: bytes) -> Any:
        return await self._nodes.call(index, command, deadline)

    async def look(self, names: Sequence[str], deadline: float) -> Sequence[LockState]:
        await self._nodes.majority(deadline)
        seats = self._board.seats
        answers: list[Any] = []

        def heard(index: int, reply: Any) -> bool:
            if type(reply) is list:
                answers.append(reply)
            return False

        command = self._commands.look(names)
        commands = [command if seat.vote else None for seat in seats]
        limit = min(deadline, self._clock.now() + self._timeout)
        await self._fan.ask(commands, heard, limit)
        if len(answers) < self._quorum:
            raise self._nodes.unavailable("too few nodes answered", names[0])
        out = self._board.out()
        return [
            lock_state(name, [answer[i] for answer in answers], self._quorum, len(seats), out)
            for i, name in enumerate(names)
        ]

    async def force_release(self, name: str, actor: str, deadline: float) -> bool:
        await self._nodes.majority(deadline)
        highest = held = 0
        for record in (f"{actor} released {name}", ""):
            heard_of: list[Any] = []

            def heard(index: int, reply: Any, heard_of: list[Any] = heard_of) -> bool:
                if type(reply) is list:
                    heard_of.append(reply)
                return False

            votes = [seat.vote for seat in self._board.seats]
            commands = [
                self._commands.force(name, vote, highest, record) if vote else None
                for vote in votes
            ]
            limit = min(deadline, self._clock.now() + self._timeout)
            await self._fan.ask(commands, heard, limit)
            if len(heard_of) < self._quorum:
                raise self._nodes.unavailable(
                    f"{name!r} was released by force on too few nodes", name
                )
            held = held or sum(reply[0] for reply in heard_of)
            highest = max(reply[1] for reply in heard_of)
        return held >= self._quorum
