"""A simulated etcd cluster: three members, of which one leads; leases, revisions, watches.

What matters to a lock is as it is in etcd, also where that is awkward:

- A write is agreed to by a majority, and reaches each member in its own time; it is answered when the
  member that was asked has applied it. A read asks the leader, who asks a majority, how far it must
  have come; one that may be stale asks nobody. Watches tell of what their member has applied.
- Leases are counted by the leader, on its own clock, in memory: **a keep-alive is not agreed to by
  anybody.** A new leader gives all of them their whole time again, and an election timeout more. One
  that has been deposed and does not know it yet, because it stood still or its disk does, goes on
  answering keep-alives.
- Such a leader also finds that leases are over that others have kept alive since. etcd from 3.4.31 and
  3.5.13 on does not let it end them; older ones do (etcd#15247). Here some clusters are old, some are
  not.
- What was proposed to a leader that lost its majority may be agreed to later, or never.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from ...stores.etcd.wire import messages
from ...stores.etcd.wire.codec import data, number
from ..process import Process
from .data import Answer, Keys, Refusal

if TYPE_CHECKING:
    from ..world import World
    from .member import SimMember

BEAT = 0.1
ELECTION = 0.5
"""Seconds without a word from the leader after which a member may stand for election."""
HOP = 0.002
AGAIN = 0.05
TIMEOUT = 4.0
"""Seconds after which a member says that it could not do what it was asked."""

Then = Callable[[Answer | Refusal], None]


class Entry(NamedTuple):
    """A request that was agreed on, and its answer."""

    term: int
    method: str
    request: bytes
    answer: Answer | Refusal
    revision: int
    changes: tuple[int, int]
    """The part of the keys' changes that it made: from, and to."""


class Proposal:
    """A request on its way to the leader. `asked` is the member that a client asked."""

    __slots__ = ("asked", "done", "given_up", "method", "request", "then")

    def __init__(self, asked: SimMember | None, method: str, request: bytes, then: Then) -> None:
        self.asked = asked
        self.method = method
        self.request = request
        self.then = then
        self.done = False
        self.given_up = False


class Cluster:
    """The members, the ways between them, and the log that they agree on."""

    def __init__(self, world: World, old: bool) -> None:
        from .member import SimMember

        self.world = world
        self.loop = world.loop
        self.old = old
        self.keys = Keys()
        self.term = 1
        self.log: list[Entry] = []
        self._ways_cut: set[frozenset[SimMember]] = set()
        self.members = [SimMember(self, Process(world.loop, f"etcd{i}")) for i in (1, 2, 3)]
        self.leader = self.members[0]
        self.leader.lead()
        for member in self.members:
            member.leader = self.leader
            world.network.listen(f"{member.process.name}:2379", member)
            world.loop.after(BEAT * world.loop.random.random(), member.process, member.beat)

    # Between members.

    def reach(self, one: SimMember, other: SimMember) -> bool:
        if not (one.working and other.working):
            return False
        return not self._ways_cut or frozenset((one, other)) not in self._ways_cut

    def majority(self, member: SimMember) -> bool:
        return sum(other is member or self.reach(member, other) for other in self.members) >= 2

    def cut_off(self, member: SimMember, length: float) -> None:
        ways = [frozenset((member, other)) for other in self.members if other is not member]
        self._ways_cut.update(ways)
        self.loop.after(length, self.world.director, self._ways_cut.difference_update, ways)

    def may_lead(self, member: SimMember) -> bool:
        """Returns True if a majority is without a leader, and would vote for `member`."""
        votes = 1
        for other in self.members:
            if other is not member and self.reach(member, other):
                votes += other.leaderless
        return votes >= 2

    def elect(self, member: SimMember) -> None:
        self.world.trace.add(member.process.name, "leads from now on")
        self.term += 1
        self.leader = member
        member.catch_up()
        member.lead()
        self._agree("", b"")  # the first word of every leader

    # Proposals.

    def propose(self, asked: SimMember, method: str, request: bytes, then: Then) -> None:
        proposal = Proposal(asked, method, request, then)
        self.loop.after(TIMEOUT, asked.process, self._too_late, proposal)
        self._forward(proposal, asked)

    def _too_late(self, proposal: Proposal) -> None:
        if not proposal.done:
            proposal.given_up = True
            proposal.then(Refusal("UNAVAILABLE", "request timed out"))

    def _forward(self, proposal: Proposal, asked: SimMember) -> None:
        """Sends a proposal to the member that `asked` takes for the leader."""
        if proposal.given_up or not asked.up:
            return
        leader = asked.leader
        if leader is None or (leader is not asked and not self.reach(asked, leader)):
            self.loop.after(AGAIN, asked.process, self._forward, proposal, asked)
            return
        self.loop.after(self._hop(), leader.process, self._proposed, proposal, leader)

    def _hop(self) -> float:
        return self.loop.random.random() * HOP

    def _proposed(self, proposal: Proposal, leader: SimMember) -> None:
        """Decides on a proposal that has reached a leader: agreed to now, or later, or never."""
        if not leader.up:
            return
        if leader is self.leader and leader.leads and leader.working and self.majority(leader):
            self._agree(proposal.method, proposal.request, proposal)
        elif leader.leads:
            self.loop.after(AGAIN, leader.process, self._proposed, proposal, leader)
        elif self.loop.random.random() < 0.5 and leader.leader is not None:
            self._forward(proposal, leader)  # whoever leads now has it in its log, or gets it

    def _agree(self, method: str, request: bytes, proposal: Proposal | None = None) -> None:
        keys = self.keys
        first = len(keys.changes)
        if proposal is not None and proposal.asked is None and self.leader.counts(request):
            self.world.trace.add(self.leader.process.name, "ends a lease that is alive")
            self.world.note_fault("revoked")
        answer: Answer | Refusal
        try:
            answer = self._carry_out(method, request)
        except Refusal as refusal:
            answer = refusal
        changes = first, len(keys.changes)
        self.log.append(Entry(self.term, method, request, answer, keys.revision, changes))
        if proposal is not None and proposal.asked is not None:
            proposal.asked.waiting[len(self.log)] = proposal
        for member in self.members:
            delay = 0.0 if member is self.leader else self._hop()
            self.loop.after(delay, member.process, member.follow)

    def _carry_out(self, method: str, request: bytes) -> Answer:
        keys = self.keys
        if method == messages.TXN:
            return keys.txn(request)
        if method == messages.DELETE:
            return keys.delete(request)
        if method == messages.LEASE_GRANT:
            return keys.grant(request)
        if method == messages.LEASE_REVOKE:
            return keys.revoke(request)
        assert not method, method
        return Answer(keys.revision, b"")

    def revoke(self, lease: int, lessor: SimMember) -> None:
        """Ends a lease that `lessor`, which takes itself for the leader, finds to be over."""
        request = messages.lease_id(lease)
        if lessor is self.leader and lessor.leads:
            if self.majority(lessor) and lease in self.keys.leases:
                self._agree(messages.LEASE_REVOKE, request)
        elif self.old:
            self._proposed(
                Proposal(None, messages.LEASE_REVOKE, request, lambda answer: None), lessor
            )

    # How far a member must have come to answer a read.

    def ask_how_far(self, asked: SimMember, then: Callable[[Refusal | None], None]) -> None:
        self._how_far(asked, self.loop.now + TIMEOUT, then)

    def _how_far(
        self, asked: SimMember, limit: float, then: Callable[[Refusal | None], None]
    ) -> None:
        if not asked.up:
            return
        leader = asked.leader
        if (
            leader is self.leader
            and leader.leads
            and self.majority(leader)
            and (leader is asked or self.reach(asked, leader))
        ):
            index = len(self.log)
            self.loop.after(
                self._hop(), asked.process, self._come_so_far, asked, index, limit, then
            )
        elif self.loop.now > limit:
            then(Refusal("UNAVAILABLE", "request timed out"))
        else:
            self.loop.after(AGAIN, asked.process, self._how_far, asked, limit, then)

    def _come_so_far(
        self, asked: SimMember, index: int, limit: float, then: Callable[[Refusal | None], None]
    ) -> None:
        if not asked.up:
            return
        asked.follow()
        if asked.applied >= index:
            then(None)
        elif self.loop.now > limit:
            then(Refusal("UNAVAILABLE", "request timed out"))
        else:
            self.loop.after(AGAIN, asked.process, self._come_so_far, asked, index, limit, then)

    def header(self, member: SimMember, revision: int) -> bytes:
        return data(1, number(1, 1) + number(2, 1) + number(3, revision) + number(4, member.term))
