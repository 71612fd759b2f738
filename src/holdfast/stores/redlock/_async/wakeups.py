"""The waiters, and the node that wakes each of them.

All clients prefer the same node, the first that votes: its list of waiters is then in the order of
their arrival, and it wakes one of them at a time. If that node goes out, they move on to the next.
Requests go to the nodes in the opposite order: a release has reached the others when a waiter is woken.
A wake-up is a hint; the heartbeat finds a lock that is free without one.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from ...._runtime.aio import Signal
from ....errors import BackendUnavailable, ConfigError
from ....model import Granted
from ..._async.contract import Ticket
from ...redis.wire.aio import Wire
from ...redis.wire.protocol import Late, bulk
from ..address import Settings
from ..commands import CommandPrefixes, Commands
from ..membership import NodeTable
from ..shared_commands import CROWD, SLOT, WRITER, SharedCommands
from .undelivered import Undelivered

NO_CHANNEL = bulk(b"")
TRY_ANYWAY = 3
"""Heartbeats after which a waiter tries a round, though the node that wakes it says that the lock is
held: that may be the rest of a round that failed."""
UNWOKEN_PAUSE = 0.1
"""Seconds between two tries where no node can wake the waiter."""


class Waiter:
    """One attempt, and its rounds."""

    __slots__ = (
        "_heartbeats",
        "_rounds",
        "_shared",
        "given_up",
        "granted",
        "packed_owner",
        "prefixes",
        "retry_wanted",
        "round_prefixes",
        "ticket",
        "trying",
        "waking_node",
    )

    def __init__(
        self, ticket: Ticket, prefixes: CommandPrefixes, shared: SharedCommands | None = None
    ) -> None:
        self.ticket = ticket
        self.prefixes = prefixes
        self.round_prefixes = prefixes
        """The prefixes of the next round: of a semaphore, for one slot."""
        self._shared = shared
        self.packed_owner = bulk(ticket.owner.encode())
        self.waking_node: int | None = None
        """The index of the node that wakes the waiter."""
        self.trying = False
        """True while a heartbeat of the waiter is under way."""
        self.retry_wanted = False
        """True if another heartbeat came while the waiter was trying."""
        self.granted = False
        """True once the waiter has the lock. An earlier heartbeat must not take it again."""
        self.given_up = False
        """True once the attempt was given up, perhaps while a round was under way."""
        self._rounds = 0
        self._heartbeats = 0

    def next_round_id(self) -> str:
        """Returns an owner id that was never used before."""
        number = self._rounds
        self._rounds += 1
        return f"{self.ticket.owner}~{number}" if number else self.ticket.owner

    @property
    def has_slots(self) -> bool:
        """Whether it wants a slot of a semaphore, whichever it is."""
        return self._shared is not None and self._shared.letter == SLOT

    @property
    def is_writer(self) -> bool:
        """Whether it wants what others share for itself."""
        return self._shared is not None and self._shared.letter == WRITER

    def choose_slot(self, slots: Sequence[int]) -> None:
        """Lets the next round ask for one of `slots`; if there are none, for any of all."""
        if self._shared is not None and self.has_slots:
            crowd = min(self._shared.capacity, CROWD)
            slot = slots[_draw(len(slots))] if slots else _draw(crowd)
            self.round_prefixes = self._shared.prefixes(slot)

    def is_round_due(self) -> bool:
        """Counts a heartbeat, and returns whether to try a round whatever the node says."""
        self._heartbeats += 1
        # A writer says at each that it waits, and readers make way.
        return self._heartbeats % TRY_ANYWAY == 0 or self.is_writer


def _draw(count: int) -> int:
    """Returns a number below `count`, which is at most `CROWD`, by chance."""
    return int.from_bytes(os.urandom(4), "big") % count


class Wakeups:
    """The connections on which nodes wake waiters."""

    def __init__(
        self,
        settings: Settings,
        table: NodeTable,
        undelivered: Undelivered,
        commands: Commands,
    ) -> None:
        self._table = table
        self._undelivered = undelivered
        self._commands = commands
        self._clock = table.clock
        self._timeout = settings.node_timeout
        self._wires = [
            Wire(address, table.clock, commands.naming.channels) for address in settings.addresses
        ]

    async def register(self, waiter: Waiter, deadline: float) -> float:
        """Makes the waiter known to a node that can wake it.

        Returns for how many seconds the lock is held on that node, 0 if it is free.
        """
        if self._clock.now() >= deadline:
            return UNWOKEN_PAUSE  # nothing can be asked, and nothing speaks against its node
        stale: dict[int, bytes] = {}
        late: int | None = None
        index = waiter.waking_node
        if index is not None:
            if self._table.nodes[index].incarnation:
                try:
                    command = waiter.prefixes.wait + NO_CHANNEL + waiter.packed_owner
                    reply = await self._wires[index].call(command, self._limit(deadline))
                    if type(reply) is int and reply >= 0:
                        return reply / 1000
                except (BackendUnavailable, ConfigError) as error:
                    late = index if isinstance(error, Late) else None
            if self._stop_listening(waiter) is not None:
                stale[index] = waiter.prefixes.leave + waiter.packed_owner
        try:
            return await self._enqueue(waiter, stale, deadline, late)
        finally:
            # Not before: one of these nodes may have been the first to take the waiter again.
            for index, command in stale.items():
                self._undelivered.add(index, command, self._commands.patience)

    async def _enqueue(
        self, waiter: Waiter, stale: dict[int, bytes], deadline: float, late: int | None
    ) -> float:
        """Registers with the first node that will have the waiter, other than the one that was `late`.

        On return, `stale` has the nodes that may know the waiter and shall forget it, each with the
        command for that. A node that was sent nothing is not among them: it would refuse the waiter
        for some heartbeats, and if all did, nobody would wake it. Raises if no node has the waiter, and
        one does not let us listen.
        """
        prefixes, owner = waiter.prefixes, waiter.packed_owner
        refusal: ConfigError | None = None
        for node in self._table.nodes:
            if not node.incarnation or waiter.given_up or node.index == late:
                continue
            if self._clock.now() >= deadline:
                break
            wire = self._wires[node.index]
            try:
                reply = await wire.enqueue(
                    waiter.ticket, prefixes.wait, owner, self._limit(deadline)
                )
            except BaseException as error:
                wire.forget(waiter.ticket.owner)
                # The command travels on another connection than the request, which may arrive later.
                stale[node.index] = prefixes.leave_late + owner + self._commands.lateness
                if isinstance(error, ConfigError):
                    refusal = error
                elif not isinstance(error, BackendUnavailable):
                    raise
                continue
            if type(reply) is int and reply >= 0:
                waiter.waking_node = node.index  # not before: it is listened to from now on
                stale.pop(node.index, None)
                return reply / 1000
            wire.forget(waiter.ticket.owner)
        if refusal is not None:
            raise refusal
        return UNWOKEN_PAUSE if not waiter.is_round_due() else 0.0

    def _limit(self, deadline: float) -> float:
        """Returns the deadline for one node: one that hangs does not use up the time of the others."""
        now = self._clock.now()
        return now + min(self._timeout, (deadline - now) / 2)

    async def listen(self, waiter: Waiter, until: float | None) -> Granted | None:
        """Waits for a wake-up of the waiter."""
        index = waiter.waking_node
        if index is None:
            # Not for long: a heartbeat may register with a node meanwhile, to be listened to.
            moment = self._clock.now() + UNWOKEN_PAUSE
            await Signal(self._clock).wait(moment if until is None else min(until, moment))
            return None
        return await self._wires[index].listen(waiter.ticket, until)

    def forget(self, waiter: Waiter) -> None:
        """Ends the waiting, and tells the node: others may wait there, whose turn it is.

        A writer that has given up tells all nodes: readers need not make way any more.
        """
        index = self._stop_listening(waiter)
        command = waiter.prefixes.leave + waiter.packed_owner
        if waiter.is_writer and waiter.given_up:
            for node in self._table.nodes:
                self._undelivered.add(node.index, command, self._commands.patience)
        elif index is not None:
            self._undelivered.add(index, command, self._commands.patience)

    def _stop_listening(self, waiter: Waiter) -> int | None:
        index, waiter.waking_node = waiter.waking_node, None
        if index is not None:
            self._wires[index].forget(waiter.ticket.owner)
        return index

    async def close(self) -> None:
        """Closes all connections."""
        for wire in self._wires:
            await wire.close()
