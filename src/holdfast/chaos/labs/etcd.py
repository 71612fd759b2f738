"""An etcd cluster of three members, whose links to each other can be cut."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ...guarantees import Guarantees
from ...stores.etcd.guarantees import ETCD
from ..faults import Fault
from ..servers.etcd import EtcdCluster, Member
from ..servers.proxy import Place
from .lab import Chance, Injury
from .leftovers import left_on
from .nodes import Node, NodeLab


class EtcdLab(NodeLab):
    name = "etcd"
    title = "etcd"
    programs = ("etcd:etcd-server", "etcdctl:etcd-client")
    modules = ("hpack",)
    extra = "etcd"
    about = b"/holdfast/"
    syncs = "fdatasync"
    possible = tuple(fault for fault in NodeLab.possible if fault != "clock")

    def __init__(self) -> None:
        super().__init__()
        self._cluster = EtcdCluster(3, hasty=False)
        self._nodes = [self._node(member) for member in self._cluster.members]

    def _node(self, member: Member) -> Node:
        def start() -> None:
            member.start()
            self._cluster.wait_ready(member)

        return Node(
            member.name,
            pid=lambda: member.pid,
            start=start,
            kill=member.kill,
            wipe=partial(self._cluster.replace, member),
        )

    def why_not(self, fault: str) -> str | None:
        if fault == "clock":
            return (
                "etcd asks the kernel for the time by itself, so its clock cannot be stepped alone"
            )
        return super().why_not(fault)

    @property
    def guarantees(self) -> Guarantees:
        return ETCD

    @property
    def shortest_ttl(self) -> float:
        return 2.0

    @property
    def servers(self) -> list[Node]:
        return self._nodes

    def choose(self, chance: Chance) -> Node:
        """Every other time the leader."""
        if chance.random.random() < 0.5:
            return self._leader()
        return super().choose(chance)

    def _leader(self) -> Node:
        return self._nodes[self._cluster.members.index(self._cluster.leader())]

    def places(self) -> dict[str, Place]:
        return {member.name: member.port for member in self._cluster.members}

    def url_of(self, ports: Sequence[int]) -> str:
        return "etcd://" + ",".join(f"127.0.0.1:{port}" for port in ports)

    @property
    def direct_url(self) -> str:
        return self._cluster.url

    def _partition(self, fault: Fault, chance: Chance) -> Injury:
        """Cuts a worker off; or a member, from the others but not from workers."""
        if chance.random.random() < 0.5:
            return super()._partition(fault, chance)
        node = self.choose(chance)
        member = self._cluster.members[self._nodes.index(node)]
        self._cluster.cut_off(member)

        def mend() -> None:
            self._cluster.join()
            self._cluster.wait_ready()

        text = f"{node.name} is cut off from the other members; workers still reach it"
        return Injury(fault.name, [node.name], text, mend)

    def wait_ready(self) -> None:
        self._cluster.wait_ready()

    def ghosts(self, namespace: str) -> list[str]:
        return left_on(self.direct_url, namespace, self.options)

    def stop(self) -> None:
        self.close_links()
        self._cluster.stop()
