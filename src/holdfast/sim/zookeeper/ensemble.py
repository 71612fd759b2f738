"""A simulated ZooKeeper ensemble: three servers, of which one leads; sessions, zxids and watches.

All that matters to a lock is as it is in ZooKeeper, also where that is awkward:

- A write is agreed to by a majority, gets the next zxid, and reaches each server in its own time; it is
  answered when the server that the client is connected to has applied it. A read is answered by that
  server from what it has applied so far.
- A server that has lost its leader, or a leader that has lost its followers, goes on answering pings,
  reads and `sync` until it notices.
- A session ends when the leader has not heard of it for its timeout. Servers tell the leader twice in
  each tick which sessions they have heard from. A new leader gives all sessions their whole time again.
- Replies and watch events come in order on a connection; a request that is under way when it breaks is
  lost, before or after it was carried out. A session that has moved to another server leaves its old
  requests behind.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kazoo import exceptions
from kazoo.protocol.serialization import (
    Create,
    Create2,
    Delete,
    GetChildren,
    GetChildren2,
    GetData,
    SetData,
    Sync,
)

from ...stores.zookeeper.reads import Reads
from ...stores.zookeeper.requests import Step, step_replies
from ..process import Process
from .tree import Tree, parent_of

if TYPE_CHECKING:
    from ..world import World
    from .client import SimClient

TICK = 0.2
SYNC_LIMIT = 10
"""Ticks after which servers notice that they have lost each other."""
HOP = 0.002
"""Seconds that a message takes at the most, without faults."""
EPHEMERAL, SEQUENTIAL = 1, 2


class ServerSession:
    """A session, as the leader knows it."""

    def __init__(self, number: int, timeout: float) -> None:
        self.number = number
        self.timeout = timeout
        self.heard_at = 0.0
        """The time at which the leader last heard of the session, on the leader's clock."""
        self.home: EnsembleServer | None = None
        """The server to which the session is connected."""
        self.connection = 0
        """The number of its client's latest connection."""


class EnsembleServer:
    """One of the three servers. `connections` are the clients that are connected to it."""

    def __init__(self, ensemble: Ensemble, number: int) -> None:
        self.ensemble = ensemble
        self.process = Process(ensemble.loop, f"zk{number}")
        self.up = True
        self.tree = Tree()
        self.connections: list[SimClient] = []
        self.serving = True
        """False once the server has noticed that it has lost the others."""
        self.lost_since: float | None = None
        self.heard: set[int] = set()
        """Ids of the sessions of which the leader has still to be told."""

    def apply(self, zxid: int, change: tuple[Any, ...]) -> None:
        if self.up:
            self.tree.apply(zxid, change, self._on_change)

    def _on_change(self, path: str, change: str) -> None:
        for client in list(self.connections):
            client.watch_fired(self, path, change)

    # Called by the faults.

    def crash(self) -> None:
        self.up = self.serving = False
        for client in list(self.connections):
            client.disconnected_by(self)

    def save(self) -> None:
        """Does nothing: the server saves every write before it answers."""

    def restart(self, memory: str) -> None:
        self.up = True
        self.ensemble.catch_up(self)


class Ensemble:
    """The servers, the log of all changes, and the sessions."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.loop = world.loop
        self.log: list[tuple[int, tuple[Any, ...]]] = []
        self.epoch = 1
        self.counter = 0
        self.sessions: dict[int, ServerSession] = {}
        self.session_count = 0
        self.servers = [EnsembleServer(self, number) for number in (1, 2, 3)]
        self.leader = self.servers[0]
        self.agreed = Tree()
        """The tree after all changes that a majority has agreed to."""
        self._ways_cut: set[frozenset[str]] = set()
        self._applied = {server: 0 for server in self.servers}
        for server in self.servers:
            self.loop.after(TICK / 2, server.process, self._beat, server)

    # The ways between servers.

    def reach(self, one: EnsembleServer, other: EnsembleServer) -> bool:
        if not (one.up and other.up) or one.process.paused or other.process.paused:
            return False
        cuts = self._ways_cut
        return not cuts or frozenset((one.process.name, other.process.name)) not in cuts

    def cut_off(self, server: EnsembleServer, length: float) -> None:
        """Lets nothing pass between `server` and the others for `length` seconds."""
        names = [
            frozenset((server.process.name, o.process.name))
            for o in self.servers
            if o is not server
        ]
        self._ways_cut.update(names)
        self.loop.after(length, self.world.director, self._mend, names)

    def _mend(self, names: list[frozenset[str]]) -> None:
        self._ways_cut.difference_update(names)

    def has_majority(self, server: EnsembleServer) -> bool:
        """Returns whether `server` reaches a majority, itself included."""
        return sum(other is server or self.reach(server, other) for other in self.servers) >= 2

    def is_connected(self, server: EnsembleServer) -> bool:
        """Returns whether `server` reaches its leader; or, if it leads, a majority."""
        leads = server is self.leader
        return self.has_majority(server) if leads else self.reach(server, self.leader)

    def can_agree(self, server: EnsembleServer) -> bool:
        """Returns whether a write that reaches `server` now is agreed to."""
        leader = self.leader
        near = server is leader or self.reach(server, leader)
        return server.up and near and self.has_majority(leader)

    def _beat(self, server: EnsembleServer) -> None:
        """Reports to the leader, notices losses, elects and expires; called twice in each tick."""
        self.loop.after(TICK / 2, server.process, self._beat, server)
        if not server.up:
            return
        now = self.loop.now
        leads = server is self.leader
        connected = self.is_connected(server)
        if connected and not leads:
            self.catch_up(server)
        if connected:
            server.lost_since = None
            server.serving = True
            for number in server.heard:
                session = self.sessions.get(number)
                if session is not None:
                    session.heard_at = self.leader.process.clock.now()
            server.heard.clear()
            if leads:
                self._expire()
            return
        if server.lost_since is None:
            server.lost_since = now
        if now - server.lost_since > SYNC_LIMIT * TICK:
            if server.serving:
                server.serving = False
                for client in list(server.connections):
                    client.disconnected_by(server)
            if not leads and self.has_majority(server):
                self._elect(server)

    def _elect(self, server: EnsembleServer) -> None:
        """Makes `server` the leader: it has a majority, so it can learn all that was agreed to."""
        self.world.trace.add(server.process.name, "leads from now on")
        self.leader = server
        self.epoch += 1
        self.counter = 0
        self.catch_up(server)
        for session in self.sessions.values():
            session.heard_at = server.process.clock.now()

    def catch_up(self, server: EnsembleServer) -> None:
        """Applies at `server` all changes that were agreed to."""
        if self._applied[server] == len(self.log):
            return
        for zxid, change in self.log[self._applied[server] :]:
            server.apply(zxid, change)
        self._applied[server] = len(self.log)

    def _expire(self) -> None:
        now = self.leader.process.clock.now()
        for session in list(self.sessions.values()):
            if now > session.heard_at + session.timeout:
                self.end_session(session.number)

    # The leader's part: sessions and writes.

    def open_session(
        self, server: EnsembleServer, number: int, timeout: float
    ) -> ServerSession | None:
        """Returns a new session, or the session `number`; None if that has ended."""
        if number:
            session = self.sessions.get(number)
            if session is None:
                return None
        else:
            self.session_count += 1
            number = self.session_count
            session = self.sessions[number] = ServerSession(number, timeout)
        session.heard_at = self.leader.process.clock.now()
        session.home = server
        return session

    def end_session(self, number: int) -> None:
        if self.sessions.pop(number, None) is not None:
            for path, znode in list(self.agreed.znodes.items()):
                if znode.owner == number:
                    self.commit(("delete", path))

    def commit(self, change: tuple[Any, ...]) -> int:
        """Appends a change to the log, and lets all servers that the leader reaches apply it."""
        self.counter += 1
        zxid = (self.epoch << 32) + self.counter
        self.agreed.apply(zxid, change, lambda path, change: None)
        self.log.append((zxid, change))
        for server in self.servers:
            if server is self.leader or self.reach(self.leader, server):
                delay = 0.0 if server is self.leader else self.loop.random.random() * HOP
                self.loop.after(delay, server.process, self._follow, server)
        return zxid

    def _follow(self, server: EnsembleServer) -> None:
        if server.up and (server is self.leader or self.reach(server, self.leader)):
            self.catch_up(server)

    def write(self, session: ServerSession, request: Any) -> Any:
        """Carries out a write; returns the reply, or the error to reply."""
        wall = int(self.leader.process.clock.wall() * 1000)
        if isinstance(request, Step):
            return self._take_step(session, request, wall)
        tree, path = self.agreed.znodes, request.path
        if isinstance(request, Create2):
            parent = tree.get(parent_of(path))
            if parent is None:
                return exceptions.NoNodeError()
            if request.flags & SEQUENTIAL:
                path = f"{path}{parent.creates:010d}"
            if path in tree:
                return exceptions.NodeExistsError()
            owner = session.number if request.flags & EPHEMERAL else 0
            self.commit(("create", path, bytes(request.data), owner, wall))
            return path, tree[path].stat
        znode = tree.get(path)
        if znode is None:
            return exceptions.NoNodeError()
        if isinstance(request, Delete):
            if request.version not in (-1, znode.version):
                return exceptions.BadVersionError()
            self.commit(("delete", path))
            return True
        assert isinstance(request, SetData)
        if request.version not in (-1, znode.version):
            return exceptions.BadVersionError()
        self.commit(("set", path, bytes(request.data), wall))
        return tree[path].stat

    def _take_step(self, session: ServerSession, step: Step, wall: int) -> list[Any]:
        """Carries out all writes of a step, or none; returns their replies, or the error."""
        tree = self.agreed.znodes
        versions: dict[str, int | None] = {}
        """By path: the versions of the znodes that the step has changed so far; None if deleted."""
        changes: list[tuple[Any, ...]] = []
        replies: list[Any] = []
        for write in step.writes:
            path = write.path
            znode = tree.get(path)
            version = versions.get(path, None if znode is None else znode.version)
            error: Exception | None = None
            change: tuple[Any, ...] = ()
            if isinstance(write, Create):
                if parent_of(path) not in tree:
                    error = exceptions.NoNodeError()
                elif write.flags & SEQUENTIAL:
                    path = f"{path}{tree[parent_of(path)].creates:010d}"
                elif version is not None:
                    error = exceptions.NodeExistsError()
                owner = session.number if write.flags & EPHEMERAL else 0
                change = ("create", path, bytes(write.data), owner, wall)
                versions[path] = 0
            elif version is None:
                error = exceptions.NoNodeError()
            elif write.version not in (-1, version):
                error = exceptions.BadVersionError()
            elif isinstance(write, Delete):
                change = ("delete", path)
                versions[path] = None
            else:
                change = ("set", path, bytes(write.data), wall)
                versions[path] = version + 1
            if error is not None:
                return step_replies([*([exceptions.RolledBackError()] * len(replies)), error])
            changes.append(change)
            replies.append(path)
        self.commit(("step", changes))
        for number, write in enumerate(step.writes):
            if isinstance(write, SetData):
                replies[number] = tree[write.path].stat
        return replies

    def read(self, server: EnsembleServer, request: Any) -> Any:
        """Returns the reply to a read, by what `server` has applied."""
        if isinstance(request, Sync):
            return request.path
        if isinstance(request, Reads):
            return [self.read(server, one) for one in request.reads]
        found = server.tree.znodes.get(request.path)
        if found is None:
            return exceptions.NoNodeError()
        if isinstance(request, GetChildren2):
            return list(found.children), found.stat
        if isinstance(request, GetChildren):
            return list(found.children)
        assert isinstance(request, GetData)
        return found.data, found.stat
