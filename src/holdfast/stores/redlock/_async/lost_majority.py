"""A majority lost: too few nodes vote that could say what the highest token was.

They have restarted as well, or cannot be reached. Then a node comes back *by the clock*: after the same
wait as always, with counters that start at the highest counter that any node still knows, or at the
clock in µs if that is higher. Every counter once started at the clock, and rises by one per grant; so
that is above every token handed out, unless the clocks went back. Exclusion rests on the wait.

Where so many nodes are out in their present run that no majority votes anywhere, the node comes back as
soon as it has waited. Otherwise others may vote that this client cannot reach; it waits as long again,
in case a client that reaches them brings it back by reading. A client that is wrong about this does no
harm: all that has to be true is that the clock is above the counters.

A node's last life may be forgotten, too. So the number of *each* new life is at least the clock in ms.
"""

from __future__ import annotations

from collections.abc import Callable

from ....errors import BackendUnavailable, LockError
from ..address import Settings
from ..commands import Commands
from ..membership import Marker, NodeState
from ..wire.aio import RedlockWire

UNKNOWN, BLANK, OUT, UNREACHABLE = range(4)
"""The findings: a node that votes or was not asked yet; one that does not vote in its present run, and
has no marker, or an earlier one; one that cannot be asked."""


class LostMajority:
    """The findings about nodes that do not vote, and the way back where these are a majority."""

    def __init__(self, settings: Settings, wire: RedlockWire, commands: Commands) -> None:
        self._settings = settings
        self._wire = wire
        self._table, self._clock = wire.table, wire.clock
        self._commands = commands
        self._findings = [UNKNOWN] * len(wire.table.nodes)
        """The finding about each node, from when it was last asked."""

    def note_vote(self, node: NodeState) -> None:
        """Notes that the node votes."""
        self._findings[node.index] = UNKNOWN

    def note_out(self, node: NodeState, is_blank: bool) -> None:
        """Notes that the node does not vote in its present run."""
        self._findings[node.index] = BLANK if is_blank else OUT

    def note_unreachable(self, node: NodeState) -> None:
        """Notes that the node cannot be asked."""
        self._findings[node.index] = UNREACHABLE

    def reason_to_wait(self, marker: Marker | None) -> str:
        """Returns why a node does not vote that has this marker from an earlier run, or none."""
        if marker is not None or OUT in self._findings or self._table.voting_count():
            return "it has restarted, and may have forgotten locks that are still held"
        missing = self._names_of_unreachable() or "some of them"
        return (
            "it was never used, or has lost its data; nodes that were never used start as soon as all "
            f"{len(self._findings)} reply, and {missing} cannot be reached, or restarted meanwhile"
        )

    def moment_to_return(self, node: NodeState, voters: int, wait: float) -> float | None:
        """Returns the moment at which the node may come back by the clock; None: at once.

        `wait` are the seconds that it waits for others that may vote. Raises if it may not come back
        so, or if another node was not asked yet.
        """
        quorum, findings = self._table.quorum, self._findings
        few = f"it has restarted, and {voters} others vote of the {quorum} that have to be read"
        if self._settings.stop_when_lost:
            raise BackendUnavailable(
                f"{few}. If others have restarted, too, nobody can say what the highest token was, and "
                "majority_lost='stop' leaves that to you: to come back by the clock, connect once "
                "without this option"
            )
        for other in self._table.nodes:
            if not other.incarnation and findings[other.index] == UNKNOWN:
                raise BackendUnavailable(few)  # so far
        if findings.count(OUT) + findings.count(BLANK) > len(findings) - quorum or wait <= 0:
            return None
        until: float = self._clock.now() + wait
        node.put_out(f"{few}; {self._names_of_unreachable()} cannot be reached", until)
        return until

    async def highest_anywhere(self, deadline: Callable[[], float]) -> int:
        """Returns the highest counter or clock, in µs, of all nodes that can be asked."""
        highest = 0
        for node in self._table.nodes:
            try:
                reply = await self._wire.call(node.index, self._commands.highest, deadline())
            except LockError:
                continue  # the clocks of the others stand for what it knew
            highest = max(highest, *reply)
        return highest

    def _names_of_unreachable(self) -> str:
        nodes = self._table.nodes
        return " and ".join(
            node.name for node in nodes if self._findings[node.index] == UNREACHABLE
        )
