"""One session with the ensemble, which carries the nodes of many locks: one for each class of TTL.

A session lives for as long as the leader hears of it, and all its nodes end with it. That it does is
proved by *writes* that were answered, because a majority had to agree to them. A ping or a read is
answered by a follower that has lost its leader, and even a `sync` by a leader that has lost its
followers and does not know it yet.

One write is not enough (found by the simulator). A follower tells the leader whom it has heard of
when the leader pings it, twice in a tick; a write that it passes on says nothing of that. So it
takes three in a row, each sent after the one before was answered, and the second at least half a
tick after that: by then the leader has pinged the follower after it heard the first, the answer to
that ping has gone out before the third, and has reached the leader before it. When the third is
answered, the session lives for its whole timeout *from the sending of the first*: that is `base`. A
pulse of small writes moves it on.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ...errors import BackendUnavailable, ConfigError, LockError
from .client import (
    EPHEMERAL,
    Client,
    EventType,
    KazooState,
    NodeExistsError,
    NoNodeError,
    Unanswered,
    create,
    set_data,
)

if TYPE_CHECKING:
    from .node import Node
    from .store import Store

Then = Callable[[Any, Exception | None], None]

CLASSES = (1.0, 2.0, 3.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 900.0, 3600.0, 86400.0)
"""The TTLs that are given, in seconds: another one is rounded up to the next of these."""

PATIENCE = 2.0
"""Seconds, or a fifth of its TTL, for which a session waits for a node's answer to a write."""
SECOND_LOOK = 0.25
"""Seconds that an answer has to be read after all: it was we who stood still, perhaps."""


class Link:
    def __init__(self, store: Store, seconds: float) -> None:
        self._store = store
        self.asked = seconds
        self.ready = False
        """Whether it is connected, and all that has to be there is."""
        self.session = 0
        self.ttl = seconds
        """What a node on this session can be given from each renewal on."""
        self.trouble: LockError | None = None
        self.nodes: dict[str, Node] = {}
        """By owner: those that are on this session, or to be."""
        self._watches: dict[str, set[Node]] = {}
        self._backlog: list[tuple[Sequence[Any], Callable[[list[Any]], None]]] = []
        self.beat = ""
        """The node that is written to, to prove that the session lives."""
        self._unproved = 0.0
        """When a write was sent to prove the session, of those that are not answered yet."""
        self._patience = PATIENCE
        self._looked = 0.0
        """The write of which it was seen that its answer is late."""
        self._look_again = 0.0
        self._set_up = False
        self._closed = False
        self.base = 0.0
        """When the leader heard of the session, at the earliest, the last time that is known."""
        self._pulse = 0.0
        self._pulses: list[float] = []
        """When those were sent that were answered in a row."""
        self._pulse_due = 0.0
        self._given = 0.0
        timeout = max(seconds * 1.2, seconds + 1.5 * store.tick) + store.tick
        self.client = Client(store.address, timeout, self._state, self._lost, store.clock.now)

    def start(self) -> None:
        self.client.start_async()

    def end(self) -> None:
        """Close the session: the ensemble removes its nodes. Blocks."""
        self._closed = True
        self.ready = False
        self.client.end()

    def send(self, request: Any, then: Then) -> None:
        self.client.send(request, then)

    def send_all(self, requests: Sequence[Any], then: Callable[[list[Any]], None]) -> None:
        """Requests that may be repeated: asked as soon as there is a connection, and again if that is
        lost. `then` gets their answers, in order: a value, or the error that was answered."""
        with self._store.mutex:
            if self.trouble is not None:
                then([self.trouble] * len(requests))
                return
            if not self.ready:
                self._backlog.append((requests, then))
                return
        answers: list[Any] = [None] * len(requests)
        left = len(requests)
        lost = False

        def answered(number: int) -> Then:
            def one(value: Any, error: Exception | None) -> None:
                nonlocal left, lost
                answers[number] = value if error is None else error
                lost = lost or isinstance(error, Unanswered)
                left -= 1
                if left == 0 and lost:
                    self.send_all(requests, then)
                elif left == 0:
                    then(answers)

            return one

        for number, request in enumerate(requests):
            self.send(request, answered(number))

    def prove(self, then: Then) -> None:
        """A write: once that is answered, the session lived when it was sent."""
        now = self._store.clock.now()
        if self._unproved and now - self._unproved > min(self.ttl / 5, PATIENCE):
            # The node that we are connected to stands still, or has lost the others. Kazoo would
            # wait for most of the session's time; another node may answer at once.
            self._unproved = 0.0
            self.client.drop()
        elif not self._unproved:
            self._expect_answer(now)

        def wrote(value: Any, error: Exception | None) -> None:
            self._answered(error)
            if isinstance(error, NoNodeError):  # a foreign hand has tidied up
                self.send(create(self.client, self.beat, b"", EPHEMERAL), then)
            else:
                then(value, error)

        self.send(set_data(self.beat, b""), wrote)

    def _expect_answer(self, now: float) -> None:
        self._unproved = now
        self._store.ring_at(now + self._patience, self._late)

    def _answered(self, error: Exception | None) -> None:
        self._unproved = 0.0
        if not isinstance(error, Unanswered):
            self._patience = PATIENCE

    def _late(self) -> None:
        """Has a node not answered a write for long? Then it stands still, or has lost the others, or
        the request has got stuck in it (ZOOKEEPER-4537): on to the next one, with more patience."""
        with self._store.mutex:
            if not self._unproved or self._closed:
                return
            now, looked = self._store.clock.now(), self._looked == self._unproved
            due = self._look_again if looked else self._unproved + self._patience
            if now < due:
                self._store.ring_at(due, self._late)
            elif not looked:
                self._looked = self._unproved
                self._look_again = now + SECOND_LOOK  # from now: it may be due since long
                self._store.ring_at(self._look_again, self._late)
            else:
                self._unproved = 0.0
                self._patience *= 2
                self.client.drop()

    def vouch(self, sent: float) -> float:
        """From when on what was sent then, and answered, may be counted on for its whole TTL."""
        return min(sent, self.base + self._given - self._store.tick - self.ttl)

    def overdue(self) -> None:
        """Somebody has waited for an answer for as long as anybody does."""
        if self.client.waiting:
            self.client.drop()

    def _beat_on(self) -> None:
        """The next of the pulse of writes."""
        with self._store.mutex:
            now = self._store.clock.now()
            if not self.ready or self._closed:
                return
            if now < self._pulse_due:
                self._store.ring_at(self._pulse_due, self._beat_on)
                return
            link = self.client.session

            def answered(value: Any, error: Exception | None) -> None:
                with self._store.mutex:
                    if error is not None or not self.ready or link != self.client.session:
                        self._pulses.clear()
                        if self.ready and not isinstance(error, Unanswered):
                            self._next_pulse()
                        return
                    self._pulses.append(now)
                    if len(self._pulses) >= 3:
                        self.base = max(self.base, self._pulses[-3])
                        del self._pulses[:-2]
                    self._next_pulse()

            self.prove(answered)

    def _next_pulse(self) -> None:
        self._pulse_due = self._store.clock.now() + self._pulse
        self._store.ring_at(self._pulse_due, self._beat_on)

    def watch(self, path: str, node: Node) -> Callable[[Any], None]:
        """What to give along with a read, so that `node` is told when what was read changes."""
        self._watches.setdefault(path, set()).add(node)
        return self._event  # the same for all: kazoo keeps one of it for each path

    def unwatch(self, path: str, node: Node) -> None:
        nodes = self._watches.get(path)
        if nodes is not None:
            nodes.discard(node)
            if not nodes:
                del self._watches[path]

    # What kazoo tells, in the connection's thread.

    def _event(self, event: Any) -> None:
        if event.type == EventType.NONE:
            return  # the connection is lost; `_state` is told as well
        with self._store.mutex:
            for node in self._watches.pop(event.path, ()):
                self._store.noticed(node, event.path, event.type == EventType.DELETED)

    def _lost(self) -> None:
        """From any thread: one that was held up may say so of a connection before this one."""
        if not self.client.connected:
            self.ready = False

    def _state(self, state: str) -> None:
        with self._store.mutex:
            if self._closed:
                return
            if state == KazooState.CONNECTED:
                self._connected()
                return
            self.ready = False
            self._watches.clear()
            if state == KazooState.SUSPENDED:
                self._store.suspended(self)
                return
            self.session = 0
            self._store.session_over(self)
            if self.client.client_state == "AUTH_FAILED":
                self._fail(f"the ensemble at {self._store.address} refused our credentials")

    def _connected(self) -> None:
        client, store = self.client, self._store
        self.trouble = None
        if client.session != self.session:
            if self.session:
                store.session_over(self)
            self.session = client.session
            self.beat = f"{store.naming.sessions}/{os.urandom(8).hex()}"
            self._set_up = False
        self._given = client.negotiated
        self._pulse = max(store.tick / 2, (self._given - store.tick) / 18)
        # Three pulses is how far `base` lies behind, with some to spare; and a tick is kept back.
        self.ttl = min(self.asked, round(self._given - store.tick - 3 * self._pulse, 3))
        self.base = client.greeted
        if self.ttl <= 0:
            self._give_up(
                ConfigError(
                    f"the ensemble gives a session {client.negotiated:g} s, which is too little for a "
                    f"tick of {store.tick:g} s; raise its maxSessionTimeout, or say its true tickTime "
                    "by tick="
                )
            )
        elif self._set_up:
            self._begin()
        else:
            self._expect_answer(store.clock.now())
            for path in store.naming.needed():
                self.send(create(client, path, b""), _ignored)
            self.send(create(client, self.beat, b"", EPHEMERAL), self._made)

    def _made(self, value: Any, error: Exception | None) -> None:
        with self._store.mutex:
            self._answered(error)
            if isinstance(error, Unanswered):
                return  # there will be another connection
            if error is not None and not isinstance(error, NodeExistsError):
                self._fail(
                    f"the ensemble at {self._store.address} does not let us create nodes below "
                    f"{self._store.naming.root}: {type(error).__name__}"
                )
                return
            self._set_up = True
            self._begin()

    def _begin(self) -> None:
        self.ready = True
        self._pulses.clear()
        self._next_pulse()
        backlog, self._backlog = self._backlog, []
        for requests, then in backlog:
            self.send_all(requests, then)
        self._store.resumed(self)

    def _fail(self, message: str) -> None:
        self._give_up(BackendUnavailable(message))

    def _give_up(self, trouble: LockError) -> None:
        self.trouble = trouble
        backlog, self._backlog = self._backlog, []
        for requests, then in backlog:
            then([trouble] * len(requests))
        self._store.troubled(self)


def _ignored(value: Any, error: Exception | None) -> None:
    """It is there now, or was before; if neither, what is created below it says so."""
