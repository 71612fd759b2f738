"""A round: a request to all nodes at once, of which a majority decides and agrees upon the token.

Each round has an owner id of its own. A round that does not stand is given back on all nodes, whatever
they replied; on a node that did not reply, a tombstone refuses the request if it arrives after all.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from threading import Lock
from typing import Any

from ...._runtime.aio import Signal
from ....refusals import in_use_as
from ...redis.wire.protocol import bulk
from ..commands import (
    EMPTY,
    MARKED,
    QUIET,
    UNMARKED,
    BatchCommand,
    BatchItem,
    CommandPrefixes,
    packed_before,
)
from ..votes import Ballot, refused_error
from ..wire.aio import RedlockWire
from .recovery import Recovery
from .undelivered import Undelivered
from .wakeups import Waiter

ROUNDS, SLOT_ROUNDS = 4, 8
"""The number of rounds at once where votes were split, or a slot was taken and others are free."""
MANY = 1000
"""Held rounds after which the ones that ended unreleased are forgotten."""
SHORTEST_PAUSE = 0.002
"""Seconds before the second round, doubled each time, and never in step with other clients."""


class HeldRound:
    """A round that was granted: a hold on each of several nodes, which make up one of our leases."""

    __slots__ = (
        "begins",
        "connections",
        "incarnations",
        "name",
        "packed_id",
        "prefixes",
        "round_id",
        "token",
        "ttl",
        "until",
        "version",
    )

    def __init__(
        self,
        name: str,
        prefixes: CommandPrefixes,
        round_id: str,
        packed_id: bytes,
        ballot: Ballot,
        ttl: float,
        until: float,
        incarnations: Sequence[bytes],
        connections: Sequence[object],
    ) -> None:
        self.name = name
        self.prefixes = prefixes
        self.round_id = round_id
        self.packed_id = packed_id
        """The round's id, as an argument of a command."""
        self.incarnations = incarnations
        """By node: the incarnation that was asked; empty if the node was not."""
        self.connections = connections
        """By node: the connection on which the request went."""
        self.begins = ballot.begins
        """By node: the value at which the hold began. Replies too late to be counted are added: those
        holds keep others off, too."""
        self.token = ballot.token
        self.version = 0
        """The number of times that the text of its label was changed."""
        self.ttl = ttl
        self.until = until
        """The moment at which the holds end, unless they are renewed."""

    @property
    def slot(self) -> int | None:
        """The slot of a semaphore that it is."""
        return self.prefixes.slot


class Rounds:
    """The rounds of all attempts, and the held ones."""

    def __init__(
        self,
        wire: RedlockWire,
        recovery: Recovery,
        undelivered: Undelivered,
        take_batch: BatchCommand,
    ) -> None:
        self._take_batch = take_batch
        self._wire = wire
        self._table, self._clock = wire.table, wire.clock
        self._timeout = self._table.node_timeout
        self._quorum = self._table.quorum
        self._recovery = recovery
        self._undelivered = undelivered
        self.held_rounds: dict[str, HeldRound] = {}
        """By owner: the round that its lease consists of."""
        self._mutex = Lock()

    async def try_rounds(
        self, waiter: Waiter, deadline: float, freed: bool = False
    ) -> HeldRound | float:
        """Tries a round, and more where votes were split.

        `freed`: the node that wakes the waiter has said that the lock is free. Where others still hold
        it then, its release may be on its way to them, which wakes nobody again: more rounds are tried.
        Returns the round that was granted, or the seconds for which the lock may still be held. Raises
        if too few nodes could decide: then nobody knows whether it is held.
        """
        clock, pause = self._clock, SHORTEST_PAUSE
        ballot = Ballot(self._table)
        rounds = SLOT_ROUNDS if waiter.has_slots else ROUNDS
        for number in range(rounds):
            if self._table.voting_count() < self._quorum:
                await self._recovery.wait_for_majority(deadline)
            outcome = await self.run_round(waiter, deadline)
            if isinstance(outcome, HeldRound):
                return outcome
            ballot = outcome
            other = ballot.other_kind()
            if other is not None:
                ticket = waiter.ticket
                wanted = (ticket.kind, ticket.capacity)
                raise in_use_as(ticket.name, ticket.owner, other, wanted)
            if waiter.given_up or number == rounds - 1:
                break
            if waiter.has_slots:
                slots = ballot.likely_slots()
                waiter.choose_slot(slots)
                if slots and not ballot.counted:
                    continue  # nobody was in our way but the holder of that one slot
                if not slots and ballot.held_by_one():
                    break
            elif ballot.held_by_one() and (not freed or waiter.waking_node in ballot.refused):
                break
            moment = clock.now() + pause * (0.5 + os.urandom(1)[0] / 128)
            if moment >= deadline:
                break
            await Signal(clock).wait(moment)
            pause *= 2
        if ballot.errors and not ballot.is_answered() and not waiter.given_up:
            raise refused_error(self._table, ballot.errors, "too few nodes could decide")
        return ballot.remaining()

    async def run_round(
        self, waiter: Waiter, deadline: float, alone: bool = False
    ) -> HeldRound | Ballot:
        """Runs one round. Returns its ballot if it does not stand; then nothing of it is left.

        `alone`: its requests are of another kind than those of usual rounds, and go in no batch.
        """
        ticket, prefixes = waiter.ticket, waiter.round_prefixes
        round_id = waiter.next_round_id()
        packed_id = bulk(round_id.encode())
        clock, timeout = self._clock, self._timeout
        ballot = Ballot(self._table)
        take = prefixes.take
        incarnations = self._table.incarnations
        commands = [
            take + packed_id + incarnation if incarnation else None for incarnation in incarnations
        ]
        item = None
        if prefixes.mode is EMPTY and not alone:
            item = BatchItem(
                self._take_batch, prefixes.request_keys, prefixes.request + packed_id, incarnations
            )
        ballot.outstanding = len(commands) - commands.count(None)
        sent = clock.now()
        held_round: HeldRound | None = None
        connections: Sequence[object] = ()
        try:
            connections = await self._wire.fan_out(
                commands, ballot.count_take, min(deadline, sent + timeout), item=item
            )
            if ballot.close():
                if not ballot.in_step:
                    until = min(deadline, clock.now() + timeout)
                    await self._raise(
                        ballot,
                        ballot.below(),
                        incarnations,
                        connections,
                        prefixes,
                        packed_id,
                        until,
                    )
                if ballot.stands() and not waiter.given_up:
                    ttl = ticket.ttl
                    held_round = HeldRound(
                        ticket.name,
                        prefixes,
                        round_id,
                        packed_id,
                        ballot,
                        ttl,
                        sent + ttl,
                        incarnations,
                        connections,
                    )
        finally:
            if held_round is not None:
                self._remember(ticket.owner, held_round)
                if waiter.given_up:
                    # Another thread has given the attempt up meanwhile. One of us finds the round.
                    found = self.held_rounds.pop(ticket.owner, None)
                    held_round = None
                    if found is not None:
                        self.give_back(
                            prefixes, round_id, range(len(incarnations)), ballot.begins, connections
                        )
            else:
                asked = [index for index, command in enumerate(commands) if command is not None]
                replied = {*ballot.begins, *ballot.refused}
                self.give_back(prefixes, round_id, asked, replied, connections)
        return ballot if held_round is None else held_round

    async def _raise(
        self,
        ballot: Ballot,
        below: Sequence[int],
        incarnations: Sequence[bytes],
        connections: Sequence[object],
        prefixes: CommandPrefixes,
        packed_id: bytes,
        deadline: float,
    ) -> None:
        """Runs phase 2 on the nodes `below` the token, in the incarnations and runs of phase 1.

        A node that has restarted since must not confirm a hold that a snapshot brought back: not when
        it votes again, and not before, while its marker still names the old incarnation.
        """
        token = bulk(b"%d" % ballot.token)
        commands: list[bytes | None] = [None] * len(incarnations)
        ballot.outstanding = 0
        for index in below:
            if self._wire.same_run(connections, index):
                begun = packed_before(ballot.begins[index])
                commands[index] = prefixes.raise_ + token + begun + incarnations[index] + packed_id
                ballot.outstanding += 1
        if ballot.outstanding:
            await self._wire.fan_out(commands, ballot.count_raise, deadline)

    def give_back(
        self,
        prefixes: CommandPrefixes,
        round_id: str,
        indexes: Sequence[int],
        replied: Collection[int],
        connections: Sequence[object],
    ) -> None:
        """Gives a round back on the nodes `indexes`, with a tombstone where its request may be late."""
        packed_id = bulk(round_id.encode())
        plain, marked = [prefixes.free + packed_id + mark + QUIET for mark in (UNMARKED, MARKED)]
        behind: list[bytes | None] = [None] * len(self._table.nodes)
        otherwise = behind[:]
        for index in indexes:
            behind[index] = plain
            otherwise[index] = plain if index in replied else marked

        def on_reply(index: int, reply: Any) -> bool:
            if type(reply) is not int:
                # It may never have arrived.
                self._undelivered.add(index, marked, prefixes.ttl, reply)
            return False

        deadline = self._clock.now() + self._timeout
        for index in self._wire.post(
            behind if connections else otherwise, deadline, on_reply, connections, otherwise
        ):
            on_reply(index, None)
        self._undelivered.send_again()

    def _remember(self, owner: str, held_round: HeldRound) -> None:
        """Keeps a granted round, and now and then forgets the ones that have ended."""
        self.held_rounds[owner] = held_round
        if len(self.held_rounds) % MANY == 0:
            # Their leases were lost and never released.
            now = self._clock.now()
            with self._mutex:
                for old, one in list(self.held_rounds.items()):
                    if one.until < now:
                        self.held_rounds.pop(old, None)
