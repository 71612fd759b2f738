"""A simulated ZooKeeper ensemble: three nodes, of which one leads; sessions, zxids and watches.

What matters to a lock is as it is in ZooKeeper, also where that is awkward:

- A write is agreed to by a majority, gets the next zxid, and reaches each node in its own time; it is
  answered when the node that the client is connected to has applied it. A read is answered by that node
  from what it has applied so far.
- A node that has lost its leader, or a leader that has lost its followers, goes on answering pings,
  reads and `sync` until it notices.
- A session ends when the leader has not heard of it for its timeout. Nodes tell the leader whom they
  have heard of twice in each tick. A new leader gives all sessions their whole time again.
- Answers and watch events come in order on a connection; what is under way when it breaks is lost,
  before or after it was carried out. A session that has moved to another node leaves its old
  requests behind.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from kazoo import exceptions
from kazoo.protocol.serialization import Create2, Delete, GetChildren2, GetData, SetData, Sync

from ..process import Process

if TYPE_CHECKING:
    from ..world import World
    from .client import SimClient

TICK = 0.2
SYNC_LIMIT = 10
"""Ticks after which nodes notice that they have lost each other."""
HOP = 0.002
EPHEMERAL, SEQUENTIAL = 1, 2


class Stat(NamedTuple):
    czxid: int
    mzxid: int
    mtime: int
    version: int
    ephemeralOwner: int
    pzxid: int


class Znode:
    __slots__ = (
        "children",
        "creates",
        "czxid",
        "data",
        "mtime",
        "mzxid",
        "owner",
        "pzxid",
        "version",
    )

    def __init__(self, data: bytes, owner: int, zxid: int, mtime: int) -> None:
        self.data = data
        self.owner = owner
        self.czxid = self.mzxid = self.pzxid = zxid
        self.mtime = mtime
        self.version = 0
        self.creates = 0
        self.children: dict[str, None] = {}

    @property
    def stat(self) -> Stat:
        return Stat(self.czxid, self.mzxid, self.mtime, self.version, self.owner, self.pzxid)


class Tree:
    """What one node has applied."""

    def __init__(self) -> None:
        self.nodes: dict[str, Znode] = {"/": Znode(b"", 0, 0, 0)}
        self.zxid = 0

    def apply(self, zxid: int, what: tuple[Any, ...], changed: Callable[[str, str], None]) -> None:
        self.zxid = zxid
        kind, path, *rest = what
        parent = _parent(path)
        if kind == "create":
            data, owner, mtime = rest
            self.nodes[path] = Znode(data, owner, zxid, mtime)
            above = self.nodes[parent]
            above.children[path.rpartition("/")[2]] = None
            above.creates += 1
            above.pzxid = zxid
            changed(parent, "children")
        elif kind == "delete":
            self.nodes.pop(path)
            above = self.nodes[parent]
            del above.children[path.rpartition("/")[2]]
            above.pzxid = zxid
            changed(path, "deleted")
            changed(parent, "children")
        elif kind == "set":
            data, mtime = rest
            node = self.nodes[path]
            node.data, node.mzxid, node.mtime = data, zxid, mtime
            node.version += 1
            changed(path, "changed")


class Session:
    def __init__(self, number: int, timeout: float) -> None:
        self.number = number
        self.timeout = timeout
        self.heard = 0.0
        """On the leader's clock."""
        self.home: SimNode | None = None
        self.link = 0
        """Which of its client's connections is the latest."""


class SimNode:
    """One of the three. `links` are the clients' connections to it."""

    def __init__(self, ensemble: Ensemble, number: int) -> None:
        self.ensemble = ensemble
        self.process = Process(ensemble.loop, f"zk{number}")
        self.up = True
        self.tree = Tree()
        self.connections: list[SimClient] = []
        self.serving = True
        self.lost_since: float | None = None
        self.heard: set[int] = set()
        """Sessions of which the leader has still to be told."""

    def apply(self, zxid: int, what: tuple[Any, ...]) -> None:
        if self.up:
            self.tree.apply(zxid, what, self._changed)

    def _changed(self, path: str, how: str) -> None:
        for client in list(self.connections):
            client.watch_fired(self, path, how)

    # What the faults do.

    def crash(self) -> None:
        self.up = self.serving = False
        for client in list(self.connections):
            client.hung_up(self)

    def save(self) -> None:
        """It writes everything down before it answers."""

    def restart(self, memory: str) -> None:
        self.up = True
        self.ensemble.catch_up(self)


class Ensemble:
    def __init__(self, world: World) -> None:
        self.world = world
        self.loop = world.loop
        self.log: list[tuple[int, tuple[Any, ...]]] = []
        self.epoch = 1
        self.counter = 0
        self.sessions: dict[int, Session] = {}
        self.numbers = 0
        self.nodes = [SimNode(self, number) for number in (1, 2, 3)]
        self.leader = self.nodes[0]
        self.truth = Tree()
        """What a majority has agreed to."""
        self._ways_cut: set[frozenset[str]] = set()
        self._applied = {node: 0 for node in self.nodes}
        for node in self.nodes:
            self.loop.after(TICK / 2, node.process, self._beat, node)

    # The ways between nodes.

    def reach(self, one: SimNode, other: SimNode) -> bool:
        if not (one.up and other.up) or one.process.paused or other.process.paused:
            return False
        cuts = self._ways_cut
        return not cuts or frozenset((one.process.name, other.process.name)) not in cuts

    def cut_off(self, node: SimNode, length: float) -> None:
        names = [
            frozenset((node.process.name, o.process.name)) for o in self.nodes if o is not node
        ]
        self._ways_cut.update(names)
        self.loop.after(length, self.world.director, self._mend, names)

    def _mend(self, names: list[frozenset[str]]) -> None:
        self._ways_cut.difference_update(names)

    def heal(self) -> None:
        self._ways_cut.clear()

    def majority(self, node: SimNode) -> bool:
        return sum(other is node or self.reach(node, other) for other in self.nodes) >= 2

    def _beat(self, node: SimNode) -> None:
        """Twice in each tick: tell the leader, notice what is lost, elect, expire."""
        self.loop.after(TICK / 2, node.process, self._beat, node)
        if not node.up:
            return
        now = self.loop.now
        leads = node is self.leader
        well = self.majority(node) if leads else self.reach(node, self.leader)
        if well and not leads:
            self.catch_up(node)
        if well:
            node.lost_since = None
            node.serving = True
            for number in node.heard:
                session = self.sessions.get(number)
                if session is not None:
                    session.heard = self.leader.process.clock.now()
            node.heard.clear()
            if leads:
                self._expire()
            return
        if node.lost_since is None:
            node.lost_since = now
        if now - node.lost_since > SYNC_LIMIT * TICK:
            if node.serving:
                node.serving = False
                for client in list(node.connections):
                    client.hung_up(node)
            if not leads and self.majority(node):
                self._elect(node)

    def _elect(self, node: SimNode) -> None:
        """It has a majority, so it can learn all that was agreed to; the old leader cannot."""
        self.world.trace.add(node.process.name, "leads from now on")
        self.leader = node
        self.epoch += 1
        self.counter = 0
        self.catch_up(node)
        for session in self.sessions.values():
            session.heard = node.process.clock.now()

    def catch_up(self, node: SimNode) -> None:
        if self._applied[node] == len(self.log):
            return
        for zxid, what in self.log[self._applied[node] :]:
            node.apply(zxid, what)
        self._applied[node] = len(self.log)

    def _expire(self) -> None:
        now = self.leader.process.clock.now()
        for session in list(self.sessions.values()):
            if now > session.heard + session.timeout:
                self.end_session(session.number)

    # Sessions and writes, as the leader decides.

    def open_session(self, node: SimNode, number: int, timeout: float) -> Session | None:
        """None: it has ended."""
        if number:
            session = self.sessions.get(number)
            if session is None:
                return None
        else:
            self.numbers += 1
            session = self.sessions[self.numbers] = Session(self.numbers, timeout)
        session.heard = self.leader.process.clock.now()
        session.home = node
        return session

    def end_session(self, number: int) -> None:
        if self.sessions.pop(number, None) is not None:
            for path, node in list(self.truth.nodes.items()):
                if node.owner == number:
                    self.commit(("delete", path))

    def commit(self, what: tuple[Any, ...]) -> int:
        self.counter += 1
        zxid = (self.epoch << 32) + self.counter
        self.truth.apply(zxid, what, lambda path, how: None)
        self.log.append((zxid, what))
        for node in self.nodes:
            if node is self.leader or self.reach(self.leader, node):
                delay = 0.0 if node is self.leader else self.loop.random.random() * HOP
                self.loop.after(delay, node.process, self._follow, node)
        return zxid

    def _follow(self, node: SimNode) -> None:
        if node.up and (node is self.leader or self.reach(node, self.leader)):
            self.catch_up(node)

    def write(self, session: Session, request: Any) -> Any:
        """The answer, or the error to answer, by what was agreed to so far."""
        tree, path = self.truth.nodes, request.path
        wall = int(self.leader.process.clock.wall() * 1000)
        if isinstance(request, Create2):
            parent = tree.get(_parent(path))
            if parent is None:
                return exceptions.NoNodeError()
            if request.flags & SEQUENTIAL:
                path = f"{path}{parent.creates:010d}"
            if path in tree:
                return exceptions.NodeExistsError()
            owner = session.number if request.flags & EPHEMERAL else 0
            self.commit(("create", path, bytes(request.data), owner, wall))
            return path, tree[path].stat
        node = tree.get(path)
        if node is None:
            return exceptions.NoNodeError()
        if isinstance(request, Delete):
            self.commit(("delete", path))
            return True
        assert isinstance(request, SetData)
        if request.version not in (-1, node.version):
            return exceptions.BadVersionError()
        self.commit(("set", path, bytes(request.data), wall))
        return tree[path].stat

    def read(self, node: SimNode, request: Any) -> Any:
        """What this node knows."""
        if isinstance(request, Sync):
            return request.path
        found = node.tree.nodes.get(request.path)
        if found is None:
            return exceptions.NoNodeError()
        if isinstance(request, GetChildren2):
            return list(found.children), found.stat
        assert isinstance(request, GetData)
        return found.data, found.stat


def _parent(path: str) -> str:
    return path.rpartition("/")[0] or "/"
