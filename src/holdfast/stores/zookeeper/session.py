"""A client session: one session with the ensemble, which carries the znodes of many locks.

There is one for each class of TTL. A session lives for as long as the leader hears of it, and all its
znodes end with it. `pulse` has the argument from when on that may be counted on.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ...errors import BackendUnavailable, ConfigError, LockError
from .attempt import HELD, Attempt
from .client import Client
from .failures import credentials_refused, session_refused
from .observers import Observer
from .pulse import Pulse
from .reply_timer import ReplyTimer
from .requests import (
    EPHEMERAL,
    EventType,
    KazooState,
    NodeExistsError,
    NoNodeError,
    ReplyCallback,
    Unanswered,
    create,
    get_data,
    set_data,
)

if TYPE_CHECKING:
    from .attempts import Attempts

CLASSES = (1.0, 2.0, 3.0, 5.0, 10.0, 20.0, 30.0, 60.0, 300.0, 3600.0, 86400.0)
"""The TTLs that are given, in seconds: another one is rounded up to the next of these."""
AT_WORK = 0.25
"""Seconds for which a server counts as at work after it has replied to a request."""
IDLE = 15.0
"""Seconds after which a session that nothing is on is closed: it costs the ensemble writes."""


class ClientSession:
    """A session for one class of TTL: its connection, its watches, and the attempts that are on it."""

    def __init__(self, attempts: Attempts, seconds: float) -> None:
        self._table = attempts
        self.requested_ttl = seconds
        self.ready = False
        """Whether the session is connected, and its znodes are there."""
        self.closed = False
        self.session_id = 0
        self.ttl = seconds
        """The TTL that a lease on this session can be given from each renewal on."""
        self.error: LockError | None = None
        """The reason why the ensemble does not let the session be used, if there is one."""
        self.attempts: dict[str, Attempt] = {}
        """By owner: the attempts whose znodes are on this session, or are to be."""
        self.observers: dict[Observer, None] = {}
        """The observers of elections that are told by this session."""
        self._watches: dict[str, dict[Attempt | Observer, None]] = {}
        """By path: the attempts and observers that are told of a change there, in the order in which
        they came. In that of a set, no run of the simulator would be like another."""
        self._backlog: list[tuple[Sequence[Any], Callable[[list[Any]], None]]] = []
        """Requests to be sent once the session is ready."""
        self.used_at = attempts.clock.now()
        """The time at which something was last sent that is not on behalf of an attempt, or at which
        the latest attempt has ended."""
        self._recall_version: int | None = None
        """The number of forced releases that we know of, as ZooKeeper counts them."""
        self.beat_path = ""
        """The path of the znode that is written to, to prove that the session lives."""
        self._beat_created = False
        self._timeout = 0.0
        """The session timeout that the ensemble gave, in seconds."""
        self.pulse = Pulse(attempts, self)
        self._asked = max(seconds * 1.2, seconds + 1.5 * attempts.tick) + attempts.tick
        """The session timeout that is asked for, in seconds."""
        self.client = Client(
            attempts.address, self._asked, self._on_state, self._on_lost, attempts.clock.now
        )
        self._reply_timer = ReplyTimer(
            attempts, self.client.drop_connection, lambda: self.client.replied_at
        )

    def start(self) -> None:
        self.client.start_async()

    def end(self, on_ended: Callable[[], None]) -> None:
        """Closes the session, and waits for nothing; the ensemble then removes its znodes.

        `on_ended` is called, perhaps at once, when nothing more is to be waited for.
        """
        self.closed = True
        self.ready = False
        self._reply_timer.close()
        # A lease that was not released has to last for its time, so the session has to: it has a delay,
        # or a body goes on under it.
        held = any(attempt.state == HELD for attempt in self.attempts.values())
        self.client.end(on_ended, stays=held)

    def can_give(self, ttl: float) -> bool:
        """Returns whether the ensemble gives this session what it would give another for `ttl`.

        It does not give more than its longest session timeout, nor less than its shortest.
        """
        if not self.ready:
            return False
        longest = self.ttl < self.requested_ttl <= ttl
        shortest = self._raised and ttl <= self.ttl
        return longest or shortest

    @property
    def _raised(self) -> bool:
        """Whether the ensemble gives no session timeout as short as the one that was asked for."""
        return self._timeout > self._asked + 0.01

    def send(self, request: Any, on_reply: ReplyCallback) -> None:
        self.client.send(request, on_reply)

    def send_all(self, requests: Sequence[Any], on_replies: Callable[[list[Any]], None]) -> None:
        """Sends requests that may be repeated: once there is a connection, and again if that breaks.

        `on_replies` gets the replies in order: each is a value, or the error that was returned.
        """
        with self._table.mutex:
            self.used_at = self._table.clock.now()
            if self.error is not None or self.closed:
                error = self.error or BackendUnavailable("the session with ZooKeeper was closed")
                on_replies([error] * len(requests))
                return
            if not self.ready:
                self._backlog.append((requests, on_replies))
                return
        replies: list[Any] = [None] * len(requests)
        awaited = len(requests)
        lost = False

        def receiver(number: int) -> ReplyCallback:
            def receive(value: Any, error: Exception | None) -> None:
                nonlocal awaited, lost
                replies[number] = value if error is None else error
                lost = lost or isinstance(error, Unanswered)
                awaited -= 1
                if awaited == 0 and lost:
                    self.send_all(requests, on_replies)
                elif awaited == 0:
                    on_replies(replies)

            return receive

        for number, request in enumerate(requests):
            self.send(request, receiver(number))

    def prove(self, on_reply: ReplyCallback) -> None:
        """Sends a write: if it is answered, the session lived when it was sent."""
        self._reply_timer.expect_another(self._table.clock.now(), self.ttl)

        def receive(value: Any, error: Exception | None) -> None:
            self._reply_timer.note_reply(error)
            if error is None:
                self._table.note_time(value)
            if isinstance(error, NoNodeError):  # a foreign hand has removed the znode
                self._create_beat(on_reply)
            else:
                on_reply(value, error)

        self.send(set_data(self.beat_path, b""), receive)

    @property
    def sure_until(self) -> float:
        """The time until which the session lives, whatever happens."""
        return self.pulse.base + self._timeout - self._table.tick

    def vouch(self, sent_at: float) -> float:
        """Returns the time from which a lease may be counted on for its whole TTL.

        That is `sent_at`, at which an answered request was sent, or earlier if the pulse is behind.
        """
        return min(sent_at, self.sure_until - self.ttl)

    def try_other_server(self) -> None:
        """Drops the connection if a reply is awaited on it, because a caller has waited too long.

        A server that has just answered others is at work, and stays.
        """
        at_work = self._table.clock.now() - self.client.replied_at < AT_WORK
        if self.client.awaits_reply and not at_work:
            self.client.drop_connection()

    def watch(self, path: str, attempt: Attempt | Observer) -> Callable[[Any], None]:
        """Returns the watcher to give along with a read, so that `attempt` is told of a change."""
        self._watches.setdefault(path, {})[attempt] = None
        return self._on_event  # the same for all: kazoo keeps one of it for each path

    def unwatch(self, path: str, attempt: Attempt | Observer) -> None:
        attempts = self._watches.get(path)
        if attempts is not None:
            attempts.pop(attempt, None)
            if not attempts:
                del self._watches[path]

    # Called by kazoo, in the connection's thread.

    def _on_event(self, event: Any) -> None:
        if event.type == EventType.NONE:
            return  # the connection is lost; `_on_state` is called as well
        with self._table.mutex:
            for attempt in self._watches.pop(event.path, ()):
                if isinstance(attempt, Observer):
                    attempt.ticket.tell()
                    continue
                self._table.watch_fired(attempt, event.path, event.type == EventType.DELETED)

    def _on_lost(self) -> None:
        """Stops sending, unless there is a connection again. Called from any thread, perhaps late."""
        if not self.client.connected:
            self.ready = False

    def _on_state(self, state: str) -> None:
        with self._table.mutex:
            if self.closed:
                return
            if state == KazooState.CONNECTED:
                self._set_up()
                return
            self.ready = False
            self._watches.clear()
            for observer in self.observers:
                observer.ticket.tell()  # it asks, and is told of changes again
            if state == KazooState.SUSPENDED:
                self._table.session_suspended(self)
                return
            self.session_id = 0
            self._table.session_ended(self)
            if self.client.client_state == "AUTH_FAILED":
                self._fail(credentials_refused(self._table.address))

    def _set_up(self) -> None:
        """Prepares the session after it was connected, and creates the znodes that it needs."""
        client, table = self.client, self._table
        if client.session_id != self.session_id:
            if self.session_id:
                table.session_ended(self)
            self.session_id = client.session_id
            self.beat_path = f"{table.naming.sessions}/{os.urandom(8).hex()}"
            self._beat_created = False
        self._timeout = client.session_timeout
        interval = max(table.tick / 2, (self._timeout - table.tick) / 18)
        # The pulse's `base` lies three writes behind, with some to spare; and a tick is kept back.
        longest = round(self._timeout - table.tick - 3 * interval, 3)
        self.ttl = longest if self._raised else min(self.requested_ttl, longest)
        self.pulse.restart(client.greeted_at, interval)
        if self.ttl <= 0:
            self._fail(
                ConfigError(
                    f"the ensemble gives a session {client.session_timeout:g} s, which is too little "
                    f"for a tick of {table.tick:g} s; raise its maxSessionTimeout, or say its true "
                    "tickTime by tick="
                )
            )
        elif self._beat_created:
            self._begin()
        else:
            self._reply_timer.expect_reply(table.clock.now())
            self._create_beat(self._on_beat_created)

    def _create_beat(self, on_reply: ReplyCallback) -> None:
        """Creates the znode that is written to, below those that have to be there."""
        for path in self._table.naming.needed():
            self.send(create(self.client, path, b""), _ignore)
        self.send(create(self.client, self.beat_path, b"", EPHEMERAL), on_reply)

    def _on_beat_created(self, value: Any, error: Exception | None) -> None:
        with self._table.mutex:
            self._reply_timer.note_reply(error)
            if isinstance(error, Unanswered):
                return  # there will be another connection
            if error is not None and not isinstance(error, NodeExistsError):
                self._fail(session_refused(self._table.address, self._table.naming.root, error))
                return
            self._beat_created = True
            self._begin()

    def _begin(self) -> None:
        self.ready = True
        self.used_at = self._table.clock.now()
        self._table.call_at(self.used_at + IDLE, self._end_if_idle)
        self.pulse.begin()
        self._await_recall()
        backlog, self._backlog = self._backlog, []
        for requests, on_replies in backlog:
            self.send_all(requests, on_replies)
        self._table.session_ready(self)

    def _await_recall(self) -> None:
        """Reads which lock was last released by force, and watches that: some holder may be ours."""
        version = self._recall_version

        def receive(value: Any, error: Exception | None) -> None:
            if error is not None:
                return  # holders learn by their own watches, or at the next renewal
            with self._table.mutex:
                name, stat = value[0].decode(errors="replace"), value[1]
                self._recall_version = stat.version
                if version is not None and stat.version != version:
                    missed = stat.version > version + 1
                    self._table.recall(self, None if missed else name)

        self.send(get_data(self._table.naming.recall, self._on_recall), receive)

    def _on_recall(self, event: Any) -> None:
        if event.type == EventType.CHANGED and not self.closed:
            self._await_recall()

    def _end_if_idle(self) -> None:
        """Has the session closed, if nothing is on it and it has not been used for a while."""
        with self._table.mutex:
            if not self.ready or self.closed:
                return  # the timer starts again with the next connection
            now = self._table.clock.now()
            self._table.observers.expire()
            if self.attempts or self.observers or self.client.awaits_reply:
                self.used_at = now
            due = self.used_at + IDLE
            if now < due:
                self._table.call_at(due, self._end_if_idle)
            else:
                self._table.drop_session(self)

    def _fail(self, error: LockError) -> None:
        self.error = error
        backlog, self._backlog = self._backlog, []
        for requests, on_replies in backlog:
            on_replies([error] * len(requests))
        self._table.session_failed(self)


def _ignore(value: Any, error: Exception | None) -> None:
    """Ignores a reply: the znode is there now; if not, what is created below it fails and says so."""
