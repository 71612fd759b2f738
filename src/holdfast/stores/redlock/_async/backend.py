"""`redlock://`: a lock is held by a majority of independent Redis nodes, with a fencing token.

Every round of an attempt has an owner id of its own, `owner`, `owner~1`, …: once its clean-up has been
sent, the id is never used again. The token is agreed upon in two phases (`votes`). A node that does not
reply in time is left out, and looked after in the background (`recovery`), so that it costs nothing the
next time. The algorithm and the argument for its safety are in docs/redlock.md.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from threading import Lock
from typing import Any

from ...._runtime.aio import finish
from ....clock import system_clock
from ....entries import Claim
from ....errors import BackendUnavailable
from ....guarantees import Guarantees
from ....model import (
    GONE,
    UNKNOWN,
    Busy,
    Gone,
    Granted,
    LockState,
    Observation,
    Outcome,
    Queued,
    Renewed,
    Waiting,
)
from ..._async.contract import OPEN_LIMIT, Backend, Ticket
from ...redis.wire.protocol import require_hiredis
from ...urls import Target
from .. import guarantees
from ..address import Settings, parse_settings
from ..commands import EMPTY, MARKED, WAKING, BatchItem, Commands, Renewal
from ..membership import NodeTable, is_refusal
from ..refusals import check_shape, check_ttl
from ..shared_commands import SharedCommands, mode_of
from ..votes import Tally
from ..wire.aio import RedlockWire
from .changing import Changing
from .inspection import Inspection
from .observing import Observing
from .recovery import Recovery
from .rounds import HeldRound, Rounds
from .undelivered import Undelivered
from .wakeups import Waiter, Wakeups

SOONEST = 0.01
"""Seconds after which the keeper may look at a waiter again."""


def prepare(
    target: Target, namespace: str, options: dict[str, Any]
) -> tuple[Guarantees, Callable[[], Backend]]:
    """Checks all that needs no open store. Returns the guarantees, and what opens a backend."""
    settings = parse_settings(target, options)
    require_hiredis()
    return guarantees.promised_by(settings), lambda: RedlockBackend(settings, namespace)


class RedlockBackend:
    """The store of a `redlock://` URL."""

    def __init__(self, settings: Settings, namespace: str) -> None:
        self.guarantees = guarantees.promised_by(settings)
        self.clock = system_clock()
        self.heartbeat = settings.heartbeat
        self.claim_window = settings.heartbeat
        self._settings = settings
        self._quorum = settings.quorum
        self._commands = Commands(namespace, settings.heartbeat)
        self._table = NodeTable(settings, self.clock)
        self._wire = RedlockWire(
            settings.addresses, self._table, self.clock, self._commands.first_commands
        )
        self._undelivered = Undelivered(settings, self._wire)
        self._recovery = Recovery(settings, self._wire, self._undelivered, self._commands)
        self._wakeups = Wakeups(settings, self._table, self._undelivered, self._commands)
        self._rounds = Rounds(
            self._wire, self._recovery, self._undelivered, self._commands.take_batch
        )
        self._inspection = Inspection(self._wire, self._recovery, self._commands)
        self._changing = Changing(
            self._wire, self._recovery, self._undelivered, self._rounds, self._commands
        )
        self._observing = Observing(self.clock, self._inspection, settings.heartbeat)
        self._held_rounds = self._rounds.held_rounds
        self._no_last = (b"",) * len(settings.addresses)
        """The last argument of a batch of releases, by node: there is none."""
        self._waiters: dict[str, Waiter] = {}
        self._mutex = Lock()

    async def open(self, deadline: float) -> None:
        try:
            await self._recovery.open(deadline)
        except BaseException:
            await finish(self.close, grace=OPEN_LIMIT)
            raise

    async def acquire(self, ticket: Ticket, deadline: float) -> Granted | Queued | Busy:
        self._check(ticket)
        held_round = self._held_rounds.get(ticket.owner)
        if held_round is not None and held_round.name == ticket.name:
            (outcome,) = await self.renew([Claim(ticket.name, ticket.owner, ticket.ttl)], deadline)
            if isinstance(outcome, Renewed):
                return Granted(outcome.token, ticket.ttl, slot=outcome.slot)
            raise BackendUnavailable(
                f"the request for {ticket.name!r} was granted before, and has ended since",
                name=ticket.name,
                owner=ticket.owner,
            )
        waiter = self._waiters.get(ticket.owner)
        if waiter is None:
            waiter = self._waiter_for(ticket)
            result = await self._rounds.try_rounds(waiter, deadline)
            if isinstance(result, HeldRound):
                return Granted(result.token, ticket.ttl, slot=result.slot)
            if not ticket.queue:
                return Busy(result)
            self._waiters[ticket.owner] = waiter
        outcome = await self._heartbeat(waiter, deadline)
        if isinstance(outcome, Renewed):
            return Granted(outcome.token, outcome.ttl, slot=outcome.slot)
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
            check_ttl(claim.name, claim.ttl, self._settings)
            held_round = self._held_rounds.get(claim.owner)
            if held_round is not None and held_round.name == claim.name:
                held.append(i)
                continue
            waiter = self._waiters.get(claim.owner)
            if waiter is not None and waiter.ticket.name == claim.name:
                waiting.append((i, waiter))
        self._wire.check_open()
        if held:
            await self._renew_held(claims, held, outcomes, deadline)
        for i, waiter in waiting:
            try:
                outcomes[i] = await self._renew_waiter(waiter, deadline)
            except BackendUnavailable:
                if len(claims) == 1:
                    raise
                outcomes[i] = UNKNOWN  # what was renewed beside it is still renewed
        return outcomes

    async def _renew_held(
        self, claims: Sequence[Claim], held: list[int], outcomes: list[Outcome], deadline: float
    ) -> None:
        """Renews the leases `claims[i]` for each i of `held`, and sets their `outcomes`."""
        await self._recovery.wait_for_reconnection(deadline)
        # A node whose reply to the acquisition was not read yet would count as one without a hold.
        self._wire.read_late_replies()
        nodes = self._table.nodes
        held_rounds = [self._held_rounds.get(claims[i].owner) for i in held]
        tally = Tally(len(held), self._quorum, len(nodes))
        errors: dict[int, Exception] = {}
        asked: list[list[int]] = []
        commands: list[bytes | None] = []
        for node in nodes:
            incarnation = node.incarnation
            which: list[int] = []
            kept: list[Renewal] = []
            for k, held_round in enumerate(held_rounds):
                begin = None if held_round is None else held_round.begins.get(node.index)
                if held_round is None or begin is None:
                    if incarnation:
                        tally.add(k, False)
                else:
                    which.append(k)
                    ttl, mode = claims[held[k]].ttl, held_round.prefixes.mode
                    kept.append(Renewal(held_round.name, held_round.packed_id, begin, ttl, mode))
            asked.append(which)
            commands.append(
                self._commands.renew(incarnation, kept) if incarnation and kept else None
            )

        def on_reply(index: int, reply: Any) -> bool:
            if type(reply) is list:
                for k, renewed in zip(asked[index], reply, strict=True):
                    if renewed != 2:  # it is held there, and the node could not renew it
                        tally.add(k, renewed == 1)
            else:
                errors[index] = reply
            return tally.is_done()

        sent = self.clock.now()
        await self._wire.fan_out(
            commands, on_reply, min(deadline, sent + self._settings.node_timeout)
        )
        for k, i in enumerate(held):
            held_round, claim = held_rounds[k], claims[i]
            if held_round is None:
                continue
            if tally.yes[k] >= self._quorum:
                held_round.until = max(held_round.until, sent + claim.ttl)
                held_round.ttl = max(held_round.ttl, claim.ttl)
                outcomes[i] = Renewed(held_round.token, claim.ttl, slot=held_round.slot)
            elif tally.is_decided(k):
                # A minority may have been renewed: no other owner should have to wait for its end.
                self._held_rounds.pop(claim.owner, None)
                self._rounds.give_back(
                    held_round.prefixes,
                    held_round.round_id,
                    range(len(nodes)),
                    held_round.begins,
                    held_round.connections,
                )
            elif len(claims) == 1 and any(map(is_refusal, errors.values())):
                raise self._recovery.unavailable_error(
                    "too few nodes have renewed it", claim.name, errors
                )
            else:
                outcomes[i] = UNKNOWN

    async def release(self, name: str, owner: str, deadline: float) -> bool:
        self._wire.check_open()
        waiter = self._waiters.pop(owner, None)
        if waiter is not None:
            waiter.given_up = True
            self._wakeups.forget(waiter)
        held_round = self._held_rounds.pop(owner, None)
        if held_round is not None and held_round.name != name:
            self._held_rounds[owner] = held_round
            held_round = None
        if held_round is None:
            if waiter is None:
                longest = self._settings.max_ttl
                return await self._changing.release_unknown(name, owner, deadline, longest)
            return False
        prefixes = held_round.prefixes
        try:
            await self._recovery.wait_for_reconnection(deadline)
        except BaseException:
            self._held_rounds[owner] = held_round
            raise
        # A request without a reply may arrive after the release, unless on the same connection.
        plain, marked = (
            prefixes.release + held_round.packed_id,
            prefixes.free + held_round.packed_id + MARKED + WAKING,
        )
        incarnations = self._table.incarnations
        commands = [plain if incarnation else None for incarnation in incarnations]
        for index, command in enumerate(commands):
            if command is None and held_round.incarnations[index]:
                self._undelivered.add(index, marked, held_round.ttl)
        quorum, most = self._quorum, len(incarnations) - self._quorum
        freed = gone = 0
        errors: dict[int, Exception] = {}

        def on_reply(index: int, reply: Any) -> bool:
            nonlocal freed, gone
            if type(reply) is not int:
                errors[index] = reply
                self._undelivered.add(index, marked, held_round.ttl, reply)
            elif reply == 1:
                freed += 1
            else:
                gone += 1
            return freed >= quorum or gone > most

        item = None
        if prefixes.mode is EMPTY:
            item = BatchItem(
                self._commands.release_batch, prefixes.lock, held_round.packed_id, self._no_last
            )
        limit = min(deadline, self.clock.now() + self._settings.node_timeout)
        await self._wire.fan_out(
            commands,
            on_reply,
            limit,
            held_round.connections,
            held_round.begins,
            marked,
            item,
        )
        if freed >= quorum:
            return True
        if gone > most:
            return False
        self._held_rounds[owner] = held_round
        raise self._recovery.unavailable_error(
            f"{name!r} was released on too few nodes to be sure ({freed} freed it, {gone} did not have "
            "it)",
            name,
            errors,
        )

    async def wait(self, ticket: Ticket, until: float | None) -> Granted | None:
        waiter = self._waiters.get(ticket.owner)
        if waiter is None:
            return await ticket.wait(self.clock, until)
        return await self._wakeups.listen(waiter, until)

    async def inspect(self, name: str, deadline: float) -> LockState:
        return (await self._inspection.inspect([name], deadline))[0]

    async def list(self, prefix: str, deadline: float) -> Sequence[LockState]:
        return await self._inspection.list(prefix, deadline)

    async def force_release(self, name: str, actor: str, deadline: float, above: int = 0) -> bool:
        return await self._inspection.force_release(name, actor, deadline, above)

    async def amend(
        self, name: str, owner: str, deadline: float, weight: int = 0, text: str | None = None
    ) -> bool:
        return await self._changing.amend(name, owner, deadline, weight, text)

    async def detach(self, name: str, owner: str, ttl: float, deadline: float) -> bool:
        check_ttl(name, ttl, self._settings)
        return await self._changing.detach(name, owner, ttl, deadline)

    async def adopt(self, ticket: Ticket, giver: str, deadline: float) -> Granted | Gone:
        self._check(ticket)
        held_round = self._held_rounds.get(ticket.owner)
        if held_round is not None and held_round.name == ticket.name:
            (outcome,) = await self.renew([Claim(ticket.name, ticket.owner, ticket.ttl)], deadline)
            if isinstance(outcome, Renewed):
                return Granted(outcome.token, ticket.ttl, slot=outcome.slot)
            return GONE
        adopted = await self._changing.adopt(ticket, giver, deadline)
        if isinstance(adopted, Gone):
            return adopted
        return Granted(adopted.token, ticket.ttl, slot=adopted.slot)

    async def observe(self, ticket: Ticket, after: int, deadline: float) -> Observation:
        return await self._observing.observe(ticket, after, deadline)

    async def unobserve(self, ticket: Ticket, deadline: float) -> None:
        self._observing.unobserve(ticket)

    async def tether(self, name: str, owner: str, deadline: float) -> int | None:
        return None

    async def close(self, deadline: float | None = None) -> None:
        self._wire.shut()  # so that no caller waits for a node that hangs
        await self._observing.close()
        await self._recovery.close()
        await self._wakeups.close()
        await self._wire.close()

    # Waiting.

    def _waiter_for(self, ticket: Ticket) -> Waiter:
        """Returns the attempt of a ticket that was checked."""
        terms = ticket.terms
        mode = mode_of(terms.kind, terms.weight, terms.capacity)
        if not mode:
            return Waiter(ticket, self._commands.prefixes_for(terms))
        shared = terms.prepared
        if shared is None:
            shared = terms.prepared = SharedCommands(self._commands, terms, mode)
        waiter = Waiter(ticket, shared.prefixes(None, ticket.queue), shared)
        waiter.choose_slot(())
        return waiter

    async def _renew_waiter(self, waiter: Waiter, deadline: float) -> Outcome:
        """Returns what a heartbeat of `waiter` found. Raises while no majority votes: however a single
        node replies, the store does not answer then, and a waiter is told if that goes on."""
        outcome = await self._heartbeat(waiter, deadline)
        waits = isinstance(outcome, Waiting) and not waiter.granted
        if waits and self._table.voting_count() < self._quorum:
            raise self._recovery.unavailable_error("no majority of the nodes votes", None)
        return outcome

    async def _heartbeat(self, waiter: Waiter, deadline: float) -> Outcome:
        """Keeps the waiter known to a node that wakes it, and tries a round if the lock may be free."""
        result: HeldRound | float = 0.0
        with self._mutex:
            if waiter.trying or waiter.granted:
                waiter.retry_wanted = (
                    True  # the waiter itself or the keeper is trying, or has the lock
                )
                return Waiting(SOONEST)
            waiter.trying = True
        try:
            while not waiter.given_up:
                waiter.retry_wanted = False
                left = await self._wakeups.register(waiter, deadline)
                if left > 0 and not waiter.is_round_due():
                    result = left
                else:
                    result = await self._rounds.try_rounds(waiter, deadline, left == 0)
                if isinstance(result, HeldRound) or not waiter.retry_wanted:
                    break
        finally:
            waiter.granted = isinstance(result, HeldRound)  # before another heartbeat may try
            waiter.trying = False
            if waiter.granted:
                self._waiters.pop(waiter.ticket.owner, None)
            if waiter.granted or waiter.given_up:
                self._wakeups.forget(waiter)
        if isinstance(result, HeldRound):
            return Renewed(result.token, result.ttl, slot=result.slot)
        if waiter.given_up:
            return GONE
        return Waiting(max(result, SOONEST * (0.5 + os.urandom(1)[0] / 128)))

    def _check(self, ticket: Ticket) -> None:
        self._wire.check_open()
        check_shape(ticket)
        check_ttl(ticket.name, ticket.ttl, self._settings)
