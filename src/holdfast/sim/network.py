"""The network between simulated machines: who listens where, which ways are cut, and what goes wrong.

A way between two machines can be cut in one direction or in both. `connection` has the rest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from .chances import NO_FAULTS
from .connection import LEAST, SPREAD, Server, SimConnection
from .loop import VirtualLoop
from .process import Process
from .trace import Trace

RECONNECT = 0.05
"""Seconds in which a client that wants to connect finds out that the way is free again."""


class Network:
    """The network of one run."""

    def __init__(self, loop: VirtualLoop, trace: Trace) -> None:
        self.loop = loop
        self.random = loop.random.random
        self.trace = trace
        self.chances = NO_FAULTS
        self.describe: Callable[[bytes], object] = bytes
        """Returns a request as the trace shows it."""
        self.holding: dict[SimConnection, None] = {}
        """The connections with bytes that wait because the way is cut."""
        self._servers: dict[str, Server] = {}
        self.cuts: set[tuple[str, str]] = set()
        """The ways on which nothing passes, as pairs of names: from, to."""
        self._connecting: dict[asyncio.Future[None], Process] = {}
        """Clients that want to connect while the way is cut."""
        loop.network = self

    def listen(self, address: str, server: Server) -> None:
        self._servers[address] = server

    def delay(self) -> float:
        """Returns the seconds that a message takes when nothing goes wrong."""
        return LEAST + self.random() * SPREAD

    async def connect(self, client: Process, factory: Callable[[], Any], address: str) -> Any:
        """Returns a connection and its protocol, as `loop.create_connection` does."""
        server = self._servers.get(address)
        arrived = self.loop.create_future()
        if server is None:
            raise ConnectionRefusedError(f"nobody is at {address}")
        # A way that is cut, or a machine that is paused, does not answer; the caller gives up.
        ends = (client.name, server.process.name)
        while ends in self.cuts or ends[::-1] in self.cuts:
            self._connecting[arrived] = client
            await arrived
            arrived = self.loop.create_future()
        self.loop.after(self.delay(), server.process, self._come_back, client, arrived)
        await arrived
        if not server.up:
            raise ConnectionRefusedError(f"{address} refuses connections")
        protocol = factory()
        connection = SimConnection(self, client, server, protocol)
        server.opened(connection)
        protocol.connection_made(connection)
        return connection, protocol

    def _come_back(self, client: Process, arrived: asyncio.Future[None]) -> None:
        self.loop.after(self.delay(), client, _wake, arrived)

    # Cuts.

    def cut(self, source: str, target: str) -> None:
        """Lets nothing pass from `source` to `target` any more; the way back is not changed."""
        self.cuts.add((source, target))

    def is_cut(self, connection: SimConnection, to_server: bool) -> bool:
        ends = (connection.client.name, connection.server.process.name)
        return (ends if to_server else ends[::-1]) in self.cuts

    def mend(self, source: str, target: str) -> None:
        """Lets messages pass from `source` to `target` again."""
        self.cuts.discard((source, target))
        self._release_held()

    def heal(self) -> None:
        """Ends all faults of the network."""
        self.cuts.clear()
        self.chances = NO_FAULTS
        self._release_held()

    def _release_held(self) -> None:
        holding, self.holding = self.holding, {}
        for connection in holding:
            connection.release_held()
        connecting, self._connecting = self._connecting, {}
        for arrived, client in connecting.items():
            self.loop.after(self.loop.random.random() * RECONNECT, client, _wake, arrived)


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
