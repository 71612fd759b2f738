"""Labs whose workers reach each node through proxies of their own: each alone can be cut off."""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Sequence
from contextlib import suppress

from ..faults import Fault
from ..servers.errors import ServerError
from ..servers.proxy import Place, Proxy
from .lab import Chance, Injury, Lab, Worker


class LinkedLab(Lab):
    """A lab with a link from each worker to each node."""

    about = b""
    """Bytes that every request to the store has in it, where the protocol has others in between."""

    def __init__(self) -> None:
        super().__init__()
        self._links: dict[str, dict[str, Proxy]] = {}
        self._links_mutex = threading.Lock()

    @abstractmethod
    def places(self) -> dict[str, Place]:
        """Returns, by their names, where the nodes that workers connect to listen."""

    @abstractmethod
    def url_of(self, ports: Sequence[int]) -> str:
        """Returns the URL of the nodes if they are at these ports of this machine, in their order."""

    def url_for(self, worker: str) -> str:
        return self.url_of([link.port for link in self.links_of(worker).values()])

    def links_of(self, worker: str) -> dict[str, Proxy]:
        """Returns the links of one worker, by the names of the nodes."""
        with self._links_mutex:
            if worker not in self._links:
                self._links[worker] = {name: Proxy(place) for name, place in self.places().items()}
            return self._links[worker]

    def close_links(self) -> None:
        with self._links_mutex:
            for links in self._links.values():
                for link in links.values():
                    link.close()
            self._links.clear()

    def _partition(self, fault: Fault, chance: Chance) -> Injury:
        return self._cut(fault, chance, chance.victim)

    def _cut(self, fault: Fault, chance: Chance, worker: Worker) -> Injury:
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

        def mend() -> None:
            for link in links:
                link.mute_once = False
                link.hang_up_muted()

        text = f"the reply to the next request of {worker.name} never arrives"
        return Injury(fault.name, [worker.name], text, mend)

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
