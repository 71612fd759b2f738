"""One database server: what the labs of PostgreSQL and of MariaDB have in common."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar, Protocol

import holdfast

from ..servers.proxy import Place
from ..servers.rooms import Rooms
from ..servers.sites import Site
from .nodes import Node, NodeLab, clock_for_node, environment_of


class DatabaseServer(Protocol):
    """A throw-away database server, as far as a lab needs to know it."""

    @property
    def pid(self) -> int: ...

    @property
    def port(self) -> int: ...

    @property
    def address(self) -> tuple[str, int]: ...

    @property
    def url(self) -> str: ...

    def start(self) -> None: ...

    def kill(self) -> None: ...

    def wipe(self) -> None: ...

    def wait_ready(self) -> None: ...

    def stop(self) -> None: ...


class DatabaseLab(NodeLab):
    """A lab with one database server, whose clock can be stepped."""

    node: ClassVar[str]
    """The name of its one node."""

    def __init__(self, rooms: Rooms | None = None) -> None:
        super().__init__(rooms)
        clock = clock_for_node()
        try:
            self._server = self.start_server(environment_of(clock), self.site(self.node))
        except BaseException:
            if clock is not None:
                clock.remove()
            raise
        self._node = Node(
            self.node,
            pid=lambda: self._server.pid,
            start=self._start,
            kill=self._server.kill,
            wipe=self._server.wipe,
            clock=clock,
        )

    @abstractmethod
    def start_server(self, environment: dict[str, str], site: Site) -> DatabaseServer:
        """Returns a server that runs at the site, with this on top of its environment."""

    def _start(self) -> None:
        """Starts the server; and makes the tables, as whoever sets up an empty database does."""
        self._server.start()
        with holdfast.connect(self.direct_url) as locks:
            locks.list()

    @property
    def servers(self) -> list[Node]:
        return [self._node]

    def places(self) -> dict[str, Place]:
        return {self.node: self._server.address}

    @property
    def direct_url(self) -> str:
        return self._server.url

    def wait_ready(self) -> None:
        self._server.wait_ready()

    def stop(self) -> None:
        self.close_links()
        self._server.stop()
        self.stop_clocks()
