"""The plans of runs on Redlock, by seed; and the variants that break a rule and must be caught."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import TYPE_CHECKING, Any

from ..._runtime.aio import Signal
from ...errors import LockError
from ...stores.redlock import lua
from ...stores.redlock._async import lost_majority
from ...stores.redlock._async import rejoin as rejoin_module
from ...stores.redlock._async.backend import RedlockBackend
from ...stores.redlock._async.rejoin import Rejoin, SealReply
from ...stores.redlock._async.wakeups import Waiter
from ...stores.redlock.lua import text_of
from ...stores.redlock.membership import read_marker, run_id_of
from ...stores.redlock.votes import Ballot
from .. import faults
from ..calm import Unclean
from ..chances import Chances
from ..process import Process
from ..redis.server import RedisNode, Session
from .base import CalmRedlock, Hammer, LostMajority, RedlockPlan

if TYPE_CHECKING:
    from ..world import World


def plan(seed: int) -> RedlockPlan:
    if seed % 20 == 0:
        return Hammer()
    return LostMajority() if seed % 5 == 1 else RedlockPlan()


def calm(seed: int) -> RedlockPlan:
    return CalmRedlock()


# Known to be bad: each leaves one rule of the protocol out, and must be caught.


@contextmanager
def replaced(owner: object, name: str, member: object) -> Iterator[None]:
    before = getattr(owner, name)
    setattr(owner, name, member)
    try:
        yield
    finally:
        setattr(owner, name, before)


class Heedless(RedlockPlan):
    """A plain lock: no holder checks that it still holds the lock, and the resource has no fence."""

    turns = 4
    faults = (faults.PAUSE,)
    heedless = True


class Unconditional(Hammer):
    """A phase 2 that raises the counter and counts the node, whichever owner has the lock by then."""

    turns = 20

    def scripts(self) -> dict[bytes, bytes]:
        text = text_of("raise")
        cut = text.index(b"local v =")
        raising = b"""
if tonumber(redis.call('GET', N) or 0) < tonumber(ARGV[1]) then redis.call('SET', N, ARGV[1]) end
return 1"""
        return {text: text[:cut] + raising}


class Echo(RedisNode):
    """A node at which each phase 1 request arrives again before its phase 2: if its hold is over, that
    makes a new one of the same owner."""

    def __init__(self, process: Process, altered: dict[bytes, bytes]) -> None:
        super().__init__(process, altered)
        scripts = lua.scripts()
        self._take = scripts["take"].digest
        self._raise = scripts["raise"].digest
        self._heard: dict[bytes, list[bytes]] = {}

    def _answer(self, words: list[bytes], session: Session, micros: int) -> bytes:
        if words[0] == b"EVALSHA":
            if words[1] == self._take:
                self._heard[words[-2]] = words  # the owner; the incarnation is behind it
            elif words[1] == self._raise and words[-1] in self._heard:
                super()._answer(self._heard[words[-1]], session, micros)
        return super()._answer(words, session, micros)


class OwnerOnly(Hammer):
    """A phase 2 that asks for the owner, and not for the hold of phase 1."""

    turns = 20
    faults = (faults.PAUSE, faults.RACE)

    def start(self, world: World) -> list[Any]:
        world.network.chances = Chances(slow=0.5, slowest=0.03)
        return super().start(world)

    def node(self, process: Process) -> RedisNode:
        return Echo(process, self.scripts())

    def scripts(self) -> dict[bytes, bytes]:
        text = text_of("raise")
        asked = b"'rl1\\031' .. ARGV[4] .. '\\031'"
        cut = text.index(b"redis.call('SET', K")
        altered = text[:cut].replace(asked + b" .. ARGV[2] .. '\\031'", asked)
        assert altered != text[:cut]
        return {text: altered + b"return 1"}


class LateReply(Hammer):
    """A ballot that counts replies from after the token was chosen."""

    turns = 20

    def altered(self) -> AbstractContextManager[object]:
        def stands(ballot: Ballot) -> bool:
            ballot.raising = False
            ballot.counted = list(ballot.begins)
            return len(ballot.counted) >= ballot._quorum

        return replaced(Ballot, "stands", stands)


class OwnerAgain(Hammer):
    """An attempt whose rounds all have one owner id."""

    faults = (faults.CUT, faults.PAUSE)
    turns = 20

    def start(self, world: World) -> list[Any]:
        # Connections break, and what was sent on them arrives later: behind its own clean-up.
        world.network.chances = Chances(slow=0.2, slowest=0.1, lost=0.03, overtaken=0.1)
        return super().start(world)

    def altered(self) -> AbstractContextManager[object]:
        return replaced(Waiter, "next_round_id", lambda waiter: waiter.ticket.owner)


class Restarts(RedlockPlan):
    clients = (3,)
    turns = 3
    faults: Sequence[str] = (faults.CRASH, faults.PAUSE)
    crashes = 10
    sizes = (3,)
    scales = (0.1,)
    mixed = 0.0  # a mistake in a restart shows where many take turns at one lock


class AtOnce(Restarts):
    """A node that has restarted votes at once."""

    faults = (faults.CRASH,)
    scales = (1.0,)

    def altered(self) -> AbstractContextManager[object]:
        async def at_once(
            rejoin: Rejoin, node: Any, run_id: bytes, marker: Any, begun: list[Any]
        ) -> None:
            await rejoin._admit(node, run_id, begun[0], 2, 1, b"")

        return replaced(Rejoin, "_rejoin", at_once)


class WaitsOnly(Restarts):
    """A node that waits, but does not read the counters of the others."""

    def altered(self) -> AbstractContextManager[object]:
        async def seal(rejoin: Rejoin, node: Any, others: Any, life: int) -> list[SealReply]:
            return [SealReply(node.name, 1, 1, 0, b"")] * rejoin._table.quorum

        return replaced(Rejoin, "_seal", seal)


class FewerReads(Restarts):
    """A node that reads one node less than a majority."""

    faults = (faults.CRASH, faults.CUT)

    def altered(self) -> AbstractContextManager[object]:
        seal = Rejoin._seal

        async def sealed(rejoin: Rejoin, node: Any, others: Any, life: int) -> list[SealReply]:
            fewer = rejoin._table.quorum - 1
            replies = await seal(rejoin, node, others[-fewer:], life)
            return [*replies, *replies] if len(replies) == fewer else replies

        return replaced(Rejoin, "_seal", sealed)


class NotTied(Restarts):
    """A client that brings a node back, and does not notice that it restarts again meanwhile."""

    faults = (faults.CUT,)
    turns = 20
    pace = 0.1
    scales = (0.05,)
    unsettled = 60

    def unsettle(self, world: World) -> None:
        """Crashes or advances always the same node, which is mostly ahead: what it forgets matters."""
        if world.loop.random.random() < 0.2:
            world.crash(world.servers[0], "nothing", 0.001)
        else:
            self.advance(world, world.servers[0])

    def altered(self) -> AbstractContextManager[object]:
        admit = Rejoin._admit

        async def late(
            rejoin: Rejoin, node: Any, run_id: bytes, incarnation: bytes, life: int, *rest: Any
        ) -> None:
            pause = (0.0, 0.5)[os.urandom(1)[0] % 2]
            await Signal(rejoin._clock).wait(rejoin._clock.now() + pause)
            info, _, scripts = await rejoin._wire.reach(node.index, rejoin._deadline())
            if not all(scripts):
                await rejoin._wire.call_many(node.index, rejoin._commands.loads, rejoin._deadline())
            run_id = run_id_of(info)
            reply = await rejoin._begin(node, run_id, b"again", life)
            if reply[0] == 1:
                await rejoin._let_vote(node, read_marker(reply[1]))
            else:
                await admit(rejoin, node, run_id, reply[1], reply[5], *rest)

        return replaced(Rejoin, "_admit", late)


class ReadsOnly(Restarts):
    """A node that reads the others, but does not wait."""

    faults = (faults.CRASH, faults.CUT)
    scales = (1.0,)

    def altered(self) -> AbstractContextManager[object]:
        return replaced(rejoin_module, "DRIFT", 0.0)


class SnapshotForNone(Restarts):
    """A restart from a snapshot is taken for none."""

    memories = ("snapshot",)

    def __init__(self) -> None:
        super().__init__()
        self.options["appendfsync"] = "always"


class MajorityWithoutClock(LostMajority):
    """A node that comes back where a majority was lost, with the highest counter that is left."""

    faults = (faults.CRASH,)
    memories = ("nothing", "snapshot")
    crashes = 12
    turns = 6
    sizes = (3,)
    scales = (0.1,)

    def altered(self) -> AbstractContextManager[object]:
        async def highest(lost: lost_majority.LostMajority, deadline: Any) -> int:
            found = [0]
            for node in lost._table.nodes:
                with suppress(LockError):
                    command = lost._commands.highest
                    found.append((await lost._wire.call(node.index, command, deadline()))[0])
            return max(found)

        return replaced(lost_majority.LostMajority, "highest_anywhere", highest)


class Beside(Hammer):
    """Nodes that do not refuse what conflicts with a lock that several hold."""

    faults = (faults.PAUSE,)
    turns = 20
    refusals: Sequence[bytes] = ()

    def scripts(self) -> dict[bytes, bytes]:
        text = altered = text_of("take_shared")
        for refusal in self.refusals:
            assert refusal in altered
            altered = altered.replace(refusal, refusal.replace(b"if ", b"if false and "))
        return {text: altered}


class ReaderBesideWriter(Beside):
    """Nodes that let readers in beside a writer."""

    refusals = (b"if ms > 0 then\n      local writer",)


class SlotTwice(Beside):
    """Nodes that give a slot to a second holder."""

    refusals = (b"elseif holder or (held",)


class UncleanRedlock(Unclean, CalmRedlock):
    pass


class BeatsOn(CalmRedlock):
    """A heartbeat that set out before the grant tries by itself, after that was given back."""

    clients = (1, 2)
    tasks = (10,)
    locks = (2,)
    turns = 4

    def altered(self) -> AbstractContextManager[object]:
        beat = RedlockBackend._heartbeat

        def on(backend: RedlockBackend, waiter: Waiter, deadline: float) -> Any:
            waiter.granted = False
            return beat(backend, waiter, deadline)

        return replaced(RedlockBackend, "_heartbeat", on)


VARIANTS: dict[str, type[RedlockPlan]] = {
    "heedless": Heedless,
    "unconditional-phase-2": Unconditional,
    "owner-only-phase-2": OwnerOnly,
    "late-reply-counted": LateReply,
    "owner-used-again": OwnerAgain,
    "votes-at-once": AtOnce,
    "waits-only": WaitsOnly,
    "reads-only": ReadsOnly,
    "fewer-reads": FewerReads,
    "rejoin-not-tied": NotTied,
    "snapshot-taken-for-none": SnapshotForNone,
    "majority-without-clock": MajorityWithoutClock,
    "reader-beside-writer": ReaderBesideWriter,
    "slot-twice": SlotTwice,
    "unclean": UncleanRedlock,
    "beats-on": BeatsOn,
}
