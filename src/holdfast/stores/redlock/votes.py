"""The votes of one round: whether they are a majority, and the token that it agrees upon.

*Phase 1.* Each node that grants the lock returns the value at which the hold began there. Once a
majority has, the token T is the highest of these values; a reply that comes later is never counted.
*Phase 2.* On each counted node whose value is below T, the counter is raised to T, if its hold is still
the same one. The grant stands when a majority returned T in phase 1 or confirmed it in phase 2.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from ...errors import BackendUnavailable, ConfigError
from ..redis.wire.refusals import DENIED, code_of, reason_of
from .membership import NodeTable

OTHER_KIND = -2
"""The first word of a refusal by a node on which the lock is in use as another kind."""
SEVERAL = b"*"
"""The word for the holders of a lock that several hold, where they leave no room."""


def refused_error(
    table: NodeTable, errors: Mapping[int, Exception], what: str, name: str | None = None
) -> BackendUnavailable | ConfigError:
    """Returns the error for `what`, with why nodes did not do as they were asked.

    It is a matter of permissions if no majority would be left without the nodes that deny us something.
    """
    nodes = table.nodes
    reasons = "; ".join(
        f"{nodes[index].name}: {error}"
        if isinstance(error, OSError)  # there was no reply
        else f"{nodes[index].name} {reason_of(error)}"
        for index, error in sorted(errors.items())
    )
    denials = sum(code_of(error) in DENIED for error in errors.values())
    if denials > len(nodes) - table.quorum:
        return ConfigError(f"{what}: {reasons}; check the user's permissions", name=name)
    return BackendUnavailable(f"{what}: {reasons}", name=name)


class Ballot:
    """The replies of all nodes to one round, in the order in which they come."""

    # Most rounds never set these.
    lives: Mapping[int, bytes] = {}
    """By counted node: the lives of other nodes that it knows of."""
    busy: Sequence[int] = ()
    """Milliseconds for which another owner holds the lock, on each node that refused."""
    refused: Sequence[int] = ()
    """The nodes that refused: no request of this round is on its way to them any more."""
    errors: Mapping[int, Exception] = {}
    """By node that neither granted the lock nor said that another owner holds it: why."""
    holders: Mapping[bytes, int] = {}
    """By other owner: on how many nodes it holds the lock; `SEVERAL` stands for many."""
    kinds: Mapping[bytes, int] = {}
    """By another kind and capacity: on how many nodes the lock is in use as that."""
    free_slots: Sequence[Sequence[int]] = ()
    """For each node on which the slot that was asked for is taken: some that are free there."""
    confirmed: Sequence[int] = ()
    """The nodes that phase 2 has raised to the token."""
    token = 0
    in_step = False
    """True if every counted hold began at the token: there is no counter to raise."""
    raising = True

    def __init__(self, table: NodeTable) -> None:
        self._table = table
        self._quorum = table.quorum
        self._life_of = table.lives
        """The lives in which the nodes vote: if one comes back meanwhile, its older vote stays old."""
        self.begins: dict[int, int] = {}
        """By node: the value at which our hold began there, also if its reply was too late to count."""
        self.counted: list[int] = []
        self.outstanding = 0
        self.open = True

    def count_take(self, index: int, reply: Any) -> bool:
        """Counts a reply to phase 1. Returns True once there is nothing more to wait for."""
        kind = type(reply)
        if kind is int:
            self.begins[index] = reply
            if not self.open:
                return True
            counted = self.counted
            counted.append(index)
            self.outstanding -= 1
            return len(counted) >= self._quorum or self._is_lost()
        if kind is list and reply[0] >= 0:
            self.begins[index] = reply[0]
        if not self.open:
            return True
        if kind is list:
            if reply[0] < 0:
                self.busy = [*self.busy, reply[1]]
                self.refused = [*self.refused, index]
                self.holders = {**self.holders, reply[2]: self.holders.get(reply[2], 0) + 1}
                if reply[0] == OTHER_KIND:
                    self.kinds = {**self.kinds, reply[2]: self.kinds.get(reply[2], 0) + 1}
                elif len(reply) > 3:
                    self.free_slots = [*self.free_slots, reply[3:]]
            else:
                self.lives = {**self.lives, index: reply[1]}
                self.counted.append(index)  # last: another thread may be closing it
        else:
            self.errors = {**self.errors, index: reply}
        self.outstanding -= 1
        return len(self.counted) >= self._quorum or self._is_lost()

    def _is_lost(self) -> bool:
        """Returns whether no majority can grant any more, and it is known why.

        Where nodes failed, the others are waited for: is the lock held, or are too few nodes there?
        """
        if len(self.counted) + self.outstanding >= self._quorum:
            return False
        return self.outstanding == 0 or self.is_answered()

    def close(self) -> bool:
        """Ends phase 1: no later reply counts. Returns whether a majority granted, and sets `token`."""
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
        """Returns the counted nodes that have to be raised to the token."""
        return [index for index in self.counted if self.begins[index] < self.token]

    def count_raise(self, index: int, reply: Any) -> bool:
        """Counts a reply to phase 2. Returns True once there is nothing more to wait for."""
        if not self.raising:
            return True
        self.outstanding -= 1
        if type(reply) is list:
            self.lives = {**self.lives, index: reply[1]}
            reply = reply[0]
        if reply == 1:
            self.confirmed = [*self.confirmed, index]
        sure = sum(1 for i in self.counted if self.begins[i] == self.token) + len(self.confirmed)
        return sure >= self._quorum or self.outstanding == 0

    def stands(self) -> bool:
        """Ends phase 2: no later reply counts. Returns whether a majority stands for the token."""
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
            for index in self._table.find_superseded(known, self.counted, self._life_of):
                # Its vote was cast in an earlier incarnation, which it has forgotten.
                self.counted.remove(index)
                self._table.report_failure(index, "it has restarted")

    def is_answered(self) -> bool:
        """Returns whether a majority has granted the lock, or said that another owner holds it."""
        return len(self.counted) + len(self.busy) >= self._quorum

    def remaining(self) -> float:
        """Returns the seconds after which enough nodes could be free for a majority."""
        missing = self._quorum - len(self.counted)
        times = sorted(self.busy)
        if not times:
            return 0.0
        return max(0, times[min(missing, len(times)) - 1 if missing > 0 else 0]) / 1000

    def held_by_one(self) -> bool:
        """Returns whether another owner has a majority: then it is useless to try again at once."""
        return any(count >= self._quorum for count in self.holders.values())

    def other_kind(self) -> tuple[str, int] | None:
        """Returns the kind and the capacity as which a majority has the lock in use, if not ours."""
        for text, count in self.kinds.items():
            if count >= self._quorum:
                kind, _, capacity = text.decode().partition("\x1f")
                return kind, int(capacity)
        return None

    def likely_slots(self) -> list[int]:
        """Returns the slots that are free on most of the nodes which said what is free there."""
        if self.holders.get(SEVERAL, 0) >= self._quorum:
            return []
        counts = Counter(slot for slots in self.free_slots for slot in slots)
        most = max(counts.values(), default=0)
        return [slot for slot, count in counts.items() if count == most]


class Tally:
    """The replies of all nodes to one renewal, for many leases at once."""

    def __init__(self, count: int, quorum: int, nodes: int) -> None:
        self.yes = [0] * count
        self.no = [0] * count
        self._quorum = quorum
        self._nodes = nodes
        self._undecided = count

    def add(self, which: int, renewed: bool) -> None:
        """Counts one node's reply for the lease `which`."""
        decided = self.is_decided(which)
        if renewed:
            self.yes[which] += 1
        else:
            self.no[which] += 1
        if not decided and self.is_decided(which):
            self._undecided -= 1

    def is_decided(self, which: int) -> bool:
        """Returns whether a majority has renewed the lease `which`, or can no longer do so."""
        return self.yes[which] >= self._quorum or self.no[which] > self._nodes - self._quorum

    def is_done(self) -> bool:
        """Returns whether all leases are decided."""
        return self._undecided == 0
