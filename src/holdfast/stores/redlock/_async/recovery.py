"""Recovery: nodes that do not vote are looked after in the background until they do.

The steps of one node are in `rejoin`. Here are the routines that take them, one for each node that is
out, and the callers that wait until a majority votes.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from threading import Lock
from types import MappingProxyType

from ...._runtime.aio import Routine, Signal
from ....errors import BackendUnavailable, ConfigError, LockError
from ....events import report
from ..address import Settings
from ..commands import Commands
from ..membership import NodeState, is_refusal
from ..votes import refused_error
from ..wire.aio import RedlockWire
from .rejoin import Rejoin
from .undelivered import Undelivered

SHORTEST_PAUSE, LONGEST_PAUSE = 0.02, 1.0
"""Seconds between two tries to bring a node back."""
MAJORITY_PATIENCE = 2.0
"""Seconds for which a majority may be missing before a caller is told."""
JOIN_LIMIT = 0.5
"""Seconds in which a routine ends that is told to. One that waits for a name, or for a connection, in
blocking code is left behind: it finds that all is over when it has got that, or not."""

NO_ERRORS: Mapping[int, Exception] = MappingProxyType({})


class Recovery:
    """The routines that look after nodes."""

    def __init__(
        self,
        settings: Settings,
        wire: RedlockWire,
        undelivered: Undelivered,
        commands: Commands,
    ) -> None:
        self._settings = settings
        self._wire = wire
        self._table, self._clock = wire.table, wire.clock
        self._rejoin = Rejoin(settings, wire, undelivered, commands)
        self._mutex = Lock()
        self._signals: dict[int, Signal] = {}
        self._routines: dict[int, Routine] = {}
        self._refusals: dict[int, tuple[ConfigError, bool]] = {}
        """By node that refuses our settings, or does not let us in: why, and whether it let us in."""
        self._closed = False
        self._opened = Signal(wire.clock)
        self._majority_signals: dict[Signal, None] = {}
        """The signals of callers that wait for a majority, set whenever a node may have changed."""
        wire.table.on_out = self.look_after

    async def open(self, deadline: float) -> None:
        """Waits until all nodes vote; or a majority does, and the others had their chance."""
        self.look_after()
        nodes = self._table.nodes
        grace = self._clock.now() + self._settings.node_timeout
        while True:
            self._check_refusal()
            voting = self._table.voting_count()
            now = self._clock.now()
            if voting == len(nodes) or (voting >= self._table.quorum and now >= grace):
                return
            if now >= deadline:
                out = "; ".join(self._table.describe_out())
                raise BackendUnavailable(
                    f"{voting} of {len(nodes)} nodes vote, and {self._table.quorum} are needed: {out}"
                )
            await self._opened.wait(min(deadline, grace) if now < grace else deadline)

    def _check_refusal(self) -> None:
        """Raises ConfigError if a node was set up for other settings than ours, or if too many do not
        let us in for a majority to vote."""
        refusals = list(self._refusals.values())
        few = len(refusals) <= len(self._table.nodes) - self._table.quorum
        for refusal, let_in in refusals:
            if not few or let_in:
                raise refusal

    async def wait_for_majority(self, deadline: float) -> None:
        """Returns once a majority votes; raises if that takes too long."""
        self._wire.drop_hung_up()
        await self._wait_for_votes(self._table.quorum, deadline)

    async def wait_for_reconnection(self, deadline: float) -> None:
        """Returns once all nodes vote again whose connections had been closed while they were idle, and
        a majority does; or when that takes too long."""
        votes = max(self._table.voting_count(), self._table.quorum)
        self._wire.drop_hung_up()
        with suppress(BackendUnavailable):
            moment = self._clock.now() + self._settings.node_timeout
            await self._wait_for_votes(votes, min(deadline, moment))

    async def _wait_for_votes(self, count: int, deadline: float) -> None:
        """Returns once `count` nodes vote; raises if that takes too long."""
        if self._table.voting_count() >= count:
            return
        until = min(deadline, self._clock.now() + MAJORITY_PATIENCE)
        signal = Signal(self._clock)
        self._majority_signals[signal] = None
        try:
            while self._table.voting_count() < count:
                self._wire.check_open()
                self._check_refusal()
                if self._closed or self._clock.now() >= until:
                    raise self.unavailable_error("no majority of the nodes votes", None)
                await signal.wait(until)
        finally:
            self._majority_signals.pop(signal, None)

    def unavailable_error(
        self, what: str, name: str | None, errors: Mapping[int, Exception] = NO_ERRORS
    ) -> BackendUnavailable | ConfigError:
        """Returns the error for `what`, with what was missing and the nodes that are out; or with what
        nodes have refused, if that is among `errors`."""
        table = self._table
        refusals = {index: error for index, error in errors.items() if is_refusal(error)}
        if refusals:
            return refused_error(table, refusals, what, name)
        count, voting = len(table.nodes), table.voting_count()
        out = "; ".join(table.describe_out())
        if voting < table.quorum:
            why = f"{voting} of {count} nodes vote, and {table.quorum} are needed ({out})"
        else:
            # Enough of them vote, perhaps again: they were too slow, or we were.
            why = (
                f"{table.quorum} of {count} nodes have to answer, each within the node_timeout of "
                f"{table.node_timeout:g} s"
            )
            why += f" ({out})" if out else ""
        return BackendUnavailable(f"{what}: {why}", name=name)

    def look_after(self) -> None:
        """Starts a routine for each node that does not vote and has none."""
        for node in self._table.nodes:
            with self._mutex:
                if node.incarnation or self._closed or node.index in self._routines:
                    continue
                self._signals[node.index] = Signal(self._clock)
                self._routines[node.index] = Routine(
                    lambda node=node: self._look_after(node),  # type: ignore[misc]
                    "holdfast-redlock-node",
                )

    async def close(self) -> None:
        """Ends all routines, as far as they can be, and fails the callers that wait for a majority."""
        with self._mutex:
            self._closed = True
            routines = list(self._routines.values())
            signals = list(self._signals.values())
        for signal in signals:
            signal.set()
        self._wake_callers()
        until = self._clock.now() + JOIN_LIMIT
        for routine in routines:
            await routine.join(until - self._clock.now())

    def _wake_callers(self) -> None:
        for signal in list(self._majority_signals):
            signal.set()

    async def _look_after(self, node: NodeState) -> None:
        """Takes one step after the other until the node votes."""
        pause = SHORTEST_PAUSE
        while not self._closed:
            until: float | None = None
            before = (node.incarnation, self._rejoin.blank_run_ids[node.index])
            refusal: ConfigError | None = None
            try:
                until = await self._rejoin.step(node)
            except LockError as error:
                node.put_out(str(error))
                if isinstance(error, ConfigError):
                    refusal = error
                    self._refusals[node.index] = refusal, self._rejoin.is_reached(node.index)
            except Exception as error:
                # Whatever it was, the routine goes on: without it the node would never vote again.
                node.put_out(repr(error))
                report(f"looking after the node {node.name} failed", error)
            if refusal is None:
                self._refusals.pop(node.index, None)
            self._opened.set()
            self._wake_callers()
            if before != (node.incarnation, self._rejoin.blank_run_ids[node.index]):
                for other in list(self._signals.values()):
                    other.set()  # the next step of other nodes may depend on this one
            with self._mutex:
                if node.incarnation or self._closed:
                    self._routines.pop(node.index, None)
                    self._signals.pop(node.index, None)
                    return
                signal = self._signals[node.index]
            now = self._clock.now()
            if until is None:
                until = now + pause * (0.75 + os.urandom(1)[0] / 512)
            # Not for longer than `limit`: the node may restart, or be brought back by another client.
            voting = self._table.voting_count()
            limit = LONGEST_PAUSE if voting >= self._table.quorum else pause
            pause = min(pause * 2, LONGEST_PAUSE)
            await signal.wait(min(until, now + limit))
