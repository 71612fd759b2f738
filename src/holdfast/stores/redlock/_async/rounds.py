"""A round: all nodes are asked at once, the majority decides, and the token is agreed upon.

Each has an owner id of its own. One that does not stand is given back on all nodes, whatever they
answered; where they did not, a tombstone refuses the request if it arrives after all.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from threading import Lock
from typing import Any

from ...._runtime.aio import Signal
from ....clock import Clock
from ...redis.wire.protocol import bulk
from ..commands import MARKED, QUIET, UNMARKED, Part, Together, Words, before
from ..members import Settings
from ..membership import Board
from ..votes import Ballot
from ..wire.aio import Fan
from .recovery import Nodes
from .undelivered import Owed
from .wakeups import Waiter

ROUNDS = 4
"""How often a split vote is tried again at once."""
MANY = 1000
"""Holds after which those that ended unreleased are looked for."""
SHORTEST_PAUSE = 0.002
"""Seconds before that, doubled each time, and never in step with others."""


class Hold:
    """What one of our leases consists of: a hold on each of several nodes."""

    __slots__ = ("begins", "end", "name", "round", "token", "ttl", "until", "votes", "ways")

    def __init__(
        self,
        name: str,
        round_id: str,
        end: bytes,
        ballot: Ballot,
        ttl: float,
        until: float,
        votes: Sequence[bytes],
        ways: Sequence[object],
    ) -> None:
        self.name = name
        self.round = round_id
        self.end = end
        """The round's id, as a part of a command."""
        self.votes = votes
        """Of the nodes that it was asked of; empty: it was not."""
        self.ways = ways
        """On which it was asked for."""
        self.begins = ballot.begins
        """Answers that came too late to be counted join here: they, too, hold others off."""
        self.token = ballot.token
        self.ttl = ttl
        self.until = until


class Rounds:
    def __init__(
        self,
        settings: Settings,
        board: Board,
        fan: Fan,
        nodes: Nodes,
        owed: Owed,
        takes: Together,
        clock: Clock,
    ) -> None:
        self._takes = takes
        self._timeout = settings.node_timeout
        self._quorum = settings.quorum
        self._board = board
        self._fan = fan
        self._nodes = nodes
        self._owed = owed
        self._clock = clock
        self.holds: dict[str, Hold] = {}
        """By owner: what our leases consist of."""
        self._mutex = Lock()

    async def tried(self, waiter: Waiter, deadline: float) -> Hold | float:
        """Try, and again where votes were split; without the lock, how long it may take."""
        clock, pause = self._clock, SHORTEST_PAUSE
        left = 0.0
        for number in range(ROUNDS):
            if self._board.voting() < self._quorum:
                await self._nodes.majority(deadline)
            answer = await self._round(waiter, deadline)
            if isinstance(answer, Hold):
                return answer
            left = answer.remaining()
            if waiter.left or answer.held_by_one() or number == ROUNDS - 1:
                break
            moment = clock.now() + pause * (0.5 + os.urandom(1)[0] / 128)
            if moment >= deadline:
                break
            await Signal(clock).wait(moment)
            pause *= 2
        return left

    async def _round(self, waiter: Waiter, deadline: float) -> Hold | Ballot:
        """One round. If it does not stand, nothing of it is left."""
        ticket, words = waiter.ticket, waiter.words
        round_id = waiter.next_round()
        end = bulk(round_id.encode())
        clock, timeout = self._clock, self._timeout
        ballot = Ballot(self._board)
        take = words.take
        votes = self._board.votes
        commands = [take + end + vote if vote else None for vote in votes]
        part = Part(self._takes, words.request_keys, words.request + end, votes)
        ballot.asked = len(commands) - commands.count(None)
        sent = clock.now()
        hold: Hold | None = None
        ways: Sequence[object] = ()
        try:
            ways = await self._fan.ask(
                commands, ballot.heard, min(deadline, sent + timeout), part=part
            )
            if ballot.close():
                if not ballot.in_step:
                    until = min(deadline, clock.now() + timeout)
                    await self._raise(ballot, ballot.below(), votes, ways, words, end, until)
                if ballot.stands() and not waiter.left:
                    ttl = ticket.ttl
                    hold = Hold(ticket.name, round_id, end, ballot, ttl, sent + ttl, votes, ways)
        finally:
            if hold is not None:
                self._keep(ticket.owner, hold)
                if waiter.left:
                    # Another thread has given it up in between. Either it found the hold, or we do.
                    found = self.holds.pop(ticket.owner, None)
                    hold = None
                    if found is not None:
                        self.give_back(words, round_id, range(len(votes)), ballot.begins, ways)
            else:
                asked = [index for index, command in enumerate(commands) if command is not None]
                answered = {*ballot.begins, *ballot.refused}
                self.give_back(words, round_id, asked, answered, ways)
        return ballot if hold is None else hold

    async def _raise(
        self,
        ballot: Ballot,
        below: Sequence[int],
        votes: Sequence[bytes],
        ways: Sequence[object],
        words: Words,
        end: bytes,
        deadline: float,
    ) -> None:
        """Phase 2, in the incarnations that were asked in phase 1, and the same runs of the servers.

        One that has restarted since must not confirm a hold of ours that a snapshot brought back: not
        when it votes again, and not before, while its marker still names the old incarnation.
        """
        token = bulk(b"%d" % ballot.token)
        commands: list[bytes | None] = [None] * len(votes)
        ballot.asked = 0
        for index in below:
            if self._fan.same_run(ways, index):
                begun = before(ballot.begins[index])
                commands[index] = words.raise_ + token + begun + votes[index] + end
                ballot.asked += 1
        if ballot.asked:
            await self._fan.ask(commands, ballot.raised, deadline)

    def give_back(
        self,
        words: Words,
        round_id: str,
        nodes: Sequence[int],
        answered: Collection[int],
        ways: Sequence[object],
    ) -> None:
        """To all of them, whatever they answered; with a tombstone where the request may come later."""
        end = bulk(round_id.encode())
        plain, marked = [words.free + end + mark + QUIET for mark in (UNMARKED, MARKED)]
        behind: list[bytes | None] = [None] * len(self._board.seats)
        otherwise = behind[:]
        for index in nodes:
            behind[index] = plain
            otherwise[index] = plain if index in answered else marked

        def heard(index: int, reply: Any) -> bool:
            if type(reply) is not int:
                self._owed.owe(index, marked, words.ttl)  # it may never have arrived
            return False

        deadline = self._clock.now() + self._timeout
        for index in self._fan.post(
            behind if ways else otherwise, deadline, heard, ways, otherwise
        ):
            heard(index, None)

    def _keep(self, owner: str, hold: Hold) -> None:
        self.holds[owner] = hold
        if len(self.holds) % MANY == 0:
            # Those that ran out were never released, and nobody will ask for them again.
            now = self._clock.now()
            with self._mutex:
                for old, one in list(self.holds.items()):
                    if one.until < now:
                        self.holds.pop(old, None)
