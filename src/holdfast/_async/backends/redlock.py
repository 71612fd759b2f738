"""`redlock://`: a lock is held by a majority of independent Redis nodes, with a fencing token.

Every round of an attempt has an owner id of its own, `owner`, `owner~1`, …: once its clean-up has been
sent it is never used again. The token is agreed upon in two phases (`redlock.votes`). A node that does
not answer in time is left out, and looked after in the background (`redlock_nodes`), so that it costs
nothing the next time. The algorithm and the argument for it are in docs/redlock.md.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from threading import Lock
from typing import Any

from ... import guarantees
from ..._runtime.aio import Signal, finish
from ...clock import system_clock
from ...entries import Claim
from ...errors import BackendUnavailable, ConfigError, GuaranteeError
from ...model import GONE, UNKNOWN, Busy, Granted, LockState, Outcome, Queued, Renewed, Waiting
from ...redis.protocol import bulk, pack, require_hiredis
from ...redlock.aio import Fan
from ...redlock.answers import lock_state
from ...redlock.commands import MARKED, QUIET, UNMARKED, WAKING, Commands, Words
from ...redlock.members import Settings, settings_of
from ...redlock.standing import Board
from ...redlock.votes import Ballot, Tally
from ...urls import Target
from ..contract import OPEN_LIMIT, Backend, Ticket
from .redlock_bells import Bells, Waiter
from .redlock_nodes import Nodes

ROUNDS = 4
"""How often a split vote is tried again at once."""
SHORTEST_PAUSE = 0.002
"""Seconds before that, doubled each time, and never in step with others."""
TROUBLE = 2.0
"""Seconds for which a majority may be missing before that is said."""
LOOK = 0.01
SCAN_COUNT = b"1000"
SHOWN_AT_ONCE = 100
MANY = 1000
"""Holds after which those that ended unreleased are looked for."""


def prepare(
    target: Target, namespace: str, options: dict[str, Any]
) -> tuple[guarantees.Guarantees, Callable[[], Backend]]:
    """Check everything that can be checked without opening; answers how to open."""
    settings = settings_of(target, options)
    require_hiredis()
    return guarantees.REDLOCK, lambda: RedlockBackend(settings, namespace)


class Hold:
    """What one of our leases consists of: a hold on each of several nodes."""

    __slots__ = ("begins", "name", "round", "token", "ttl", "until")

    def __init__(self, name: str, round_id: str, ballot: Ballot, ttl: float, until: float) -> None:
        self.name = name
        self.round = round_id
        self.begins = ballot.begins
        """Answers that came too late to be counted join here: they, too, hold others off."""
        self.token = ballot.token
        self.ttl = ttl
        self.until = until


class RedlockBackend:
    guarantees = guarantees.REDLOCK

    def __init__(self, settings: Settings, namespace: str) -> None:
        self.clock = system_clock()
        self.heartbeat = settings.heartbeat
        self.claim_window = settings.heartbeat
        self._settings = settings
        self._quorum = settings.quorum
        self._commands = Commands(namespace, settings.heartbeat)
        self._board = Board(settings, self.clock)
        self._fan = Fan(settings.addresses, self._board, self.clock, self._commands.questions)
        self._nodes = Nodes(settings, self._board, self._fan, self._commands, self.clock)
        self._bells = Bells(settings, self._board, self._commands, self.clock)
        self._holds: dict[str, Hold] = {}
        self._waiters: dict[str, Waiter] = {}
        self._mutex = Lock()

    async def open(self, by: float) -> None:
        try:
            await self._nodes.open(by)
        except BaseException:
            await finish(self.close, grace=OPEN_LIMIT)
            raise

    async def acquire(self, ticket: Ticket, by: float) -> Granted | Queued | Busy:
        self._check(ticket)
        hold = self._holds.get(ticket.owner)
        if hold is not None and hold.name == ticket.name:
            (outcome,) = await self.renew([Claim(ticket.name, ticket.owner, ticket.ttl)], by)
            if isinstance(outcome, Renewed):
                return Granted(outcome.token, ticket.ttl)
            raise BackendUnavailable(
                f"the request for {ticket.name!r} was granted before, and ended since",
                name=ticket.name,
                owner=ticket.owner,
            )
        waiter = self._waiters.get(ticket.owner)
        if waiter is None:
            waiter = Waiter(ticket, self._commands.of(ticket))
            answer = await self._rounds(waiter, by)
            if isinstance(answer, Granted):
                return answer
            if not ticket.queue:
                return Busy(answer)
            self._waiters[ticket.owner] = waiter
        outcome = await self._beat(waiter, by)
        if isinstance(outcome, Renewed):
            return Granted(outcome.token, outcome.ttl)
        if isinstance(outcome, Waiting):
            return Queued(outcome.remaining)
        raise BackendUnavailable(
            f"the request for {ticket.name!r} was given up", name=ticket.name, owner=ticket.owner
        )

    async def renew(self, claims: Sequence[Claim], by: float) -> Sequence[Outcome]:
        outcomes: list[Outcome] = [GONE] * len(claims)
        held: list[int] = []
        waiting: list[tuple[int, Waiter]] = []
        for i, claim in enumerate(claims):
            self._check_ttl(claim.name, claim.ttl)
            hold = self._holds.get(claim.owner)
            if hold is not None and hold.name == claim.name:
                held.append(i)
                continue
            waiter = self._waiters.get(claim.owner)
            if waiter is not None and waiter.ticket.name == claim.name:
                waiting.append((i, waiter))
        self._fan.check()
        if held:
            await self._keep(claims, held, outcomes, by)
        for i, waiter in waiting:
            outcomes[i] = await self._beat(waiter, by)
        return outcomes

    async def _keep(
        self, claims: Sequence[Claim], held: list[int], outcomes: list[Outcome], by: float
    ) -> None:
        seats = self._board.seats
        holds = [self._holds.get(claims[i].owner) for i in held]
        tally = Tally(len(held), self._quorum, len(seats))
        asked: list[list[int]] = []
        commands: list[bytes | None] = []
        for seat in seats:
            vote = seat.vote
            which: list[int] = []
            kept: list[tuple[str, str, int, float]] = []
            for k, hold in enumerate(holds):
                begin = None if hold is None else hold.begins.get(seat.index)
                if hold is None or begin is None:
                    if vote:
                        tally.add(k, False)
                else:
                    which.append(k)
                    kept.append((hold.name, hold.round, begin, claims[held[k]].ttl))
            asked.append(which)
            commands.append(self._commands.keep(vote, kept) if vote and kept else None)

        def heard(index: int, reply: Any) -> bool:
            if type(reply) is list:
                for k, renewed in zip(asked[index], reply, strict=True):
                    tally.add(k, renewed == 1)
            return tally.done()

        sent = self.clock.now()
        await self._fan.ask(commands, heard, min(by, sent + self._settings.node_timeout))
        for k, i in enumerate(held):
            hold, claim = holds[k], claims[i]
            if hold is None:
                continue
            if tally.yes[k] >= self._quorum:
                hold.until = max(hold.until, sent + claim.ttl)
                outcomes[i] = Renewed(hold.token, claim.ttl)
            elif tally.decided(k):
                # A minority may have been renewed: nobody else should have to wait for it.
                self._holds.pop(claim.owner, None)
                words = self._commands.plain(claim.name)
                self._give_back(words, hold.round, range(len(seats)), hold.begins)
            else:
                outcomes[i] = UNKNOWN

    async def release(self, name: str, owner: str, by: float) -> bool:
        self._fan.check()
        words = self._commands.plain(name)
        waiter = self._waiters.pop(owner, None)
        if waiter is not None:
            waiter.left = True
            await self._leave(waiter, by)
        hold = self._holds.pop(owner, None)
        if hold is not None and hold.name != name:
            self._holds[owner] = hold
            hold = None
        if hold is None:
            if waiter is None:
                self._give_back(words, owner, range(len(self._board.seats)), {})
            return False
        seats = self._board.seats
        tally = Tally(1, self._quorum, len(seats))
        end = bulk(hold.round.encode())
        commands: list[bytes | None] = []
        for seat in seats:
            known = seat.index in hold.begins
            command = words.free + (UNMARKED if known else MARKED) + WAKING + end
            votes = bool(seat.vote)
            commands.append(command if votes else None)
            if not votes:
                self._nodes.owe(seat.index, words.free + MARKED + WAKING + end, hold.ttl)

        def heard(index: int, reply: Any) -> bool:
            if type(reply) is int:
                tally.add(0, reply == 1)
            else:
                self._nodes.owe(index, words.free + MARKED + WAKING + end, hold.ttl)
            return tally.done()

        limit = min(by, self.clock.now() + self._settings.node_timeout)
        await self._fan.ask(commands, heard, limit)
        if tally.yes[0] >= self._quorum:
            return True
        if tally.decided(0):
            return False
        self._holds[owner] = hold
        raise self._unavailable(f"{name!r} was given back to too few nodes to be sure", name)

    async def wait(self, ticket: Ticket, until: float | None) -> Granted | None:
        waiter = self._waiters.get(ticket.owner)
        if waiter is None:
            return await ticket.wait(self.clock, until)
        return await self._bells.listen(waiter, until)

    async def inspect(self, name: str, by: float) -> LockState:
        return (await self._look([name], by))[0]

    async def list(self, prefix: str, by: float) -> Sequence[LockState]:
        naming = self._commands.naming
        await self._majority(by)
        names: set[str] = set()
        for seat in self._board.seats:
            if not seat.vote:
                continue
            try:
                for pattern in naming.patterns(prefix):
                    cursor = b"0"
                    while True:
                        command = pack(b"SCAN", cursor, b"MATCH", pattern, b"COUNT", SCAN_COUNT)
                        cursor, keys = await self._nodes.call(seat.index, command, by)
                        names.update(filter(None, map(naming.name_of, keys)))
                        if cursor == b"0":
                            break
            except BackendUnavailable as error:
                self._board.failed(seat.index, str(error))
        found = sorted(name for name in names if name.startswith(prefix))
        states: list[LockState] = []
        for start in range(0, len(found), SHOWN_AT_ONCE):
            states += await self._look(found[start : start + SHOWN_AT_ONCE], by)
        return [state for state in states if state.holders or state.waiters]

    async def _look(self, names: Sequence[str], by: float) -> Sequence[LockState]:
        await self._majority(by)
        seats = self._board.seats
        answers: list[Any] = []

        def heard(index: int, reply: Any) -> bool:
            if type(reply) is list:
                answers.append(reply)
            return False

        command = self._commands.look(names)
        commands = [command if seat.vote else None for seat in seats]
        limit = min(by, self.clock.now() + self._settings.node_timeout)
        await self._fan.ask(commands, heard, limit)
        if len(answers) < self._quorum:
            raise self._unavailable("too few nodes answered", names[0])
        out = self._board.out()
        return [
            lock_state(name, [answer[i] for answer in answers], self._quorum, len(seats), out)
            for i, name in enumerate(names)
        ]

    async def force_release(self, name: str, actor: str, by: float) -> bool:
        await self._majority(by)
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
            limit = min(by, self.clock.now() + self._settings.node_timeout)
            await self._fan.ask(commands, heard, limit)
            if len(heard_of) < self._quorum:
                raise self._unavailable(f"{name!r} was released by force on too few nodes", name)
            held = held or sum(reply[0] for reply in heard_of)
            highest = max(reply[1] for reply in heard_of)
        return held >= self._quorum

    async def tether(self, name: str, owner: str, by: float) -> int | None:
        return None

    async def close(self) -> None:
        await self._nodes.close()
        await self._bells.close()
        await self._fan.close()

    # A round.

    async def _rounds(self, waiter: Waiter, by: float) -> Granted | float:
        """Try, and again where votes were split; without the lock, how long it may take."""
        clock, pause = self.clock, SHORTEST_PAUSE
        left = 0.0
        for number in range(ROUNDS):
            ballot = await self._round(waiter, by)
            if ballot.token:
                return Granted(ballot.token, waiter.ticket.ttl)
            left = ballot.remaining()
            if waiter.left or ballot.held_by_one() or number == ROUNDS - 1:
                break
            moment = clock.now() + pause * (0.5 + os.urandom(1)[0] / 128)
            if moment >= by:
                break
            await Signal(clock).wait(moment)
            pause *= 2
        return left

    async def _round(self, waiter: Waiter, by: float) -> Ballot:
        """One round, with an owner id of its own. If it does not stand, nothing of it is left."""
        await self._majority(by)
        ticket, words = waiter.ticket, waiter.words
        round_id = waiter.next_round()
        end = bulk(round_id.encode())
        clock, timeout = self.clock, self._settings.node_timeout
        ballot = Ballot(self._board)
        take = words.take
        votes = [seat.vote for seat in self._board.seats]
        commands = [take + vote + end if vote else None for vote in votes]
        ballot.asked = len(commands) - commands.count(None)
        sent = clock.now()
        stands = False
        try:
            await self._fan.ask(commands, ballot.heard, min(by, sent + timeout))
            if ballot.close():
                below = ballot.below()
                if below:
                    until = min(by, clock.now() + timeout)
                    await self._raise(ballot, below, votes, words, end, until)
                stands = ballot.stands() and not waiter.left
        finally:
            if stands:
                self._keep_hold(
                    ticket.owner, Hold(ticket.name, round_id, ballot, ticket.ttl, sent + ticket.ttl)
                )
            else:
                ballot.token = 0
                asked = [index for index, command in enumerate(commands) if command is not None]
                self._give_back(words, round_id, asked, ballot.begins)
        return ballot

    async def _raise(
        self,
        ballot: Ballot,
        below: Sequence[int],
        votes: Sequence[bytes],
        words: Words,
        end: bytes,
        by: float,
    ) -> None:
        """Phase 2, in the incarnations that were asked in phase 1: one that has come back since, from a
        snapshot perhaps with an old hold of ours in it, must not confirm it."""
        token = bulk(b"%d" % ballot.token)
        commands: list[bytes | None] = [None] * len(votes)
        for index in below:
            begin = bulk(b"%d" % ballot.begins[index])
            commands[index] = words.raise_ + token + begin + words.stripe + votes[index] + end
        ballot.asked = len(below)
        if ballot.asked:
            await self._fan.ask(commands, ballot.raised, by)

    def _give_back(
        self, words: Words, round_id: str, nodes: Sequence[int], answered: dict[int, int]
    ) -> None:
        """To all of them, whatever they answered; where they did not, with a tombstone."""
        end = bulk(round_id.encode())
        commands: list[bytes | None] = [None] * len(self._board.seats)
        for index in nodes:
            mark = UNMARKED if index in answered else MARKED
            commands[index] = words.free + mark + QUIET + end
        by = self.clock.now() + self._settings.node_timeout
        for index in self._fan.post(commands, by):
            self._nodes.owe(index, words.free + MARKED + QUIET + end, words.ttl)

    def _keep_hold(self, owner: str, hold: Hold) -> None:
        self._holds[owner] = hold
        if len(self._holds) % MANY == 0:
            # Those that ran out were never released, and nobody will ask for them again.
            now = self.clock.now()
            with self._mutex:
                for old, one in list(self._holds.items()):
                    if one.until < now:
                        self._holds.pop(old, None)

    # Waiting.

    async def _beat(self, waiter: Waiter, by: float) -> Outcome:
        """Stay known to a node that can wake us; and try, if the lock may be had."""
        with self._mutex:
            if waiter.trying:
                waiter.again = True  # the waiter itself, or the keeper, is at it
                return Waiting(LOOK)
            waiter.trying = True
        try:
            while True:
                waiter.again = False
                left = await self._bells.attend(waiter, by)
                if left > 0 and not waiter.is_time():
                    answer: Granted | float = left
                else:
                    answer = await self._rounds(waiter, by)
                if isinstance(answer, Granted) or not waiter.again:
                    break
        finally:
            waiter.trying = False
        if not isinstance(answer, Granted):
            if waiter.left:
                return GONE
            return Waiting(max(answer, LOOK * (0.5 + os.urandom(1)[0] / 128)))
        self._waiters.pop(waiter.ticket.owner, None)
        await self._leave(waiter, by)
        return Renewed(answer.token, answer.ttl)

    async def _leave(self, waiter: Waiter, by: float) -> None:
        bell = self._bells.forget(waiter)
        if bell is not None:
            commands: list[bytes | None] = [None] * len(self._board.seats)
            commands[bell] = waiter.words.leave + bulk(waiter.ticket.owner.encode())
            self._fan.post(commands, by)

    # Refusing.

    def _check(self, ticket: Ticket) -> None:
        self._fan.check()
        if ticket.capacity != 1:
            raise GuaranteeError(
                f"{ticket.name!r} was asked for as a {ticket.kind}, which several may share; on "
                "redlock:// a lock has one holder",
                name=ticket.name,
                owner=ticket.owner,
            )
        self._check_ttl(ticket.name, ticket.ttl)

    def _check_ttl(self, name: str, ttl: float) -> None:
        if ttl > self._settings.max_ttl:
            raise ConfigError(
                f"a ttl of {ttl:g} s for {name!r} is longer than max_ttl, {self._settings.max_ttl:g}: "
                "for so long a node that restarted stays out; give connect() a larger max_ttl, the "
                "same for all clients",
                name=name,
            )

    async def _majority(self, by: float) -> None:
        """Wait for a moment until a majority votes, or raise."""
        if self._board.voting() >= self._quorum:
            return
        until = min(by, self.clock.now() + TROUBLE)
        while self._board.voting() < self._quorum:
            self._fan.check()
            self._nodes.check()
            now = self.clock.now()
            if now >= until:
                raise self._unavailable("no majority of the nodes votes", None)
            await Signal(self.clock).wait(min(until, now + LOOK))

    def _unavailable(self, what: str, name: str | None) -> BackendUnavailable:
        seats = self._board.seats
        out = "; ".join(self._board.out()) or "all of them vote now"
        return BackendUnavailable(
            f"{what}: {self._board.voting()} of {len(seats)} nodes vote, and {self._quorum} are "
            f"needed ({out})",
            name=name,
        )
