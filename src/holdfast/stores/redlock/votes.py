"""Counting the votes of one attempt: a majority, and the token that it can stand for.

*Phase 1.* Each node that grants answers the value at which the hold began there. Once a majority has,
the token T is the highest of these values; an answer that comes after that is never counted.
*Phase 2.* On those counted whose value is below T, the counter is raised to T, if the hold is still the
same one. The grant stands when a majority answered T in phase 1 or confirmed it in phase 2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .membership import Board


class Ballot:
    """The answers of all nodes to one round, in the order in which they come."""

    # Of most rounds there is nothing but this to say.
    lives: Mapping[int, bytes] = {}
    """What counted nodes know of the lives of others."""
    busy: Sequence[int] = ()
    """For how many ms another has it, on each node that said so."""
    refused: Sequence[int] = ()
    """Those nodes: nothing of this round is on its way to them any more."""
    holders: Mapping[bytes, int] = {}
    confirmed: Sequence[int] = ()
    token = 0
    in_step = False
    """All that were counted began at the token: there is nothing to raise."""
    raising = True
    refusal: Exception | None = None

    def __init__(self, board: Board) -> None:
        self._board = board
        self._quorum = board.quorum
        self._life_of = board.lives
        """As they voted: a node that comes back meanwhile does not make an older vote of it newer."""
        self.begins: dict[int, int] = {}
        """By node: the value at which our hold began there; also of answers that came too late."""
        self.counted: list[int] = []
        self.asked = 0
        self.open = True

    def heard(self, index: int, reply: Any) -> bool:
        """An answer to phase 1; True once there is nothing more to wait for."""
        kind = type(reply)
        if kind is int:
            self.begins[index] = reply
            if not self.open:
                return True
            counted = self.counted
            counted.append(index)
            self.asked -= 1
            return len(counted) >= self._quorum or len(counted) + self.asked < self._quorum
        if kind is list and reply[0] >= 0:
            self.begins[index] = reply[0]
        if not self.open:
            return True
        if kind is list:
            if reply[0] < 0:
                self.busy = [*self.busy, reply[1]]
                self.refused = [*self.refused, index]
                self.holders = {**self.holders, reply[2]: self.holders.get(reply[2], 0) + 1}
            else:
                self.lives = {**self.lives, index: reply[1]}
                self.counted.append(index)  # last: another thread may be closing it
        elif self.refusal is None and isinstance(reply, Exception):
            self.refusal = reply
        self.asked -= 1
        granted, quorum = len(self.counted), self._quorum
        return granted >= quorum or granted + self.asked < quorum

    def close(self) -> bool:
        """No answer counts from now on. True if a majority granted; then `token` is chosen."""
        self.open = False
        if self.lives:
            self._drop_superseded()
        if len(self.counted) < self._quorum:
            return False
        begins = [self.begins[index] for index in self.counted]
        self.token = max(begins)
        self.in_step = self.token == min(begins)
        return True

    def below(self) -> list[int]:
        """The counted nodes that have to be raised to the token."""
        return [index for index in self.counted if self.begins[index] < self.token]

    def raised(self, index: int, reply: Any) -> bool:
        """An answer to phase 2; True once there is nothing more to wait for."""
        if not self.raising:
            return True
        self.asked -= 1
        if type(reply) is list:
            self.lives = {**self.lives, index: reply[1]}
            reply = reply[0]
        if reply == 1:
            self.confirmed = [*self.confirmed, index]
        sure = sum(1 for i in self.counted if self.begins[i] == self.token) + len(self.confirmed)
        return sure >= self._quorum or self.asked == 0

    def stands(self) -> bool:
        """Whether a majority is counted, after phase 2. No answer counts from now on."""
        self.raising = False
        if self.in_step and not self.lives:
            return True
        begins, token = self.begins, self.token
        self.counted = [i for i in self.counted if begins[i] == token or i in self.confirmed]
        if self.lives:
            self._drop_superseded()
        return len(self.counted) >= self._quorum

    def _drop_superseded(self) -> None:
        for known in self.lives.values():
            for index in self._board.superseded(known, self.counted, self._life_of):
                # Its vote was cast in an earlier life, which it has forgotten.
                self.counted.remove(index)
                self._board.failed(index, "it has restarted")

    def remaining(self) -> float:
        """Seconds after which so many nodes could be free that there is a majority."""
        missing = self._quorum - len(self.counted)
        times = sorted(self.busy)
        if not times:
            return 0.0
        return max(0, times[min(missing, len(times)) - 1 if missing > 0 else 0]) / 1000

    def held_by_one(self) -> bool:
        """Whether another has a majority: then it makes no sense to try again at once."""
        return any(count >= self._quorum for count in self.holders.values())


class Tally:
    """Answers to a question that is asked of all nodes, for many locks at once: renewals."""

    def __init__(self, count: int, quorum: int, nodes: int) -> None:
        self.yes = [0] * count
        self.no = [0] * count
        self._quorum = quorum
        self._nodes = nodes
        self._undecided = count

    def add(self, which: int, answer: bool) -> None:
        decided = self.decided(which)
        if answer:
            self.yes[which] += 1
        else:
            self.no[which] += 1
        if not decided and self.decided(which):
            self._undecided -= 1

    def decided(self, which: int) -> bool:
        return self.yes[which] >= self._quorum or self.no[which] > self._nodes - self._quorum

    def done(self) -> bool:
        return self._undecided == 0
