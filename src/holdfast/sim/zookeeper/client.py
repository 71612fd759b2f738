"""What stands in for kazoo's client in the simulator: a connection and a session, in its words."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from kazoo import exceptions
from kazoo.protocol.serialization import Create2, Delete, GetChildren2, SetData, Sync
from kazoo.protocol.states import EventType, KazooState

from ...stores.zookeeper.client import Reply
from ..process import PROCESS
from .ensemble import HOP, Ensemble, Session, SimNode

if TYPE_CHECKING:
    from ..world import World

Then = Callable[[Any, Exception | None], None]
RETRY = 0.05
AGAIN = 0.05
WRITES = (Create2, Delete, SetData)


class Event(NamedTuple):
    type: Any
    path: str | None


class SimClient:
    """One session, connected to one node at a time. All of it runs in its client's process."""

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
        self.greeted = 0.0
        self.acl: list[Any] = []
        self.session = 0
        self.negotiated = timeout
        self.client_state = "CONNECTED"
        self._timeout = timeout
        self._on_state = on_state
        self._on_lost = on_lost
        self._process = PROCESS.get()
        self._loop = self.ensemble.loop
        self._state = KazooState.LOST
        self._node: SimNode | None = None
        self._link = 0
        """Which connection this is: what comes from an earlier one is not heard any more."""
        self._pending: deque[Reply] = deque()
        self._waiting_to_send: deque[tuple[Any, Reply]] = deque()
        self._watches: dict[tuple[str, str], Callable[[Any], None]] = {}
        self._heard = 0.0
        self._there = self._back = 0.0
        self._silenced: set[tuple[int, bool]] = set()
        self._at_node: dict[tuple[SimNode, int], deque[tuple[int, Any, Reply]]] = {}
        self._seen = 0
        self._ended = False

    @property
    def waiting(self) -> bool:
        return bool(self._pending)

    @property
    def connected(self) -> bool:
        return self._node is not None

    def start_async(self) -> None:
        self._loop.after(0.0, self._process, self._connect)
        self._loop.after(self._timeout / 3, self._process, self._ping)

    def send(self, request: Any, then: Then) -> None:
        reply = Reply(then, self._on_lost)
        if self._node is None:
            self._waiting_to_send.append((request, reply))
        else:
            self._transmit(request, reply)

    def drop(self) -> None:
        if self._node is not None:
            self._loop.after(0.0, self._process, self._broken, self._link)

    def end(self) -> None:
        self._ended = True
        node = self._node
        if node is not None:
            self._to_node(self._closes, self._link, node)
        self._leave()

    def _closes(self, link: int, node: SimNode) -> None:
        if self._answering(node):
            self.ensemble.end_session(self.session)

    # Connecting.

    def _connect(self) -> None:
        if self._ended or self._node is not None:
            return
        ensemble = self.ensemble
        node = self._loop.random.choice(ensemble.nodes)
        self._link += 1
        cut = self._cut(node, True) or self._cut(node, False)
        leads = node is ensemble.leader
        well = ensemble.majority(node) if leads else ensemble.reach(node, ensemble.leader)
        able = node.up and node.serving and not node.process.paused and well and not cut
        # What it has seen already it wants to see again.
        able = able and node.tree.zxid >= self._seen
        if not able:
            self._loop.after(RETRY, self._process, self._connect)
            return
        self.greeted = self._now()
        session = ensemble.open_session(node, self.session, self._timeout)
        if session is not None:
            session.link = self._link
        self._loop.after(HOP, self._process, self._connected, node, session)

    def _connected(self, node: SimNode, session: Session | None) -> None:
        if self._ended:
            return
        if session is None:
            self.session = 0
            self._seen = 0
            self._change(KazooState.LOST)
            self._fail(exceptions.SessionExpiredError())
            self._watches.clear()
            self._loop.after(RETRY, self._process, self._connect)
            return
        self.session = session.number
        self._node = node
        node.connections.append(self)
        self._heard = self._loop.now
        self._there = self._back = self._loop.now
        self._change(KazooState.CONNECTED)
        while self._waiting_to_send and self._node is node:
            self._transmit(*self._waiting_to_send.popleft())

    def _change(self, state: str) -> None:
        if state != self._state:
            self._state = state
            self._on_state(state)

    def _fail(self, error: Exception) -> None:
        replies = [*self._pending, *(reply for _, reply in self._waiting_to_send)]
        self._pending.clear()
        self._waiting_to_send.clear()
        for reply in replies:
            reply.set_exception(error)

    def _leave(self) -> None:
        if self._node is not None and self in self._node.connections:
            self._node.connections.remove(self)
        self._node = None

    def hung_up(self, node: SimNode) -> None:
        """By the node."""
        if node is self._node:
            self._loop.after(HOP, self._process, self._broken, self._link)

    def _broken(self, link: int) -> None:
        if link != self._link or self._node is None:
            return
        self._leave()
        self._fail(exceptions.ConnectionLoss())
        self._change(KazooState.SUSPENDED)
        self._watches.clear()
        self._loop.after(RETRY * self._loop.random.random(), self._process, self._connect)

    def close(self) -> None:
        """Its process was killed."""
        self._leave()

    @property
    def client(self) -> Any:
        return self._process

    def _ping(self) -> None:
        if self._ended:
            return
        self._loop.after(self._timeout / 3, self._process, self._ping)
        node = self._node
        if node is not None:
            if self._loop.now - self._heard > self._timeout * 2 / 3:
                self._broken(self._link)
            else:
                self._to_node(self._pinged, self._link, node)

    def _pinged(self, link: int, node: SimNode) -> None:
        node.heard.add(self.session)
        self._to_client(self._pong, link, node)

    def _pong(self, link: int) -> None:
        if link == self._link:
            self._heard = self._loop.now

    # Requests, in order; held up while a way is cut, as TCP does.

    def _cut(self, node: SimNode, there: bool) -> bool:
        pair = (self._process.name, node.process.name)
        return (pair if there else pair[::-1]) in self.world.network.cuts

    def _to_node(self, what: Callable[..., None], link: int, node: SimNode, *args: Any) -> None:
        self._there = max(self._there, self._loop.now) + self._loop.random.random() * HOP
        self._loop.at(self._there, node.process, self._arrives, True, what, link, node, *args)

    def _to_client(self, what: Callable[..., None], link: int, node: SimNode, *args: Any) -> None:
        self._back = max(self._back, self._loop.now) + self._loop.random.random() * HOP
        self._loop.at(self._back, self._process, self._arrives, False, what, link, node, *args)

    def _arrives(
        self, there: bool, what: Callable[..., None], link: int, node: SimNode, *args: Any
    ) -> None:
        if self._cut(node, there) or not node.up:
            self._silenced.add((link, there))
        if (link, there) in self._silenced:
            return  # and nothing behind it: whoever waits for it gives the connection up
        if there:
            what(link, node, *args)
        else:
            what(link, *args)

    def _transmit(self, request: Any, reply: Reply) -> None:
        node = self._node
        assert node is not None
        self._pending.append(reply)
        draw = self._loop.random.random
        chances = self.world.network.chances
        if draw() < chances.lost:
            self._loop.after(HOP, self._process, self._broken, self._link)
            return
        if draw() < chances.unanswered + chances.overtaken:
            self._loop.after(HOP * 4, self._process, self._broken, self._link)
        if draw() < chances.slow:
            self._there = max(self._there, self._loop.now) + draw() * chances.slowest
        self._to_node(self._received, self._link, node, request, reply)

    def _answering(self, node: SimNode) -> bool:
        """Whether a write that reaches this node now is agreed to."""
        ensemble = self.ensemble
        leader = ensemble.leader
        near = node is leader or ensemble.reach(node, leader)
        return node.up and near and ensemble.majority(leader)

    def _received(self, link: int, node: SimNode, request: Any, reply: Reply) -> None:
        session = self.ensemble.sessions.get(self.session)
        if session is not None and session.home is node and link < session.link:
            return  # there is a newer connection to this node: it has closed this one
        node.heard.add(self.session)
        queue = self._at_node.setdefault((node, self.session), deque())
        queue.append((link, request, reply))
        if len(queue) == 1:
            self._pump(node, self.session)

    def _pump(self, node: SimNode, session: int) -> None:
        """One after the other, also those of an earlier connection to this node: what cannot be agreed
        to now holds up what is behind it."""
        queue = self._at_node[node, session]
        while queue:
            link, request, reply = queue[0]
            if not node.up:
                queue.clear()
                return
            if isinstance(request, (*WRITES, Sync)) and not self._able(node, request):
                # It may yet be agreed to, when nobody waits for it any more.
                self._loop.after(AGAIN, node.process, self._pump, node, session)
                return
            queue.popleft()
            answer = self._carried_out(node, request, session)
            if answer is None:
                queue.clear()  # the session has moved, or ended
                return
            self._to_client(self._answered, link, node, reply, answer, node.tree.zxid)

    def _able(self, node: SimNode, request: Any) -> bool:
        ensemble = self.ensemble
        if isinstance(request, Sync) and node is ensemble.leader:
            return True  # it asks nobody
        return self._answering(node)

    def _carried_out(self, node: SimNode, request: Any, number: int) -> Any:
        ensemble = self.ensemble
        if isinstance(request, WRITES):
            session = ensemble.sessions.get(number)
            if session is None or session.home is not node:
                return None
            answer = ensemble.write(session, request)
            ensemble.catch_up(node)
            return answer
        if isinstance(request, Sync) and ensemble.majority(node):
            ensemble.catch_up(node)
        answer = ensemble.read(node, request)
        watcher = getattr(request, "watcher", None)
        if watcher is not None and not isinstance(answer, Exception):
            kind = "children" if isinstance(request, GetChildren2) else "data"
            self._watches[request.path, kind] = watcher
        return answer

    def _answered(self, link: int, reply: Reply, answer: Any, zxid: int) -> None:
        if link != self._link or not self._pending or self._pending[0] is not reply:
            return
        self._pending.popleft()
        self._heard = self._loop.now
        self._seen = max(self._seen, zxid)
        if isinstance(answer, Exception):
            reply.set_exception(answer)
        else:
            reply.set(answer)

    def watch_fired(self, node: SimNode, path: str, how: str) -> None:
        """At the node: something there has changed."""
        kinds = {"children": ["children"], "changed": ["data"], "deleted": ["data", "children"]}
        for kind in kinds[how]:
            watcher = self._watches.pop((path, kind), None)
            if watcher is not None and node is self._node:
                deleted, changed = EventType.DELETED, EventType.CHANGED
                event = Event(deleted if how == "deleted" else changed, path)
                self._to_client(self._told, self._link, node, watcher, event)

    def _told(self, link: int, watcher: Callable[[Any], None], event: Event) -> None:
        if link == self._link:
            self._heard = self._loop.now
            watcher(event)
