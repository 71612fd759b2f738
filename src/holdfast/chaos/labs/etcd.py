"""An etcd cluster of three members, whose links to each other can be cut."""

from __future__ import annotations

from collections.abc import Sequence
from email.utils import parsedate_to_datetime
from functools import partial
from urllib.request import urlopen

from ...guarantees import Guarantees
from ...stores.etcd.guarantees import ETCD
from ..faults import VDSO, Fault
from ..servers.etcd import EtcdCluster, Member
from ..servers.proxy import Place
from ..servers.rooms import Rooms
from ..servers.vdso import ReplacedClock
from .lab import Chance, Injury
from .nodes import Node, NodeLab

MEMBERS = ("m0", "m1", "m2")


class EtcdLab(NodeLab):
    name = "etcd"
    title = "etcd"
    programs = ("etcd:etcd-server", "etcdctl:etcd-client")
    modules = ("hpack",)
    extra = "etcd"
    about = b"/holdfast/"
    syncs = "fdatasync"

    related = True

    def __init__(self, rooms: Rooms | None = None) -> None:
        super().__init__(rooms)
        self._cluster = EtcdCluster(3, hasty=False, sites=[self.site(name) for name in MEMBERS])
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
            clock=ReplacedClock(lambda: member.pid),
        )

    @classmethod
    def tier_of(cls, fault: str) -> str:
        """Returns the tier of a fault; etcd asks the kernel by itself for the time."""
        return VDSO if fault == "clock" else super().tier_of(fault)

    def time(self, name: str) -> float:
        """Returns the time by the clock of the member of this name."""
        member = self._cluster.members[self.nodes.index(name)]
        with urlopen(f"{member.client_url}/version", timeout=10) as reply:
            return parsedate_to_datetime(reply.headers["Date"]).timestamp()

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
        return {member.name: member.address for member in self._cluster.members}

    def url_of(self, addresses: Sequence[str]) -> str:
        return "etcd://" + ",".join(addresses)

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

    def stop(self) -> None:
        self.close_links()
        self._cluster.stop()
