"""Labs whose workers reach each node through proxies of their own: each alone can be cut off."""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from typing import ClassVar

from ..faults import Fault
from ..servers.errors import ServerError
from ..servers.proxy import Place, Proxy
from ..servers.rooms import OWN, Rooms
from ..servers.sites import HERE, LOOPBACK, Site
from .lab import Chance, Injury, Lab, Worker
from .leftovers import left_on

CUT: dict[str, float] = {"loss": 1.0}
LOSSY: dict[str, float] = {"loss": 0.3, "reorder": 0.3}
FINE: dict[str, float] = {}
CUTS = (
    (CUT, CUT, "no packet passes between {} and {}"),
    (CUT, FINE, "no packet of {} arrives at {}"),
    (FINE, CUT, "no packet arrives at {} from {}"),
)
"""For each cut: what becomes of the packets of the one to the others, of theirs to it, and the text."""
BY_LINKS = ("partition", "delay", "lost-reply", "reset")
"""The faults that are done to the links of a worker, which it has unless it is in a room."""
LOSSES = ((LOSSY, LOSSY, "of the packets between {} and {} a third is lost, a third overtaken"),)


Disturbance = tuple[dict[str, float], dict[str, float], str]


class LinkedLab(Lab):
    """A lab with a link from each worker to each node."""

    about = b""
    """Bytes that every request to the store has in it, where the protocol has others in between."""

    related: ClassVar[bool] = False
    """Whether the nodes talk to each other."""

    def __init__(self, rooms: Rooms | None = None) -> None:
        super().__init__(rooms)
        self._links: dict[str, dict[str, Proxy]] = {}
        self._links_mutex = threading.Lock()

    @abstractmethod
    def places(self) -> dict[str, Place]:
        """Returns, by their names, where the nodes that workers connect to listen."""

    @abstractmethod
    def url_of(self, addresses: Sequence[str]) -> str:
        """Returns the URL of the nodes if they are at these addresses (`host:port`), in their order."""

    def url_for(self, worker: str) -> str:
        if self.rooms is not None:
            return self.url_of([_address(place) for place in self.places().values()])
        links = self.links_of(worker).values()
        return self.url_of([f"{LOOPBACK}:{link.port}" for link in links])

    def why_not(self, fault: str) -> str | None:
        if self.rooms is not None and fault in BY_LINKS:
            return "workers in rooms of their own have no links that could be cut"
        return super().why_not(fault)

    def inside(self, worker: str) -> list[str]:
        return [] if self.rooms is None else list(self.rooms.room(worker).inside)

    def site(self, node: str) -> Site:
        """Returns where the node of this name is to run."""
        return HERE if self.rooms is None else self.rooms.room(node)

    def ghosts(self, namespace: str) -> list[str]:
        if self.rooms is None:
            return left_on(self.direct_url, namespace, self.options)
        return left_on(self.url_for(OWN), namespace, self.options, self.inside(OWN))

    def links_of(self, worker: str) -> dict[str, Proxy]:
        """Returns the links of one worker, by the names of the nodes."""
        with self._links_mutex:
            if worker not in self._links:
                self._links[worker] = {name: Proxy(place) for name, place in self.places().items()}
            return self._links[worker]

    def close_links(self) -> None:
        """Closes all links; and all rooms, if there are any."""
        if self.rooms is not None:
            self.rooms.stop()
        with self._links_mutex:
            for links in self._links.values():
                for link in links.values():
                    link.close()
            self._links.clear()

    def _partition(self, fault: Fault, chance: Chance) -> Injury:
        return self.cut_off(fault, chance, chance.victim)

    def cut_off(self, fault: Fault, chance: Chance, worker: Worker) -> Injury:
        """Cuts one worker off from all nodes: both ways, or one way only."""
        links = list(self.links_of(worker.name).values())
        requests, answers, text = chance.random.choice(
            (
                (True, True, f"{worker.name} is cut off from the store"),
                (True, False, f"nothing of what {worker.name} sends arrives at the store"),
                (False, True, f"nothing of what the store answers arrives at {worker.name}"),
            )
        )
        broken = chance.random.random() < 0.5
        for link in links:
            link.hold(requests, answers)

        def mend() -> None:
            for link in links:
                if broken:  # as after a time that was too long for the connections
                    link.hang_up()
                link.release()

        return Injury(fault.name, [worker.name], text, mend)

    def node_to_cut(self, chance: Chance) -> str:
        """Returns the node of which packets are disturbed."""
        return chance.random.choice(self.nodes)

    def some_nodes(self, chance: Chance) -> list[str]:
        """Returns the nodes, not all of them, from which a worker is cut off."""
        count = chance.random.randint(1, len(self.nodes) - 1)
        return sorted(chance.random.sample(self.nodes, count))

    def _cut(self, fault: Fault, chance: Chance) -> Injury:
        return self._disturb(fault, chance, CUTS)

    def _loss(self, fault: Fault, chance: Chance) -> Injury:
        return self._disturb(fault, chance, LOSSES)

    def _disturb(self, fault: Fault, chance: Chance, kinds: Sequence[Disturbance]) -> Injury:
        """Disturbs the packets of a worker, or those of a node to the others or to all workers."""
        out, back, text = chance.random.choice(kinds)
        if chance.random.random() < 0.5:
            one, others, called = chance.victim.name, list(self.nodes), "the store"
            if len(others) > 1 and chance.random.random() < 0.5:
                others = self.some_nodes(chance)
                called = ", ".join(others)
        else:
            one = self.node_to_cut(chance)
            others, called = [worker.name for worker in chance.workers], "the workers"
            if self.related:
                others = [node for node in self.nodes if node != one]
                called = "the other nodes"
        return self.disturb(fault, one, others, (out, back, text.format(one, called)))

    def disturb(
        self, fault: Fault, one: str, others: Sequence[str], disturbance: Disturbance
    ) -> Injury:
        """Disturbs the packets between one room and others."""
        rooms = self.rooms
        assert rooms is not None
        out, back, text = disturbance
        before = rooms.disturbed()
        rooms.disturb([one], others, out, back)

        def count() -> int:
            return rooms.disturbed() - before

        def mend() -> None:
            rooms.mend()
            self.wait_ready()

        return Injury(fault.name, [one], text, mend, count=count)

    def _delay(self, fault: Fault, chance: Chance) -> Injury:
        worker = chance.victim
        links = list(self.links_of(worker.name).values())
        for link in links:
            link.about = self.about
            link.keep_once = True

        def let_go() -> None:
            for link in links:
                link.keep_once = False
                if link.kept:
                    with suppress(ServerError):
                        link.let_go(answered=False)

        text = f"the next request of {worker.name} is delayed, and so is what it writes"
        return Injury(fault.name, [worker.name], text, let_go)

    def _lost_reply(self, fault: Fault, chance: Chance) -> Injury:
        worker = chance.victim
        links = list(self.links_of(worker.name).values())
        for link in links:
            link.about = self.about
            link.mute_once = True

        lost: list[Proxy] = []

        def mend() -> None:
            lost.extend(link for link in links if not link.mute_once)
            for link in links:
                link.mute_once = False
                link.hang_up_muted()

        text = f"the reply to the next request of {worker.name} never arrives"
        return Injury(fault.name, [worker.name], text, mend, count=lambda: len(lost))

    def _reset(self, fault: Fault, chance: Chance) -> Injury:
        worker = chance.victim
        for link in self.links_of(worker.name).values():
            link.about = self.about
            link.reset_once = True
            link.hang_up()

        def mend() -> None:
            for link in self.links_of(worker.name).values():
                link.reset_once = False

        text = f"the connections of {worker.name} are reset, and so is its next one after a request"
        return Injury(fault.name, [worker.name], text, mend)


def _address(place: Place) -> str:
    assert isinstance(place, tuple)
    host, port = place
    return f"{host}:{port}"
