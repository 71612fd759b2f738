"""The simulator's stand-in for kazoo's client: a connection and a session, with the same members."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from kazoo import exceptions
from kazoo.protocol.states import EventType, KazooState

from ...stores.zookeeper.client import PendingReply
from ...stores.zookeeper.requests import ReplyCallback
from ..process import PROCESS, Process
from .ensemble import HOP, Ensemble, EnsembleServer, ServerSession
from .request_queues import RequestQueues

if TYPE_CHECKING:
    from ..world import World

RETRY = 0.05
"""Seconds after which a client that could not connect tries again."""


class Event(NamedTuple):
    """An event of a watch, as kazoo passes it on."""

    type: Any
    path: str | None


class SimClient:
    """One session, connected to one server at a time. All of it runs in its client's process.

    Connections have numbers, so that what comes from an earlier one is ignored.
    """

    world: World
    ensemble: Ensemble

    def __init__(
        self,
        address: Any,
        timeout: float,
        on_state: Callable[[str], None],
        on_lost: Callable[[], None],
        now: Callable[[], float],
    ) -> None:
        self._now = now
        self.greeted_at = 0.0
        self.replied_at = 0.0
        self.acl: list[Any] = []
        self.session_id = 0
        self.session_timeout = timeout
        self.client_state = "CONNECTED"
        self._timeout = timeout
        self._on_state = on_state
        self._on_lost = on_lost
        self._process = PROCESS.get()
        self._loop = self.ensemble.loop
        self._state = KazooState.LOST
        names = {host.partition(":")[0] for host in address.hosts.split(",")}
        self._servers = [one for one in self.ensemble.servers if one.process.name in names]
        self._server: EnsembleServer | None = None
        self._connection = 0
        """The number of the latest connection."""
        self._pending: deque[PendingReply] = deque()
        self._unsent: deque[tuple[Any, PendingReply]] = deque()
        """Requests that wait for a connection."""
        self._heard_at = 0.0
        self._last_arrival = self._last_delivery = 0.0
        """The times at which the latest messages arrive: at the server, and at the client."""
        self._silenced: set[tuple[int, bool]] = set()
        """Connections on which nothing arrives any more, and the direction: True is to the server."""
        self._requests = RequestQueues(self.ensemble, self._reply)
        self._seen_zxid = 0
        self._ended = False

    @property
    def awaits_reply(self) -> bool:
        return bool(self._pending)

    @property
    def connected(self) -> bool:
        return self._server is not None

    def start_async(self) -> None:
        self._loop.after(0.0, self._process, self._connect)
        self._loop.after(self._timeout / 3, self._process, self._ping)

    def send(self, request: Any, on_reply: ReplyCallback) -> None:
        pending = PendingReply(on_reply, self._on_lost)
        if self._server is None:
            self._unsent.append((request, pending))
        else:
            self._transmit(request, pending)

    def drop_connection(self) -> None:
        if self._server is not None:
            self._loop.after(0.0, self._process, self._break, self._connection)

    failure = ""

    def end(self, on_ended: Callable[[], None], stays: bool = False) -> None:
        self._ended = True
        server = self._server
        if server is not None and not stays:
            self._to_server(self._close_session, self._connection, server)
        self._leave()
        on_ended()

    def _close_session(self, connection: int, server: EnsembleServer) -> None:
        if self.ensemble.can_agree(server):
            self.ensemble.end_session(self.session_id)

    # Connecting.

    def _connect(self) -> None:
        if self._ended or self._server is not None:
            return
        ensemble = self.ensemble
        server = self._loop.random.choice(self._servers)
        self._connection += 1
        cut = self._is_cut(server, True) or self._is_cut(server, False)
        able = server.up and server.serving and not server.process.paused
        able = able and ensemble.is_connected(server) and not cut
        # A client does not go back behind what it has seen.
        able = able and server.tree.zxid >= self._seen_zxid
        if not able:
            self._loop.after(RETRY, self._process, self._connect)
            return
        self.greeted_at = self._now()
        session = ensemble.open_session(server, self.session_id, self._timeout)
        if session is not None:
            session.connection = self._connection
        self._loop.after(HOP, self._process, self._greeted, server, session)

    def _greeted(self, server: EnsembleServer, session: ServerSession | None) -> None:
        """Takes the server's reply to the greeting; without a session, the old one has ended."""
        if self._ended:
            return
        if session is None:
            self.session_id = 0
            self._seen_zxid = 0
            self._change_state(KazooState.LOST)
            self._fail_all(exceptions.SessionExpiredError())
            self._requests.watches.clear()
            self._loop.after(RETRY, self._process, self._connect)
            return
        self.session_id = session.number
        self._server = server
        server.connections.append(self)
        self._heard_at = self._loop.now
        self._last_arrival = self._last_delivery = self._loop.now
        self._change_state(KazooState.CONNECTED)
        while self._unsent and self._server is server:
            self._transmit(*self._unsent.popleft())

    def _change_state(self, state: str) -> None:
        if state != self._state:
            self._state = state
            self._on_state(state)

    def _fail_all(self, error: Exception) -> None:
        """Fails all requests that were not answered."""
        replies = [*self._pending, *(pending for _, pending in self._unsent)]
        self._pending.clear()
        self._unsent.clear()
        for pending in replies:
            pending.set_exception(error)

    def _leave(self) -> None:
        if self._server is not None and self in self._server.connections:
            self._server.connections.remove(self)
        self._server = None

    def disconnected_by(self, server: EnsembleServer) -> None:
        """Breaks the connection, because `server` has closed it."""
        if server is self._server:
            self._loop.after(HOP, self._process, self._break, self._connection)

    def _break(self, connection: int) -> None:
        if connection != self._connection or self._server is None:
            return
        self._leave()
        self._fail_all(exceptions.ConnectionLoss())
        self._change_state(KazooState.SUSPENDED)
        self._requests.watches.clear()
        self._loop.after(RETRY * self._loop.random.random(), self._process, self._connect)

    def close(self) -> None:
        """Leaves the server, because the client's process was killed."""
        self._leave()

    @property
    def client(self) -> Process:
        return self._process

    def _ping(self) -> None:
        if self._ended:
            return
        self._loop.after(self._timeout / 3, self._process, self._ping)
        server = self._server
        if server is not None:
            if self._loop.now - self._heard_at > self._timeout * 2 / 3:
                self._break(self._connection)
            else:
                self._to_server(self._on_ping, self._connection, server)

    def _on_ping(self, connection: int, server: EnsembleServer) -> None:
        server.heard.add(self.session_id)
        self._to_client(self._on_pong, connection, server)

    def _on_pong(self, connection: int) -> None:
        if connection == self._connection:
            self._heard_at = self._loop.now

    # Messages arrive in order, or not at all.

    def _is_cut(self, server: EnsembleServer, to_server: bool) -> bool:
        ends = (self._process.name, server.process.name)
        return (ends if to_server else ends[::-1]) in self.world.network.cuts

    def _to_server(
        self, action: Callable[..., None], connection: int, server: EnsembleServer, *args: Any
    ) -> None:
        delay = self._loop.random.random() * HOP
        self._last_arrival = at = max(self._last_arrival, self._loop.now) + delay
        call = (self._arrive, True, action, connection, server, *args)
        self._loop.at(at, server.process, *call)

    def _to_client(
        self, action: Callable[..., None], connection: int, server: EnsembleServer, *args: Any
    ) -> None:
        delay = self._loop.random.random() * HOP
        self._last_delivery = at = max(self._last_delivery, self._loop.now) + delay
        call = (self._arrive, False, action, connection, server, *args)
        self._loop.at(at, self._process, *call)

    def _arrive(
        self,
        to_server: bool,
        action: Callable[..., None],
        connection: int,
        server: EnsembleServer,
        *args: Any,
    ) -> None:
        if self._is_cut(server, to_server) or not server.up:
            self._silenced.add((connection, to_server))
        if (connection, to_server) in self._silenced:
            return  # and nothing behind it arrives: the end that waits for it drops the connection
        if to_server:
            action(connection, server, *args)
        else:
            action(connection, *args)

    def _transmit(self, request: Any, pending: PendingReply) -> None:
        server = self._server
        assert server is not None
        self._pending.append(pending)
        draw = self._loop.random.random
        chances = self.world.network.chances
        if draw() < chances.lost:
            self._loop.after(HOP, self._process, self._break, self._connection)
            return
        if draw() < chances.unanswered + chances.overtaken:
            self._loop.after(HOP * 4, self._process, self._break, self._connection)
        if draw() < chances.slow:
            delay = draw() * chances.slowest
            self._last_arrival = max(self._last_arrival, self._loop.now) + delay
        self._to_server(self._on_request, self._connection, server, request, pending)

    # At the server.

    def _on_request(
        self, connection: int, server: EnsembleServer, request: Any, pending: PendingReply
    ) -> None:
        self._requests.receive(connection, server, self.session_id, request, pending)

    def _reply(
        self, connection: int, server: EnsembleServer, pending: PendingReply, reply: Any
    ) -> None:
        zxid = server.tree.zxid
        self._to_client(self._on_reply, connection, server, pending, reply, zxid)

    def watch_fired(self, server: EnsembleServer, path: str, change: str) -> None:
        """Sends the events of watches on `path`, after a change on `server`."""
        kinds = {"children": ["children"], "changed": ["data"], "deleted": ["data", "children"]}
        for kind in kinds[change]:
            watcher = self._requests.watches.pop((path, kind), None)
            if watcher is not None and server is self._server:
                deleted, changed = EventType.DELETED, EventType.CHANGED
                event = Event(deleted if change == "deleted" else changed, path)
                self._to_client(self._on_event, self._connection, server, watcher, event)

    # Back at the client.

    def _on_reply(self, connection: int, pending: PendingReply, reply: Any, zxid: int) -> None:
        if connection != self._connection or not self._pending or self._pending[0] is not pending:
            return
        self._pending.popleft()
        self._heard_at = self._loop.now
        self.replied_at = self._now()
        self._seen_zxid = max(self._seen_zxid, zxid)
        if isinstance(reply, Exception):
            pending.set_exception(reply)
        else:
            pending.set(reply)

    def _on_event(self, connection: int, watcher: Callable[[Any], None], event: Event) -> None:
        if connection == self._connection:
            self._heard_at = self._loop.now
            watcher(event)
