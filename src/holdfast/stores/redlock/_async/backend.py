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

from ...._runtime.aio import finish
from ....clock import system_clock
from ....entries import Claim
from ....errors import BackendUnavailable, ConfigError, GuaranteeError
from ....guarantees import Guarantees
from ....model import GONE, UNKNOWN, Busy, Granted, LockState, Outcome, Queued, Renewed, Waiting
from ..._async.contract import OPEN_LIMIT, Backend, Ticket
from ...redis.wire.protocol import bulk, require_hiredis
from ...urls import Target
from .. import guarantees
from ..commands import MARKED, WAKING, Commands, Part
from ..members import Settings, settings_of
from ..membership import Board
from ..votes import Tally
from ..wire.aio import Fan
from .inspection import Looking
from .recovery import Nodes
from .rounds import Hold, Rounds
from .undelivered import Owed
from .wakeups import Bells, Waiter

LOOK = 0.01


def prepare(
    target: Target, namespace: str, options: dict[str, Any]
) -> tuple[Guarantees, Callable[[], Backend]]:
    """Check everything that can be checked without opening; answers how to open."""
    settings = settings_of(target, options)
    require_hiredis()
    return guarantees.REDLOCK, lambda: RedlockBackend(settings, namespace)


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
        self._owed = Owed(settings, self._board, self._fan, self.clock)
        self._nodes = Nodes(
            settings, self._board, self._fan, self._owed, self._commands, self.clock
        )
        self._bells = Bells(settings, self._board, self._commands, self.clock)
        self._rounds = Rounds(
            settings,
            self._board,
            self._fan,
            self._nodes,
            self._owed,
            self._commands.takes,
            self.clock,
        )
        self._looking = Looking(
            settings, self._board, self._fan, self._nodes, self._commands, self.clock
        )
        self._holds = self._rounds.holds
        self._alike = (b"",) * len(settings.addresses)
        self._waiters: dict[str, Waiter] = {}
        self._mutex = Lock()

    async def open(self, deadline: float) -> None:
        try:
            await self._nodes.open(deadline)
        except BaseException:
            await finish(self.close, grace=OPEN_LIMIT)
            raise

    async def acquire(self, ticket: Ticket, deadline: float) -> Granted | Queued | Busy:
        self._check(ticket)
        hold = self._holds.get(ticket.owner)
        if hold is not None and hold.name == ticket.name:
            (outcome,) = await self.renew([Claim(ticket.name, ticket.owner, ticket.ttl)], deadline)
            if isinstance(outcome, Renewed):
                return Granted(outcome.token, ticket.ttl)
            raise BackendUnavailable(
                f"the request for {ticket.name!r} was granted before, and ended since",
                name=ticket.name,
                owner=ticket.owner,
            )
        waiter = self._waiters.get(ticket.owner)
        if waiter is None:
            waiter = Waiter(ticket, self._commands.of(ticket.terms))
            answer = await self._rounds.tried(waiter, deadline)
            if isinstance(answer, Hold):
                return Granted(answer.token, ticket.ttl)
            if not ticket.queue:
                return Busy(answer)
            self._waiters[ticket.owner] = waiter
        outcome = await self._beat(waiter, deadline)
        if isinstance(outcome, Renewed):
            return Granted(outcome.token, outcome.ttl)
        if isinstance(outcome, Waiting):
            return Queued(outcome.remaining)
        raise BackendUnavailable(
            f"the request for {ticket.name!r} was given up", name=ticket.name, owner=ticket.owner
        )

    async def renew(self, claims: Sequence[Claim], deadline: float) -> Sequence[Outcome]:
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
            await self._keep(claims, held, outcomes, deadline)
        for i, waiter in waiting:
            outcomes[i] = await self._beat(waiter, deadline)
        return outcomes

    async def _keep(
        self, claims: Sequence[Claim], held: list[int], outcomes: list[Outcome], deadline: float
    ) -> None:
        # A node whose answer to the acquisition was not read yet would count as one without a hold.
        self._fan.catch_up()
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
        await self._fan.ask(commands, heard, min(deadline, sent + self._settings.node_timeout))
        for k, i in enumerate(held):
            hold, claim = holds[k], claims[i]
            if hold is None:
                continue
            if tally.yes[k] >= self._quorum:
                hold.until = max(hold.until, sent + claim.ttl)
                hold.ttl = max(hold.ttl, claim.ttl)
                outcomes[i] = Renewed(hold.token, claim.ttl)
            elif tally.decided(k):
                # A minority may have been renewed: nobody else should have to wait for it.
                self._holds.pop(claim.owner, None)
                words = self._commands.plain(claim.name)
                nodes = range(len(seats))
                self._rounds.give_back(words, hold.round, nodes, hold.begins, hold.ways)
            else:
                outcomes[i] = UNKNOWN

    async def release(self, name: str, owner: str, deadline: float) -> bool:
        self._fan.check()
        words = self._commands.plain(name)
        waiter = self._waiters.pop(owner, None)
        if waiter is not None:
            waiter.left = True
            self._bells.forget(waiter)
            self._take_off(waiter, deadline)
        hold = self._holds.pop(owner, None)
        if hold is not None and hold.name != name:
            self._holds[owner] = hold
            hold = None
        if hold is None:
            if waiter is None:
                self._rounds.give_back(words, owner, range(len(self._board.seats)), (), ())
            return False
        # A request that is not answered yet may arrive after this one, unless on the same connection.
        plain, marked = words.release + hold.end, words.free + hold.end + MARKED + WAKING
        votes = self._board.votes
        commands = [plain if vote else None for vote in votes]
        for index, command in enumerate(commands):
            if command is None and hold.votes[index]:
                self._owed.owe(index, marked, hold.ttl)
        quorum, most = self._quorum, len(votes) - self._quorum
        freed = gone = 0

        def heard(index: int, reply: Any) -> bool:
            nonlocal freed, gone
            if type(reply) is not int:
                self._owed.owe(index, marked, hold.ttl)
            elif reply == 1:
                freed += 1
            else:
                gone += 1
            return freed >= quorum or gone > most

        limit = min(deadline, self.clock.now() + self._settings.node_timeout)
        part = Part(self._commands.releases, words.lock, hold.end, self._alike)
        await self._fan.ask(commands, heard, limit, hold.ways, hold.begins, marked, part)
        if freed >= quorum:
            return True
        if gone > most:
            return False
        self._holds[owner] = hold
        raise self._nodes.unavailable(f"{name!r} was given back to too few nodes to be sure", name)

    async def wait(self, ticket: Ticket, until: float | None) -> Granted | None:
        waiter = self._waiters.get(ticket.owner)
        if waiter is None:
            return await ticket.wait(self.clock, until)
        return await self._bells.listen(waiter, until)

    async def inspect(self, name: str, deadline: float) -> LockState:
        return (await self._looking.look([name], deadline))[0]

    async def list(self, prefix: str, deadline: float) -> Sequence[LockState]:
        return await self._looking.list(prefix, deadline)

    async def force_release(self, name: str, actor: str, deadline: float) -> bool:
        return await self._looking.force_release(name, actor, deadline)

    async def tether(self, name: str, owner: str, deadline: float) -> int | None:
        return None

    async def close(self) -> None:
        self._fan.shut()  # nobody waits for a node that hangs
        await self._nodes.close()
        await self._bells.close()
        await self._fan.close()

    # Waiting.

    async def _beat(self, waiter: Waiter, deadline: float) -> Outcome:
        """Stay known to a node that can wake us; and try, if the lock may be had."""
        answer: Hold | float = 0.0
        with self._mutex:
            if waiter.trying or waiter.granted:
                waiter.again = True  # the waiter itself, or the keeper, is at it, or has been
                return Waiting(LOOK)
            waiter.trying = True
        try:
            while not waiter.left:
                waiter.again = False
                left = await self._bells.attend(waiter, deadline)
                if waiter.strays:
                    self._take_off(waiter, deadline)
                if left > 0 and not waiter.is_time():
                    answer = left
                else:
                    answer = await self._rounds.tried(waiter, deadline)
                if isinstance(answer, Hold) or not waiter.again:
                    break
        finally:
            waiter.granted = isinstance(answer, Hold)  # before another may try
            waiter.trying = False
            if waiter.granted:
                self._waiters.pop(waiter.ticket.owner, None)
            if waiter.granted or waiter.left:
                self._bells.forget(waiter)
                self._take_off(waiter, deadline)
        if isinstance(answer, Hold):
            return Renewed(answer.token, answer.ttl)
        if waiter.left:
            return GONE
        return Waiting(max(answer, LOOK * (0.5 + os.urandom(1)[0] / 128)))

    def _take_off(self, waiter: Waiter, deadline: float) -> None:
        """Its strays are to wake it no more: others may wait there, whose turn it is."""
        if not waiter.strays:
            return
        words, owner = waiter.words, bulk(waiter.ticket.owner.encode())
        known, late = words.leave + owner, words.leave_late + owner + self._commands.lateness
        commands: list[bytes | None] = [None] * len(self._board.seats)
        while waiter.strays:
            try:
                index, answered = waiter.strays.popitem()
            except KeyError:
                break  # another thread does the same
            # On another connection than the request, which may arrive after this.
            commands[index] = known if answered else late

        def heard(index: int, reply: Any) -> bool:
            if type(reply) is not int:
                self._owed.owe(index, commands[index] or known, self._commands.patience)
            return False

        for index in self._fan.post(commands, deadline, heard):
            heard(index, None)

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
