"""The changes of leases that are held: amended, detached, adopted, or released by somebody else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from ....errors import BackendUnavailable, ConfigError, GuaranteeError
from ....model import GONE, Gone
from ....refusals import in_use_as
from ..._async.contract import Ticket
from ...redis.wire.protocol import bulk
from ..commands import EMPTY, LETTERS, CommandPrefixes, Commands, packed_before, packed_request
from ..shared_commands import READER, WRITER, SharedCommands, as_reader, mode_of
from ..votes import refused_error
from ..wire.aio import RedlockWire
from .recovery import Recovery
from .rounds import HeldRound, Rounds
from .undelivered import Undelivered
from .wakeups import Waiter

_WRITER = bulk(WRITER.encode())


class Changing:
    """Changes leases on a majority of the nodes."""

    def __init__(
        self,
        wire: RedlockWire,
        recovery: Recovery,
        undelivered: Undelivered,
        rounds: Rounds,
        commands: Commands,
    ) -> None:
        self._wire = wire
        self._table, self._clock = wire.table, wire.clock
        self._quorum = self._table.quorum
        self._recovery = recovery
        self._undelivered = undelivered
        self._rounds = rounds
        self._commands = commands

    async def amend(
        self, name: str, owner: str, deadline: float, weight: int, text: str | None
    ) -> bool:
        """Changes the text of a lease, or makes a writer a reader. False: it has ended."""
        held_round = self._held_round(name, owner)
        if held_round is None:
            return False
        if weight > 1:
            raise GuaranteeError(
                f"the lease on {name!r} cannot have a weight of {weight} on redlock://: a writer may "
                "become a reader, and shares do not add up over a majority",
                name=name,
                owner=owner,
            )
        downgrade = weight == 1 and held_round.prefixes.mode == _WRITER
        if text is not None:
            held_round.version += 1
        version = 0 if text is None else held_round.version
        head = self._commands.amend(held_round.prefixes, version, text or "", downgrade)
        changed = await self._change(held_round, head, deadline, late=True)
        if changed and downgrade:
            held_round.prefixes = as_reader(held_round.prefixes)
        return changed

    async def detach(self, name: str, owner: str, ttl: float, deadline: float) -> bool:
        """Lets a lease last for exactly `ttl` seconds. False: it has ended."""
        held_round = self._held_round(name, owner)
        if held_round is None:
            return False
        sent = self._clock.now()
        head = self._commands.detach(held_round.prefixes, ttl)
        changed = await self._change(held_round, head, deadline, late=False)
        if changed:
            held_round.until = sent + ttl
        return changed

    def _held_round(self, name: str, owner: str) -> HeldRound | None:
        self._wire.check_open()
        held_round = self._rounds.held_rounds.get(owner)
        return held_round if held_round is not None and held_round.name == name else None

    async def _change(
        self, held_round: HeldRound, head: bytes, deadline: float, late: bool
    ) -> bool:
        """Sends `head`, with the hold that it is for, to each node that has one.

        Returns whether a majority has done it. `late`: a node that missed it gets it later.
        """
        await self._recovery.wait_for_reconnection(deadline)
        self._wire.read_late_replies()
        incarnations = self._table.incarnations
        commands: list[bytes | None] = [None] * len(incarnations)
        no = 0
        for index, incarnation in enumerate(incarnations):
            begin = held_round.begins.get(index)
            if begin is None:
                no += 1
            elif incarnation:
                commands[index] = head + incarnation + packed_before(begin) + held_round.packed_id

        def on_missed(index: int, reply: object) -> None:
            if late:
                begun = packed_before(held_round.begins[index])
                # In whichever incarnation: it is not counted any more.
                command = head + EMPTY + begun + held_round.packed_id
                self._undelivered.add(index, command, held_round.ttl, reply)

        return await self._decide(commands, deadline, held_round.name, "changed", no, on_missed)

    async def _decide(
        self,
        commands: list[bytes | None],
        deadline: float,
        name: str,
        what: str,
        no: int = 0,
        on_missed: Callable[[int, object], None] = lambda index, reply: None,
    ) -> bool:
        """Returns whether a majority replied 1; raises if it is not known."""
        yes, most = 0, len(commands) - self._quorum
        errors: dict[int, Exception] = {}

        def on_reply(index: int, reply: Any) -> bool:
            nonlocal yes, no
            if type(reply) is not int:
                errors[index] = reply
                on_missed(index, reply)
            elif reply == 1:
                yes += 1
            else:
                no += 1
            return yes >= self._quorum or no > most

        limit = min(deadline, self._clock.now() + self._table.node_timeout)
        await self._wire.fan_out(commands, on_reply, limit)
        if yes >= self._quorum:
            return True
        if no > most:
            return False
        raise self._recovery.unavailable_error(
            f"{name!r} was {what} on too few nodes to be sure ({yes} did it, {no} did not have it)",
            name,
            errors,
        )

    async def release_unknown(self, name: str, owner: str, deadline: float, ttl: float) -> bool:
        """Gives back whatever an owner holds that this backend does not know of, or not any more.

        Its requests that arrive later are refused. A node that cannot be told now is told in `ttl`
        seconds, if it can be then.
        """
        command = self._commands.free_any(name, owner)
        commands: list[bytes | None] = []
        for index, incarnation in enumerate(self._table.incarnations):
            commands.append(command if incarnation else None)
            if not incarnation:
                self._undelivered.add(index, command, ttl)
        try:
            return await self._decide(
                commands,
                deadline,
                name,
                "released",
                on_missed=lambda index, reply: self._undelivered.add(index, command, ttl, reply),
            )
        except (BackendUnavailable, ConfigError):
            return False  # mostly there was nothing to release

    async def adopt(self, ticket: Ticket, giver: str, deadline: float) -> HeldRound | Gone:
        """Makes the lease of `giver` that of the ticket, by a round of its own."""
        await self._recovery.wait_for_majority(deadline)
        found = await self._find(ticket, giver, deadline)
        if found is None:
            return GONE
        round_id, mode, kind = found
        terms = ticket.terms
        name, _, capacity = kind.decode().partition("\x1f")
        if (name, int(capacity)) != (terms.kind, terms.capacity):
            wanted = (terms.kind, terms.capacity)
            raise in_use_as(ticket.name, ticket.owner, (name, int(capacity)), wanted)
        letter = mode_of(terms.kind, terms.weight, terms.capacity)
        if {b"r": READER, b"w": WRITER}.get(mode, letter) != letter:
            raise ConfigError(
                f"the lease on {ticket.name!r} is a {'reader' if mode == b'r' else 'writer'}'s, so it "
                "cannot be adopted as the other",
                name=ticket.name,
                owner=ticket.owner,
            )
        shared: SharedCommands | None = None
        prefixes: CommandPrefixes
        if letter:
            shared = SharedCommands(self._commands, terms, letter)
            prefixes = shared.prefixes(int(mode) if mode.isdigit() else None)
            request = shared.request
        else:
            prefixes = self._commands.prefixes_for(terms)
            request = packed_request(terms.ttl, terms.label, LETTERS.get(terms.kind, ""))
        assert (prefixes.mode is EMPTY) == (not letter)
        waiter = Waiter(ticket, prefixes)
        take = self._commands.adopt(prefixes, request, bulk(round_id))
        waiter.round_prefixes = prefixes._replace(take=take)
        outcome = await self._rounds.run_round(waiter, deadline, alone=True)
        if isinstance(outcome, HeldRound):
            return outcome
        if outcome.errors and not outcome.is_answered():
            what = (
                f"the lease on {ticket.name!r} was adopted on too few nodes, and given back there"
            )
            raise refused_error(self._table, outcome.errors, what, ticket.name)
        return GONE

    async def _find(
        self, ticket: Ticket, giver: str, deadline: float
    ) -> tuple[bytes, bytes, bytes] | None:
        """Returns the round of the giver that a majority has, its mode, and the kind of the lock."""
        command = self._commands.find(ticket.name, giver, ticket.owner)
        incarnations = self._table.incarnations
        votes: Counter[tuple[bytes, bytes, bytes]] = Counter()
        replied = 0
        errors: dict[int, Exception] = {}

        def on_reply(index: int, reply: Any) -> bool:
            nonlocal replied
            if type(reply) is list:
                replied += 1
                votes.update(zip(reply[::3], reply[1::3], reply[2::3], strict=True))
            else:
                errors[index] = reply
            return False

        limit = min(deadline, self._clock.now() + self._table.node_timeout)
        commands = [command if incarnation else None for incarnation in incarnations]
        await self._wire.fan_out(commands, on_reply, limit)
        # What was adopted by an earlier request, without a reply, is the giver's round, too.
        heir = ticket.owner.encode()
        adopted = {vote[1:]: count for vote, count in votes.items() if vote[0] == heir}
        for vote, count in votes.items():
            if count + (adopted.get(vote[1:], 0) if vote[0] != heir else 0) >= self._quorum:
                return vote
        if replied < self._quorum:
            raise self._recovery.unavailable_error("too few nodes answered", ticket.name, errors)
        return None
