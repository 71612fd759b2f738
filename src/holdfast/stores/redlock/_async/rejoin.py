"""The way back of one node: why it does not vote, and the steps after which it does again.

A node that has restarted has forgotten holds, or counters, or both. It comes back in these steps:

1. wait `max_ttl`, timed on the node: every hold that it may have forgotten is over;
2. *then* read the highest counter of a majority of N other nodes that vote, each of which learns in
   the same step that this node has a new incarnation (the seal): a client that still counts a vote of
   the old one is told so;
3. start its counters there, and write the marker, if the node is still in the same incarnation.

The wait protects exclusion, the seal the order of tokens, without any clock.

Where too few others vote to be read, the node comes back by the clock, see `lost_majority`.

*A first start.* Nodes of which none was ever used before start at once, as soon as all of them reply:
first each notes that it is to begin, then which incarnations take part (the *roster*), then all begin.
A start that was interrupted in between is completed by the next client: a voting node that names the
same roster proves that all had noted it, and so that a node which has it noted in this incarnation did
not vote in an earlier one.
"""

from __future__ import annotations

import os
from hashlib import sha256
from threading import Lock
from typing import Any, NamedTuple

from ....errors import BackendUnavailable, ConfigError, LockError
from ....events import warn
from ...redis.wire.refusals import DENIED, code_of, refusal
from ..address import Settings
from ..commands import Commands, members_text
from ..membership import (
    Marker,
    NodeState,
    failure_reason,
    merge_known,
    read_marker,
    run_id_in,
    run_id_of,
)
from ..wire.aio import RedlockWire
from .lost_majority import LostMajority
from .undelivered import Undelivered

DRIFT = 1.02
"""The factor by which a wait is longer, for a node whose clock runs ahead."""


class Rejoin:
    """Brings nodes back, each step by step."""

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
        self._undelivered = undelivered
        self._commands = commands
        self._mutex = Lock()
        self.blank_run_ids: list[bytes] = [b""] * len(wire.table.nodes)
        """By node: the run_id of its server, if it was reached and has no marker at all."""
        self._seen_run_ids: list[bytes] = [b""] * len(wire.table.nodes)
        """By node: the run_id of its server, if it was reached when last tried."""
        self._is_start_over = False
        """True once a first start was found that cannot be completed: the nodes come back instead."""
        self._lost_majority = LostMajority(settings, wire, commands)

    def _deadline(self) -> float:
        """Returns the moment until which a node has to reply to one request."""
        return self._clock.now() + self._settings.patience

    async def step(self, node: NodeState) -> float | None:
        """Takes the next step of `node`. Returns when the one after it is due, where that is known."""
        votes: Marker | None
        try:
            run_id, marker = await self._find(node)
            if marker is not None and (
                marker.incarnation.startswith(run_id) or self._settings.durable
            ):
                votes, rest = marker, []
            else:
                # A node that refuses this takes no part in a start, as if it could not be reached.
                state, *rest = await self._begin(node, run_id, b"again")
                votes = read_marker(rest[0]) if state == 1 else None
        except LockError:
            self.blank_run_ids[node.index] = b""
            self._lost_majority.note_unreachable(node)
            raise
        if votes is not None:
            await self._let_vote(node, votes)
            return None
        if marker is None:
            self.blank_run_ids[node.index] = run_id
            unused = all(self.blank_run_ids) and not self._table.voting_count()
            if unused and not self._is_start_over:
                return await self._first_start(node)
        return await self._rejoin(node, run_id, marker, rest)

    async def _find(self, node: NodeState) -> tuple[bytes, Marker | None]:
        """Returns the run_id and the marker of a node that can be asked, and has our scripts."""
        try:
            info, text, scripts = await self._wire.reach(node.index, self._deadline())
        except LockError:
            self._seen_run_ids[node.index] = b""
            raise
        self._check_replies(node, [info, text, scripts])
        run_id = run_id_of(info)
        if not run_id:
            raise BackendUnavailable("its reply to INFO server has no run_id")
        self._check_alone(node, run_id)
        if not all(scripts):
            loads = self._commands.loads
            replies = await self._wire.call_many(node.index, loads, self._deadline())
            self._check_replies(node, replies)
        marker = None if text is None else read_marker(text)
        if marker is not None:
            self.blank_run_ids[node.index] = b""
            self._check_marker(marker)
        return run_id, marker

    def _check_replies(self, node: NodeState, replies: list[Any]) -> None:
        """Raises if one of `replies` is an error."""
        for reply in replies:
            if isinstance(reply, Exception):
                self._check_permission(node, reply)
                raise BackendUnavailable(f"it refuses: {reply}")

    def _check_permission(self, node: NodeState, error: Exception) -> None:
        """Raises ConfigError if `error` says that we are not let in, or may not do something."""
        if code_of(error) in DENIED:
            self._seen_run_ids[node.index] = b""
            raise refusal(error, self._settings.addresses[node.index])

    def is_reached(self, index: int) -> bool:
        """Returns whether the node let us in when it was last tried."""
        return bool(self._seen_run_ids[index])

    async def _let_vote(self, node: NodeState, marker: Marker) -> None:
        """Counts on the node's vote from now on, and tells it what it has missed."""
        run_id = self._wire.run_id(node.index)
        if not (marker.incarnation.startswith(run_id) or self._settings.durable):
            raise BackendUnavailable("it has restarted meanwhile")
        self.blank_run_ids[node.index] = b""
        self._lost_majority.note_vote(node)
        self._wire.read_late_replies()  # they may show that it has missed more
        node.let_vote(marker)
        await self._undelivered.deliver(node)

    def _check_alone(self, node: NodeState, run_id: bytes) -> None:
        """Raises if another node is the same server."""
        with self._mutex:
            self._seen_run_ids[node.index] = run_id
            same = [
                other.name
                for other in self._table.nodes
                if self._seen_run_ids[other.index] == run_id
            ]
        if len(same) > 1:
            raise ConfigError(
                f"{' and '.join(same)} are the same server; each node has one vote, so name each once"
            )

    def _check_marker(self, marker: Marker) -> None:
        """Raises if the node was set up for other settings than ours."""
        mine = members_text(self._settings.members)
        if marker.members != mine:
            raise ConfigError(
                f"these nodes were set up as {marker.members.decode()}, and this client names them "
                f"{mine.decode()}; all clients have to name the same nodes by the same addresses"
            )
        if abs(marker.max_ttl / 1000 - self._settings.max_ttl) > 0.01:
            raise ConfigError(
                f"these nodes were set up with max_ttl={marker.max_ttl / 1000:g}, and this client has "
                f"{self._settings.max_ttl:g}; it has to be the same for all clients"
            )

    async def _rejoin(
        self, node: NodeState, run_id: bytes, marker: Marker | None, begun: list[Any]
    ) -> float | None:
        """Takes the next step of a node that was in use before. `begun`: how far it has come."""
        incarnation, elapsed, how, micros, life, roster = begun
        self._lost_majority.note_out(node, marker is None)
        if how == b"first" and roster and not life:
            for other in self._table.nodes:
                if other.roster == roster:
                    await self._admit(node, run_id, incarnation, 1, other.base, b"", roster)
                    return None
        wait = self._settings.max_ttl * DRIFT - elapsed / 1000
        if wait > 0:
            until: float = self._clock.now() + wait
            node.put_out(self._lost_majority.reason_to_wait(marker), until)
            return until
        others = [other for other in self._table.nodes if other.incarnation and other is not node]
        sealed = await self._seal(node, others, life)
        alone = len(sealed) < self._table.quorum
        if alone:
            wait += self._settings.max_ttl * DRIFT
            moment = self._lost_majority.moment_to_return(node, len(sealed), wait)
            if moment is not None:
                return moment
        if life == 0:
            # Above every life in which the node has voted: each was sealed on a majority, too, or came
            # from the clock. Other clients may help the node at the same time: it says itself whose
            # number counts, in the next step.
            earlier = [one.known_before for one in sealed]
            life = max([1, *earlier, marker.life if marker is not None else 1]) + 1
            await self._begin(node, run_id, b"again", max(life, micros // 1000))
            return self._clock.now()
        # With the lives of the nodes that were read: of two nodes that come back at the same time, the
        # second might otherwise not know of the first, and old votes of that would count beside it.
        lives = [f"{one.name}={one.life}".encode() for one in sealed]
        known = merge_known([*(one.known for one in sealed), *lives])
        if alone:
            base = await self._lost_majority.highest_anywhere(self._deadline)
            known = merge_known([known, marker.known if marker is not None else b""])
            warn(
                f"the node {node.name} comes back by the clock, since too few others vote to say what "
                f"the highest token was; its counters start at {base}"
            )
        else:
            base = max(one.highest for one in sealed)
        await self._admit(node, run_id, incarnation, life, base, known)
        return None

    async def _begin(
        self, node: NodeState, run_id: bytes, how: bytes, life: int = 0, roster: bytes = b""
    ) -> Any:
        """Has the node note that it begins to come back, and returns its reply; see begin.lua."""
        incarnation = run_id + b"." + os.urandom(6).hex().encode()
        command = self._commands.begin(run_id, incarnation, how, life, roster)
        return await self._ask(node, command, run_id)

    async def _ask(self, node: NodeState, command: bytes, run_id: bytes) -> Any:
        """Returns the node's reply to a step on its way back. Raises ConfigError if we may not ask."""
        try:
            return await self._wire.call(node.index, command, self._deadline(), run_id)
        except BackendUnavailable as error:
            self._check_permission(node, error)
            raise

    async def _seal(self, node: NodeState, others: list[NodeState], life: int) -> list[SealReply]:
        """Tells `others` of the node's new life; 0: only reads them. Returns the replies that come."""
        replies: list[SealReply] = []
        for other in others:
            incarnation, other_life = other.incarnation, other.life
            if not incarnation:
                continue  # it has gone out meanwhile
            command = self._commands.seal(incarnation, node.name, life)
            try:
                # Not from a later run of its server, whose snapshot has the marker of that incarnation.
                run_id = b"" if self._settings.durable else run_id_in(incarnation)
                reply = await self._wire.call(other.index, command, self._deadline(), run_id)
                replies.append(SealReply(other.name, other_life, *reply))
            except LockError as error:
                self._table.report_failure(other.index, failure_reason(error))
        return replies

    async def _admit(
        self,
        node: NodeState,
        run_id: bytes,
        incarnation: bytes,
        life: int,
        base: int,
        known: bytes,
        roster: bytes = b"",
    ) -> None:
        """Has the node vote from now on, with counters that start at `base`."""
        settings = self._settings
        command = self._commands.admit(
            run_id, incarnation, life, base, settings.max_ttl, settings.members, known, roster
        )
        state, *rest = await self._ask(node, command, run_id)
        if state != 1:
            raise BackendUnavailable("it has restarted again")
        await self._let_vote(node, read_marker(rest[0]))

    async def _first_start(self, node: NodeState) -> float | None:
        """Starts nodes of which none has ever voted. The routine of the first one does so for all."""
        nodes = self._table.nodes
        if node is not nodes[0]:
            node.put_out("the nodes are being used for the first time")
            return None
        run_ids = list(self.blank_run_ids)
        began: list[Any] = []
        for other in nodes:
            reply = await self._begin(other, run_ids[other.index], b"first")
            if reply[0] == 1:
                return None  # another client is ahead of us: start over
            if reply[5]:
                # It was about to come back, with a number for its new life, when the others lost
                # their data, too.
                self._is_start_over = True
                return None
            began.append(reply)
        if self._settings.wait_when_fresh:
            wait = self._settings.max_ttl * DRIFT - min(reply[2] for reply in began) / 1000
            if wait > 0:
                until: float = self._clock.now() + wait
                for other in nodes:
                    other.put_out("the nodes are used for the first time, with fresh='wait'", until)
                return until
        incarnations = sorted(reply[1] for reply in began)
        roster = sha256(b" ".join(incarnations)).hexdigest()[:16].encode()
        for other, noted in zip(nodes, began, strict=True):
            reply = await self._begin(other, run_ids[other.index], b"first", 0, roster)
            if reply[0] == 1:
                return None
            if reply[1] != noted[1] or reply[6] != roster:
                # With nodes of which some have restarted since. Who has noted that may still vote.
                self._is_start_over = True
                return None
        # All counters start at the same number, by the clock that is furthest ahead.
        base = max(reply[4] for reply in began)
        for other, reply in zip(nodes, began, strict=True):
            await self._admit(other, run_ids[other.index], reply[1], 1, base, b"", roster)
        return None


class SealReply(NamedTuple):
    """The reply of a voting node that has learned of another's new life."""

    name: str
    life: int
    highest: int
    """The highest of its counters."""
    known_before: int
    """The life of the other node that it knew before."""
    known: bytes
    """The lives of all nodes that it knows of."""
