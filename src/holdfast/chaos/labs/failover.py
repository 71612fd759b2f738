"""A server that another one follows, and a person or a cloud that promotes the follower.

Clients keep their address. The follower is cut off for longer than a lease lasts when the primary dies,
so that it knows nothing of who holds what.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from typing import Generic, Protocol, TypeVar

from ..faults import Fault
from ..servers.proxy import Place, Proxy
from ..servers.rooms import Rooms
from .lab import Chance, Injury
from .links import LinkedLab


class Promotable(Protocol):
    """A throw-away server, as far as a lab with a follower needs to know it."""

    port: int

    @property
    def url(self) -> str: ...

    def kill(self) -> None: ...

    def stop(self) -> None: ...

    def wait_ready(self) -> None: ...


Server = TypeVar("Server", bound=Promotable)


class FailoverLab(LinkedLab, Generic[Server]):
    """A lab with a primary, which workers use, and one server that follows it."""

    possible = ("failover",)

    def __init__(self, rooms: Rooms | None = None) -> None:
        super().__init__(rooms)
        self._servers: list[Server] = [self.start_primary()]
        """The primary, then its follower."""
        self._bridges: list[Proxy] = []
        """By which the follower follows the primary; the last one is in use."""
        try:
            self._servers.append(self.start_follower(self._bridge()))
        except BaseException:
            self.stop()
            raise

    @abstractmethod
    def start_primary(self) -> Server:
        """Returns a server that runs."""

    @abstractmethod
    def start_follower(self, port: int) -> Server:
        """Returns a server that has all that the primary, which is at `port`, has, and follows it."""

    @abstractmethod
    def promote(self, server: Server) -> None:
        """Makes a follower a primary."""

    def _bridge(self) -> int:
        """Opens a new way to the primary; returns its port."""
        self._bridges.append(Proxy(self._servers[0].port))
        return self._bridges[-1].port

    @property
    def nodes(self) -> tuple[str, ...]:
        return ("primary", "replica")

    def places(self) -> dict[str, Place]:
        return {"primary": self._servers[0].port}

    @property
    def direct_url(self) -> str:
        return self._servers[0].url

    def wait_ready(self) -> None:
        self._servers[0].wait_ready()

    def stop(self) -> None:
        self.close_links()
        for bridge in self._bridges:
            bridge.close()
        for server in self._servers:
            server.stop()

    def _failover(self, fault: Fault, chance: Chance) -> Injury:
        old, new = self._servers
        self._bridges[-1].refuse = True
        self._bridges[-1].hang_up()
        time.sleep(chance.ttl * 1.2)
        old.kill()
        self.promote(new)
        self._servers.reverse()
        for worker in chance.workers:
            for link in self.links_of(worker.name).values():
                link.turn_to(new.port)

        def mend() -> None:
            # As whoever runs it does: the old primary may have what the new one has not.
            old.stop()
            self._servers[1] = self.start_follower(self._bridge())

        text = "the replica was cut off, the primary killed, and the replica took its place"
        return Injury(fault.name, ["primary"], text, mend)
