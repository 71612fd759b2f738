"""One member of a simulated etcd cluster: its state, and its answers to clients."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...stores.etcd.wire import messages
from ...stores.etcd.wire.codec import data, fields, number
from ..connection import SimConnection
from .cluster import AGAIN, BEAT, ELECTION, HOP, TIMEOUT, Cluster, Proposal
from .data import Answer, Refusal, Version, only_reads

if TYPE_CHECKING:
    from ..process import Process

WITHOUT_LEADER = 3 * ELECTION
"""Seconds after which a member without a leader ends the streams of clients that want one."""
BEHIND = 0.1
"""Seconds after which a watch that starts from an old revision is brought up to date."""
NO_LEADER = Refusal("UNAVAILABLE", "no leader")

Reply = Callable[[Answer | Refusal], None]


class SimWatch:
    """A watch of one client."""

    __slots__ = ("behind", "deletions_only", "end", "id", "key", "next")

    def __init__(self, request: bytes, revision: int) -> None:
        parts: dict[int, Any] = dict(fields(request))
        self.id: int = parts.get(7, 0)
        self.key: bytes = parts[1]
        self.end: bytes = parts.get(2, b"")
        self.next: int = parts.get(3, 0) or revision + 1
        self.deletions_only = 5 in parts
        self.behind = False

    def wants(self, change: Version) -> bool:
        if change.changed < self.next or (self.deletions_only and change.number):
            return False
        return change.key == self.key or (bool(self.end) and self.key <= change.key < self.end)


class SimMember:
    """A member, which follows the leader or takes itself for it."""

    def __init__(self, cluster: Cluster, process: Process) -> None:
        self.cluster = cluster
        self.loop = cluster.loop
        self.process = process
        self.up = True
        self.incarnation = 0
        self.connections: list[SimConnection] = []
        self.leader: SimMember | None = None
        self.applied = 0
        self.term = 1
        """The term of the last entry that it applied, for the headers of its answers."""
        self.revision = 1
        self.waiting: dict[int, Proposal] = {}
        """Proposals to be answered, by the number of the entry that has to be applied first."""
        self._lessor: dict[int, float] | None = None
        """The ends of all leases; None for a member that does not take itself for the leader."""
        self._stuck = 0
        self._heard = process.clock.now()
        self._patience = 0.0
        self._leaderless_since: float | None = None

    @property
    def working(self) -> bool:
        return self.up and not self.process.paused and not self._stuck

    @property
    def leads(self) -> bool:
        return self._lessor is not None

    @property
    def leaderless(self) -> bool:
        """True if it would vote for another leader."""
        return self.process.clock.now() - self._heard >= ELECTION

    # What the faults do.

    def crash(self) -> None:
        self.up = False
        self._lessor = None
        self.waiting.clear()
        for connection in list(self.connections):
            connection.reset()

    def save(self) -> None:
        """Does nothing: a member writes everything down before it answers."""

    def restart(self, memory: str) -> None:
        self.up = True
        self.incarnation += 1
        self.leader = None
        self._heard = self.process.clock.now()

    def get_stuck(self, length: float) -> None:
        """Stops its disk: it takes no part in anything that has to be written down."""
        self._stuck += 1
        self.loop.after(length, self.cluster.world.director, self._unstuck)

    def _unstuck(self) -> None:
        self._stuck -= 1

    # Leading, and following.

    def lead(self) -> None:
        now = self.process.clock.now()
        keys = self.cluster.keys
        self._lessor = {lease: now + ttl + ELECTION for lease, ttl in keys.leases.items()}
        self._heard = now
        self.leader = self

    def counts(self, request: bytes) -> bool:
        """Returns True if it counts a lease as alive."""
        until = (self._lessor or {}).get(_lease(request), 0.0)
        return until > self.process.clock.now()

    def beat(self) -> None:
        self.loop.after(BEAT, self.process, self.beat)
        if not self.working:
            return
        cluster, now = self.cluster, self.process.clock.now()
        leader = cluster.leader
        if self is leader and self.leads:
            if cluster.majority(self):
                self._heard = now
                self._expire()
            elif now - self._heard > ELECTION:
                self._step_down()
            return
        if self.leads and (cluster.reach(self, leader) or now - self._heard > ELECTION):
            self._expire()  # which is what an old etcd may do before it knows
            self._step_down()
        if leader.leads and cluster.reach(self, leader):
            self._heard = now
            self.leader = leader
            self._leaderless_since = None
            self.catch_up()
        elif now - self._heard > ELECTION + self._patience:
            if self.leader is not None:
                self.leader = None
                self._leaderless_since = now
            self._patience = self.loop.random.random() * ELECTION
            if cluster.may_lead(self):
                cluster.elect(self)
        since = self._leaderless_since
        if self.leader is None and since is not None and now - since > WITHOUT_LEADER:
            self._end_streams()

    def _step_down(self) -> None:
        self._lessor = None
        self.leader = None
        self._leaderless_since = self.process.clock.now()

    def _expire(self) -> None:
        now = self.process.clock.now()
        for lease, until in list((self._lessor or {}).items()):
            if until <= now:
                self.cluster.revoke(lease, self)

    def follow(self) -> None:
        leader = self.cluster.leader
        if self.working and (self is leader or self.cluster.reach(self, leader)):
            self.catch_up()

    def catch_up(self) -> None:
        log = self.cluster.log
        while self.applied < len(log):
            entry = log[self.applied]
            self.applied += 1
            self.term = entry.term
            self.revision = entry.revision
            if self._lessor is not None:
                if entry.method == messages.LEASE_GRANT and isinstance(entry.answer, Answer):
                    lease = _lease(entry.request, 2)
                    ttl = self.cluster.keys.leases.get(lease, 0)
                    self._lessor[lease] = self.process.clock.now() + ttl
                elif entry.method == messages.LEASE_REVOKE:
                    self._lessor.pop(_lease(entry.request), None)
            first, last = entry.changes
            if first < last:
                self._tell_of(self.cluster.keys.changes[first:last])
            proposal = self.waiting.pop(self.applied, None)
            if proposal is not None and not proposal.given_up:
                proposal.done = True
                proposal.then(entry.answer)

    # Clients. A frame is a line of words, and the message.

    def opened(self, connection: SimConnection) -> None:
        connection.state = {}  # streams, each with its watches
        self.connections.append(connection)

    def closed(self, connection: SimConnection) -> None:
        self.connections.remove(connection)

    def replayed(self, frame: bytes) -> None:
        """Does nothing: no frame is sent twice on an HTTP/2 connection."""

    def received(self, connection: SimConnection, frame: bytes) -> None:
        line, _, message = frame.partition(b"\n")
        word, call, *rest = line.decode().split(" ")
        if word == "send":
            if call in connection.state:
                self._watch_request(connection, call, message)
        elif word == "cancel":
            connection.state.pop(call, None)
        elif self.leader is None:
            self._fail(connection, call, NO_LEADER)
        elif word == "open":
            connection.state[call] = {}
        else:

            def reply(answer: Answer | Refusal) -> None:
                if isinstance(answer, Refusal):
                    self._fail(connection, call, answer)
                else:
                    header = self.cluster.header(self, answer.revision)
                    self._answer(connection, call, header + answer.body)

            self._serve(rest[0], message, reply)

    def _answer(self, connection: SimConnection, call: str, message: bytes) -> None:
        connection.answer(f"ok {call}\n".encode() + message)

    def _fail(self, connection: SimConnection, call: str, refusal: Refusal) -> None:
        connection.answer(f"fail {call} {refusal.code} {refusal.text}\n".encode())

    def _serve(self, method: str, request: bytes, reply: Reply) -> None:
        cluster = self.cluster
        if method in (messages.LEASE_KEEP_ALIVE, messages.LEASE_TIME_TO_LIVE):
            self._ask_lessor(method, _lease(request), reply, self.loop.now + TIMEOUT)
        elif method == messages.RANGE:
            self._read(cluster.keys.range, request, reply, stale=7 in dict(fields(request)))
        elif method == messages.TXN and only_reads(request):
            self._read(cluster.keys.txn, request, reply, stale=False)
        else:
            cluster.propose(self, method, request, reply)

    def _read(
        self, read: Callable[[bytes, int], Answer], request: bytes, reply: Reply, *, stale: bool
    ) -> None:
        def then(refusal: Refusal | None) -> None:
            reply(refusal or read(request, self.revision))

        if stale:
            then(None)
        else:
            self.cluster.ask_how_far(self, then)

    # Leases: whoever takes itself for the leader answers, and others ask whom they take for it.

    def _ask_lessor(self, method: str, lease: int, reply: Reply, limit: float) -> None:
        if not self.up:
            return
        if self._lessor is not None:
            reply(self._of_lease(method, lease))
            return
        leader = self.leader
        if leader is not None and self.cluster.reach(self, leader) and leader.leads:
            hop = self.loop.random.random() * HOP

            def back(answer: Answer) -> None:
                self.loop.after(hop, self.process, reply, answer)

            self.loop.after(hop, leader.process, leader._asked, method, lease, back)
        elif self.loop.now > limit:
            reply(Refusal("UNAVAILABLE", "request timed out"))
        else:
            self.loop.after(AGAIN, self.process, self._ask_lessor, method, lease, reply, limit)

    def _asked(self, method: str, lease: int, back: Callable[[Answer], None]) -> None:
        if self.up and self._lessor is not None:
            back(self._of_lease(method, lease))

    def _of_lease(self, method: str, lease: int) -> Answer:
        assert self._lessor is not None
        now = self.process.clock.now()
        ttl = self.cluster.keys.leases.get(lease, 0)
        until = self._lessor.get(lease, 0.0)
        if method == messages.LEASE_TIME_TO_LIVE:
            left = int(until - now) if until > now else -1
            return Answer(self.revision, number(2, lease) + number(3, left) + number(4, ttl))
        if until <= now:
            ttl = 0
        else:
            self._lessor[lease] = now + ttl
        return Answer(self.revision, number(2, lease) + number(3, ttl))

    # Watches.

    def _watch_request(self, connection: SimConnection, call: str, message: bytes) -> None:
        watches: dict[int, SimWatch] = connection.state[call]
        for field, value in fields(message):
            assert isinstance(value, bytes)
            if field == 2:
                watches.pop(dict(fields(value)).get(1, 0), None)  # type: ignore[arg-type]
                continue
            watch = SimWatch(value, self.revision)
            watches[watch.id] = watch
            self._tell(connection, call, watch, number(3, 1))
            if watch.next <= self.revision:
                watch.behind = True
                after = self.loop.random.random() * BEHIND
                self.loop.after(after, self.process, self._bring_up, connection, call, watch)

    def _tell(self, connection: SimConnection, call: str, watch: SimWatch, what: bytes) -> None:
        header = self.cluster.header(self, self.revision)
        self._answer(connection, call, header + number(2, watch.id) + what)

    def _bring_up(self, connection: SimConnection, call: str, watch: SimWatch) -> None:
        if not self.up or connection.state.get(call, {}).get(watch.id) is not watch:
            return
        watch.behind = False
        compacted = self.cluster.keys.compacted
        if watch.next < compacted <= self.revision:
            del connection.state[call][watch.id]
            self._tell(connection, call, watch, number(4, 1) + number(5, compacted))
            return
        changes = self.cluster.keys.changes
        self._events(connection, call, watch, [c for c in changes if c.changed <= self.revision])

    def _tell_of(self, changes: list[Version]) -> None:
        for connection in self.connections:
            for call, watches in connection.state.items():
                for watch in watches.values():
                    if not watch.behind:
                        self._events(connection, call, watch, changes)

    def _events(
        self, connection: SimConnection, call: str, watch: SimWatch, changes: list[Version]
    ) -> None:
        events = [_event(change) for change in changes if watch.wants(change)]
        if events:
            watch.next = self.revision + 1
            self._tell(connection, call, watch, b"".join(events))

    def _end_streams(self) -> None:
        for connection in self.connections:
            for call in list(connection.state):
                del connection.state[call]
                self._fail(connection, call, NO_LEADER)


def _event(change: Version) -> bytes:
    return data(11, number(1, change.number == 0) + data(2, change.encode()))


def _lease(request: bytes, field: int = 1) -> int:
    lease = dict(fields(request)).get(field, 0)
    assert isinstance(lease, int)
    return lease
