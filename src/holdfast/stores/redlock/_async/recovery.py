"""Looking after the nodes that do not vote: reach them, find out why, and bring them back in order.

A node that has restarted has forgotten holds, or counters, or both. It comes back in these steps:

1. wait `max_ttl`, timed on the node: every hold that it may have forgotten is over;
2. *then* read the highest counter of a majority of N other nodes that vote, each of which learns in
   the same step that this one has a new life (the seal): whoever still counts a vote of the old one is
   told so;
3. start its counters there, and write the marker, if it is still in the same life.

The wait protects exclusion, the seal the order of tokens, without any clock. Nodes of which none was
ever used before start at once, once all of them answer: first each notes that it is to begin, then
which lives of the nodes take part (the *roster*), then each begins. A start that was interrupted in
between is completed by whoever comes next: one that votes and names the same roster proves that all
had noted it, and so that one which has it noted in this life did not vote in an earlier one.
"""

from __future__ import annotations

import os
from hashlib import sha256
from threading import Lock
from typing import Any, NamedTuple

from ...._runtime.aio import Routine, Signal
from ....clock import Clock
from ....errors import BackendUnavailable, ConfigError, LockError
from ....events import report
from ..commands import Commands, members_text
from ..members import Settings
from ..membership import Board, Marker, Seat, merge_known, read_marker, run_id_in, run_id_of
from ..wire.aio import Fan
from .undelivered import Owed

SHORTEST_PAUSE, LONGEST_PAUSE = 0.02, 1.0
DRIFT = 1.02
TROUBLE = 2.0
"""Seconds for which a majority may be missing before that is said."""


class Nodes:
    def __init__(
        self,
        settings: Settings,
        board: Board,
        fan: Fan,
        owed: Owed,
        commands: Commands,
        clock: Clock,
    ) -> None:
        self._settings = settings
        self._owed = owed
        self._board = board
        self._fan = fan
        self._commands = commands
        self._clock = clock
        self._mutex = Lock()
        self._signals: dict[int, Signal] = {}
        self._routines: dict[int, Routine] = {}
        self._run_ids: list[bytes] = [b""] * len(board.seats)
        """Of those that were reached and have no marker at all."""
        self._runs: list[bytes] = [b""] * len(board.seats)
        """Of all that were reached when they were last looked for."""
        self._refusal: ConfigError | None = None
        self._closed = False
        self._opened = Signal(clock)
        self._hoping: dict[Signal, None] = {}
        """Of those who wait for a majority: they look whenever a node may have changed."""
        board.on_out = self.look_after

    async def open(self, deadline: float) -> None:
        """Until all nodes vote; or a majority does, and the others had their chance."""
        self.look_after()
        seats = self._board.seats
        grace = self._clock.now() + self._settings.node_timeout
        while True:
            self.check()
            voting = self._board.voting()
            now = self._clock.now()
            if voting == len(seats) or (voting >= self._board.quorum and now >= grace):
                return
            if now >= deadline:
                out = "; ".join(self._board.out())
                raise BackendUnavailable(
                    f"{voting} of {len(seats)} nodes vote, and {self._board.quorum} are needed: {out}"
                )
            await self._opened.wait(min(deadline, grace) if now < grace else deadline)

    def check(self) -> None:
        """Raise, if the nodes were set up for something else than what we were told."""
        if self._refusal is not None:
            raise self._refusal

    async def majority(self, deadline: float) -> None:
        """Wait for a moment until a majority votes, or raise."""
        if self._board.voting() >= self._board.quorum:
            return
        until = min(deadline, self._clock.now() + TROUBLE)
        signal = Signal(self._clock)
        self._hoping[signal] = None
        try:
            while self._board.voting() < self._board.quorum:
                self._fan.check()
                self.check()
                if self._closed or self._clock.now() >= until:
                    raise self.unavailable("no majority of the nodes votes", None)
                await signal.wait(until)
        finally:
            self._hoping.pop(signal, None)

    def unavailable(self, what: str, name: str | None) -> BackendUnavailable:
        seats = self._board.seats
        out = "; ".join(self._board.out()) or "all of them vote now"
        return BackendUnavailable(
            f"{what}: {self._board.voting()} of {len(seats)} nodes vote, and {self._board.quorum} are "
            f"needed ({out})",
            name=name,
        )

    async def call(self, index: int, command: bytes, deadline: float) -> Any:
        return await self._fan.call(index, command, deadline)

    def look_after(self) -> None:
        """Each node that does not vote gets somebody who sees to it, until it does."""
        for seat in self._board.seats:
            with self._mutex:
                if seat.vote or self._closed or seat.index in self._routines:
                    continue
                self._signals[seat.index] = Signal(self._clock)
                self._routines[seat.index] = Routine(
                    lambda seat=seat: self._tend(seat),  # type: ignore[misc]
                    "holdfast-redlock-node",
                )

    async def close(self) -> None:
        with self._mutex:
            self._closed = True
            routines = list(self._routines.values())
            signals = list(self._signals.values())
        for signal in signals:
            signal.set()
        self._let_look()
        for routine in routines:
            await routine.join()

    def _let_look(self) -> None:
        for signal in list(self._hoping):
            signal.set()

    # One node.

    async def _tend(self, seat: Seat) -> None:
        pause = SHORTEST_PAUSE
        while not self._closed:
            until: float | None = None
            before = (seat.vote, self._run_ids[seat.index])
            try:
                until = await self._bring_back(seat)
            except ConfigError as error:
                seat.is_out(str(error))
                self._refusal = error
            except LockError as error:
                seat.is_out(str(error))
            except Exception as error:
                # Whatever it was, this has to go on: without it the node would never vote again.
                seat.is_out(repr(error))
                report(f"looking after the node {seat.name} failed", error)
            self._opened.set()
            self._let_look()
            if before != (seat.vote, self._run_ids[seat.index]):
                for other in list(self._signals.values()):
                    other.set()  # what they can do may depend on it
            with self._mutex:
                if seat.vote or self._closed:
                    self._routines.pop(seat.index, None)
                    self._signals.pop(seat.index, None)
                    return
                signal = self._signals[seat.index]
            now = self._clock.now()
            if until is None:
                until = now + pause * (0.75 + os.urandom(1)[0] / 512)
            # Not for longer than this: it may restart, or be brought back by another client.
            limit = LONGEST_PAUSE if self._board.voting() >= self._board.quorum else pause
            pause = min(pause * 2, LONGEST_PAUSE)
            await signal.wait(min(until, now + limit))

    def _deadline(self) -> float:
        return self._clock.now() + self._settings.patience

    async def _bring_back(self, seat: Seat) -> float | None:
        """One step; answers when the next one is due, where that is known."""
        try:
            info, text, scripts = await self._fan.reach(seat.index, self._deadline())
        except LockError:
            self._run_ids[seat.index] = self._runs[seat.index] = b""
            raise
        _check_answers([info, text, scripts])
        run_id = run_id_of(info)
        if not run_id:
            raise BackendUnavailable("it does not say its run_id (INFO server)")
        self._check_alone(seat, run_id)
        if not all(scripts):
            _check_answers(
                await self._fan.batch(seat.index, self._commands.loads, self._deadline())
            )
        marker = None if text is None else read_marker(text)
        if marker is not None:
            self._run_ids[seat.index] = b""
            self._check_marker(marker)
            if marker.incarnation.startswith(run_id) or self._settings.durable:
                await self._votes(seat, marker)
                return None
        else:
            self._run_ids[seat.index] = run_id
            if all(self._run_ids) and not self._board.voting():
                return await self._first_start(seat)
        return await self._rejoin(seat, run_id, marker)

    async def _votes(self, seat: Seat, marker: Marker) -> None:
        run_id = self._fan.run_id(seat.index)
        if not (marker.incarnation.startswith(run_id) or self._settings.durable):
            raise BackendUnavailable("it has restarted meanwhile")
        self._run_ids[seat.index] = b""
        self._fan.catch_up()  # what it is owed may not be known yet
        seat.votes(marker)
        await self._owed.settle(seat)

    def _check_alone(self, seat: Seat, run_id: bytes) -> None:
        with self._mutex:
            self._runs[seat.index] = run_id
            same = [other.name for other in self._board.seats if self._runs[other.index] == run_id]
        if len(same) > 1:
            raise ConfigError(
                f"{' and '.join(same)} are one and the same server; each node has one vote, so name "
                "each once"
            )

    def _check_marker(self, marker: Marker) -> None:
        mine = members_text(self._settings.members)
        if marker.members != mine:
            raise ConfigError(
                f"these nodes were set up as {marker.members.decode()}, and are named here as "
                f"{mine.decode()}; all clients have to name the same nodes by the same addresses"
            )
        if abs(marker.max_ttl / 1000 - self._settings.max_ttl) > 0.01:
            raise ConfigError(
                f"these nodes were set up with max_ttl={marker.max_ttl / 1000:g}, and this client has "
                f"{self._settings.max_ttl:g}; it has to be the same for all clients"
            )

    async def _rejoin(self, seat: Seat, run_id: bytes, marker: Marker | None) -> float | None:
        """The steps for one that was in use before."""
        state, *rest = await self._begin(seat, run_id, b"again")
        if state == 1:
            await self._votes(seat, read_marker(rest[0]))
            return None
        incarnation, elapsed, how, _, life, roster = rest
        if how == b"first" and roster and not life:
            for other in self._board.seats:
                if other.roster == roster:
                    await self._admit(seat, run_id, incarnation, 1, other.base, b"", roster)
                    return None
        others = [other for other in self._board.seats if other.vote and other is not seat]
        wait = self._settings.max_ttl * DRIFT - elapsed / 1000
        if wait > 0:
            until: float = self._clock.now() + wait
            seat.is_out("it has restarted, and may have forgotten locks that are still held", until)
            return until
        if life == 0:
            # Above every life in which it has voted: each of those was sealed on a majority, too.
            # Others may be helping it at the same time: the node itself says whose number counts.
            earlier = [one.known_before for one in await self._seal(seat, others, 0)]
            life = max([1, *earlier, marker.life if marker is not None else 1]) + 1
            reply = await self._begin(seat, run_id, b"again", life)
            if reply[0] == 1 or reply[1] != incarnation:
                return None  # it votes by now, or has begun anew: look again
            life = reply[5]
        sealed = await self._seal(seat, others, life)
        base = max(one.highest for one in sealed)
        # Also in which lives they were that we have read: of two that come back at the same time, the
        # second may otherwise not know of the first, and old votes of that would count beside it.
        lives = [f"{one.name}={one.life}".encode() for one in sealed]
        known = merge_known([*(one.known for one in sealed), *lives])
        await self._admit(seat, run_id, incarnation, life, base, known)
        return None

    async def _begin(
        self, seat: Seat, run_id: bytes, how: bytes, life: int = 0, roster: bytes = b""
    ) -> Any:
        incarnation = run_id + b"." + os.urandom(6).hex().encode()
        command = self._commands.begin(run_id, incarnation, how, life, roster)
        return await self._fan.call(seat.index, command, self._deadline(), run_id)

    async def _seal(self, seat: Seat, others: list[Seat], life: int) -> list[Sealed]:
        """On a majority of N of those that vote, or not at all."""
        quorum = self._board.quorum
        replies: list[Sealed] = []
        for other in others:
            vote, other_life = other.vote, other.life
            if not vote:
                continue  # it has gone out meanwhile
            command = self._commands.seal(vote, seat.name, life)
            try:
                # Not from a later run of its server, whose snapshot has the marker of that vote.
                run_id = b"" if self._settings.durable else run_id_in(vote)
                reply = await self._fan.call(other.index, command, self._deadline(), run_id)
                replies.append(Sealed(other.name, other_life, *reply))
            except LockError as error:
                self._board.failed(other.index, str(error))
        if len(replies) < quorum:
            raise BackendUnavailable(
                f"it has restarted, and can only come back when {quorum} others vote; {len(replies)} "
                "do. If they have restarted, too, they cannot say what the highest token was; to start "
                f"anew stop all clients and delete {self._commands.of_nodes} on all nodes"
            )
        return replies

    async def _admit(
        self,
        seat: Seat,
        run_id: bytes,
        incarnation: bytes,
        life: int,
        base: int,
        known: bytes,
        roster: bytes = b"",
    ) -> None:
        settings = self._settings
        command = self._commands.admit(
            run_id, incarnation, life, base, settings.max_ttl, settings.members, known, roster
        )
        state, *rest = await self._fan.call(seat.index, command, self._deadline(), run_id)
        if state != 1:
            raise BackendUnavailable("it has restarted again")
        await self._votes(seat, read_marker(rest[0]))

    async def _first_start(self, seat: Seat) -> float | None:
        """None of them has ever voted. The first one's keeper sees to all of them."""
        seats = self._board.seats
        if seat is not seats[0]:
            seat.is_out("the nodes are being used for the first time")
            return None
        run_ids = list(self._run_ids)
        began: list[Any] = []
        for other in seats:
            reply = await self._begin(other, run_ids[other.index], b"first")
            if reply[0] == 1:
                return None  # another client is ahead of us; we shall see
            began.append(reply)
        if self._settings.wait_when_fresh:
            wait = self._settings.max_ttl * DRIFT - min(reply[2] for reply in began) / 1000
            if wait > 0:
                until: float = self._clock.now() + wait
                for other in seats:
                    other.is_out("the nodes are used for the first time, with fresh='wait'", until)
                return until
        lives = sorted(reply[1] for reply in began)
        roster = sha256(b" ".join(lives)).hexdigest()[:16].encode()
        for other, noted in zip(seats, began, strict=True):
            reply = await self._begin(other, run_ids[other.index], b"first", 0, roster)
            if reply[0] == 1:
                return None
            if reply[1] != noted[1] or reply[6] != roster:
                raise BackendUnavailable(
                    f"{other.name} was to start with other lives of the nodes, some of which are over; "
                    f"to start anew stop all clients and delete {self._commands.of_nodes} on all nodes"
                )
        # All counters start at the same number, by the clock that is furthest ahead.
        base = max(reply[4] for reply in began)
        for other, reply in zip(seats, began, strict=True):
            await self._admit(other, run_ids[other.index], reply[1], 1, base, b"", roster)
        return None


class Sealed(NamedTuple):
    """What a node that votes answered when it learned of another's new life."""

    name: str
    life: int
    highest: int
    known_before: int
    """The number of that life before."""
    known: bytes


def _check_answers(replies: list[Any]) -> None:
    for reply in replies:
        if isinstance(reply, Exception):
            raise BackendUnavailable(f"it refuses: {reply}")
