"""The inspection of locks on all nodes, and their release by force."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from ....errors import BackendUnavailable
from ....model import LockState
from ...redis._async.scan import lock_names
from ..commands import Commands
from ..lock_state import Reading, read_lock
from ..membership import failure_reason
from ..wire.aio import RedlockWire
from .recovery import Recovery

SHOWN_AT_ONCE = 100
"""Locks that are read in one command."""


class Inspection:
    """Reads the state of locks from a majority of the nodes."""

    def __init__(self, wire: RedlockWire, recovery: Recovery, commands: Commands) -> None:
        self._wire = wire
        self._table, self._clock = wire.table, wire.clock
        self._timeout = self._table.node_timeout
        self._quorum = self._table.quorum
        self._recovery = recovery
        self._commands = commands

    async def list(self, prefix: str, deadline: float) -> Sequence[LockState]:
        """Returns the states of all locks in use whose names start with `prefix`."""
        naming = self._commands.naming
        patience = deadline - self._clock.now()
        await self._recovery.wait_for_majority(deadline)
        names: set[str] = set()
        read = 0
        errors: dict[int, Exception] = {}
        known = [node for node in self._table.nodes if node.incarnation]
        for left, node in zip(range(len(known), 0, -1), known, strict=True):
            # One that is silent leaves time for those behind it.
            share = min(self._timeout, (deadline - self._clock.now()) / left)
            try:
                names |= await lock_names(naming, prefix, partial(self._call, node.index, share))
            except BackendUnavailable as error:
                errors[node.index] = error
                if self._table.is_enough_time(share):
                    self._table.report_failure(node.index, failure_reason(error))
                continue
            deadline = self._clock.now() + patience  # it answered
            read += 1
            if read == self._quorum:
                break  # a lock that is held is on one of them
        if read < self._quorum:
            raise self._recovery.unavailable_error(
                "the locks were read from too few nodes", None, errors
            )
        found = sorted(name for name in names if name.startswith(prefix))
        states: list[LockState] = []
        for start in range(0, len(found), SHOWN_AT_ONCE):
            deadline = self._clock.now() + patience  # they answer
            states += await self.inspect(found[start : start + SHOWN_AT_ONCE], deadline)
        return [state for state in states if state.holders or state.waiters]

    async def _call(self, index: int, seconds: float, command: bytes) -> Any:
        return await self._wire.call(index, command, self._clock.now() + seconds)

    async def inspect(self, names: Sequence[str], deadline: float) -> Sequence[LockState]:
        """Returns the states of the locks `names`."""
        return [reading.state for reading in await self.read(names, deadline)]

    async def read(self, names: Sequence[str], deadline: float) -> Sequence[Reading]:
        """Returns the locks `names`."""
        await self._recovery.wait_for_majority(deadline)
        nodes = self._table.nodes
        replies: list[Any] = []
        errors: dict[int, Exception] = {}

        def on_reply(index: int, reply: Any) -> bool:
            if type(reply) is list:
                replies.append(reply)
            else:
                errors[index] = reply
            return False

        command = self._commands.inspect(names)
        commands = [command if node.incarnation else None for node in nodes]
        limit = min(deadline, self._clock.now() + self._timeout)
        await self._wire.fan_out(commands, on_reply, limit)
        if len(replies) < self._quorum:
            raise self._recovery.unavailable_error("too few nodes answered", names[0], errors)
        out = self._table.describe_out()
        return [
            read_lock(name, [reply[i] for reply in replies], self._quorum, len(nodes), out)
            for i, name in enumerate(names)
        ]

    async def force_release(self, name: str, actor: str, deadline: float, above: int = 0) -> bool:
        """Ends whatever hold the nodes have, and raises all their counters above its token, and to
        `above` before that: who waits may be granted the lock as soon as it is free."""
        await self._recovery.wait_for_majority(deadline)
        highest, held = above, 0
        for record in (*[""] * bool(above), f"{actor} released {name}", ""):
            replies: dict[int, Any] = {}

            def on_reply(index: int, reply: Any, replies: dict[int, Any] = replies) -> bool:
                replies[index] = reply
                return False

            incarnations = [node.incarnation for node in self._table.nodes]
            commands = [
                self._commands.force(name, incarnation, highest, record) if incarnation else None
                for incarnation in incarnations
            ]
            limit = min(deadline, self._clock.now() + self._timeout)
            await self._wire.fan_out(commands, on_reply, limit)
            done = [reply for reply in replies.values() if type(reply) is list]
            if len(done) < self._quorum:
                errors = {index: one for index, one in replies.items() if type(one) is not list}
                raise self._recovery.unavailable_error(
                    f"{name!r} was released by force on too few nodes", name, errors
                )
            held = held or sum(reply[0] for reply in done)
            highest = max(reply[1] for reply in done)
        return held >= self._quorum
