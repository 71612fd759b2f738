"""A Redis cluster of three primaries and a replica of the first, or of each: throw-away, quick to fail
over where that is asked for, and never because the machine stood still for a moment."""

from __future__ import annotations

import socket
import time
from binascii import crc_hqx
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from typing import Any

from .errors import ServerError
from .ports import free_port
from .redis import READY_LIMIT, RedisServer

SLOTS = 16384
BUS = 10000
CALM, HASTY = 20_000, 400
"""Milliseconds without an answer after which a node counts as failed."""


class ClusterNode(RedisServer):
    def __init__(
        self, *options: str, port: int = 0, known_at: tuple[int, int] = (0, 0), **others: Any
    ) -> None:
        """Starts a node. `others` are those of a server.

        The others know it by the ports of `known_at`, for clients and for nodes, if those are not 0.
        """
        port = port or port_with_bus()
        self.known_port, self._known_bus = known_at if any(known_at) else (port, port + BUS)
        words: list[object] = []
        if any(known_at):
            words = ["--cluster-announce-ip", "127.0.0.1"]
            words += ["--cluster-announce-port", self.known_port]
            words += ["--cluster-announce-bus-port", self._known_bus]
        super().__init__(
            "--cluster-enabled", "yes", *map(str, words), *options, port=port, **others
        )
        self.id: str = self("CLUSTER", "MYID").decode()

    def _arguments(self) -> list[str]:
        quick = ["--cluster-node-timeout", str(CALM), "--repl-diskless-sync-delay", "0"]
        quick += ["--cluster-replica-validity-factor", "0", "--cluster-require-full-coverage", "no"]
        return [*super()._arguments(), *quick]

    @property
    def meeting_place(self) -> tuple[str, int, int]:
        """The address and the ports by which other nodes meet it."""
        return self.site.host, self.known_port, self._known_bus

    def owner_of(self, slot: int) -> int:
        """Returns the port of the node that serves a slot, as this node knows it; 0: nobody does."""
        for start, end, primary, *_ in self("CLUSTER", "SLOTS"):
            if start <= slot <= end:
                return int(primary[1])
        return 0

    @property
    def follows(self) -> bool:
        """Whether it is a replica that has all that its primary has."""
        return b"master_link_status:up" in self("INFO", "replication")

    def knows(self, word: str) -> bool:
        return word.encode() in self("CLUSTER", "INFO")


class Cluster:
    def __init__(
        self, replicas: int = 1, make: Callable[[int], ClusterNode] = lambda number: ClusterNode()
    ) -> None:
        """Starts three primaries and so many replicas, of one primary each, by `make`."""
        self.nodes: list[ClusterNode] = []
        self._numbers = count()
        try:
            for number in range(3 + replicas):
                self.nodes.append(make(number))
            self._join()
        except BaseException:
            self.stop()
            raise

    @property
    def primaries(self) -> list[ClusterNode]:
        return self.nodes[:3]

    @property
    def replica(self) -> ClusterNode:
        """The replica of the first primary."""
        return self.nodes[3]

    @property
    def url(self) -> str:
        hosts = ",".join(f"127.0.0.1:{node.port}" for node in self.nodes)
        return f"redis+cluster://{hosts}"

    def _join(self) -> None:
        for number, node in enumerate(self.primaries):
            share = range(number * SLOTS // 3, (number + 1) * SLOTS // 3)
            node("CLUSTER", "ADDSLOTS", *share)
            node("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
        for node in self.nodes:
            for other in self.nodes:
                if other is not node:
                    node("CLUSTER", "MEET", *other.meeting_place)
        every = f"cluster_known_nodes:{len(self.nodes)}\r"
        self.await_(lambda: all(node.knows(every) for node in self.nodes))
        for primary, replica in zip(self.nodes, self.nodes[3:], strict=False):
            self._follow(replica, primary)
        self.await_(lambda: all(node.knows("cluster_state:ok") for node in self.nodes))
        for primary, replica in zip(self.nodes, self.nodes[3:], strict=False):
            self._await_followed(replica, primary)

    def _follow(self, replica: ClusterNode, primary: ClusterNode) -> None:
        self.await_(lambda: replica("CLUSTER", "REPLICATE", primary.id) is not None)

    def _await_followed(self, replica: ClusterNode, primary: ClusterNode) -> None:
        self.await_(lambda: replica.follows and primary("CLUSTER", "REPLICAS", primary.id))

    def replica_of(self, primary: ClusterNode) -> ClusterNode:
        """Returns the node that follows this one, once it knows of it."""
        lines: list[bytes] = []

        def is_known() -> bool:
            lines[:] = primary("CLUSTER", "REPLICAS", primary.id)
            return len(lines) == 1

        self.await_(is_known)
        return next(node for node in self.nodes if node.id == lines[0].decode().split()[0])

    def wait_ready(self) -> None:
        """Waits until every slot is served, and every node is a primary or has what its primary has."""
        self.await_(self._complete)

    def _complete(self) -> bool:
        if not all(node.knows("cluster_state:ok") for node in self.nodes):
            return False
        primaries = [node for node in self.nodes if node("ROLE")[0] == b"master"]
        replicas = [node for node in self.nodes if node not in primaries]
        return len(primaries) == 3 and all(node.follows for node in replicas)

    def await_(self, condition: Callable[[], object]) -> None:
        limit = time.monotonic() + READY_LIMIT
        while True:
            with suppress(OSError, ServerError):
                if condition():
                    return
            if time.monotonic() > limit:
                raise ServerError("the cluster did not agree in time")
            time.sleep(0.01)

    def owner(self, slot: int) -> ClusterNode:
        """Which node serves it, once all that live agree on that."""
        ports: set[int] = set()

        def agree() -> bool:
            ports.clear()
            for node in self.nodes:
                if node.running:
                    ports.add(node.owner_of(slot))
            return len(ports) == 1

        self.await_(agree)
        return next(node for node in self.nodes if node.known_port in ports)

    def name_at(self, node: ClusterNode, word: str = "x") -> str:
        """A lock whose keys live there."""
        while True:
            name = f"{word}{next(self._numbers)}"
            if self.owner(slot_of(name)) is node:
                return name

    def begin_move(self, slot: int, source: ClusterNode, target: ClusterNode) -> None:
        target("CLUSTER", "SETSLOT", slot, "IMPORTING", source.id)
        source("CLUSTER", "SETSLOT", slot, "MIGRATING", target.id)

    def move_keys(self, slot: int, source: ClusterNode, target: ClusterNode, count: int) -> int:
        keys = source("CLUSTER", "GETKEYSINSLOT", slot, count)
        if keys:
            source("MIGRATE", "127.0.0.1", target.port, "", 0, 5000, "KEYS", *keys)
        return len(keys)

    def end_move(self, slot: int, source: ClusterNode, target: ClusterNode) -> None:
        while self.move_keys(slot, source, target, 100):
            pass
        for node in (target, source):
            node("CLUSTER", "SETSLOT", slot, "NODE", target.id)
        if self.owner(slot) is not target:
            raise ServerError(f"slot {slot} was not moved")

    def hurry(self, timeout: int = HASTY) -> None:
        """From now on who does not answer is soon replaced."""
        for node in self.nodes:
            if node.running:
                node("CONFIG", "SET", "cluster-node-timeout", timeout)

    def heal(self) -> None:
        """The first, which was killed and replaced, comes back as the replica of who replaced it."""
        self.nodes[0].start()
        self.hurry()
        self.nodes[0], self.nodes[3] = self.nodes[3], self.nodes[0]
        for words in (("masteruser", ""), ("masterauth", "")):
            self.nodes[0]("CONFIG", "SET", *words)
        self.await_(lambda: b"link_status:up" in self.replica("INFO", "replication"))
        self.await_(lambda: all(node.knows("cluster_state:ok") for node in self.nodes))
        self.hurry(CALM)

    def cut_off_replica(self) -> None:
        """From now on it receives nothing."""
        for words in (("masteruser", "nobody"), ("masterauth", "wrong")):
            self.replica("CONFIG", "SET", *words)
        self.nodes[0]("CLIENT", "KILL", "TYPE", "replica")
        self.await_(lambda: b"link_status:down" in self.replica("INFO", "replication"))

    def flush(self) -> None:
        for node in self.nodes:
            with suppress(ServerError):  # a replica
                node("FLUSHALL")

    def stop(self) -> None:
        for node in self.nodes:
            node.stop()


def port_with_bus() -> int:
    """A free port whose companion, on which the nodes talk to each other, is free too."""
    while True:
        port = free_port()
        if port + BUS < 65536:
            with suppress(OSError), socket.create_server(("127.0.0.1", port + BUS)):
                return port


def slot_of(name: str) -> int:
    return crc_hqx(name.encode(), 0) % SLOTS
