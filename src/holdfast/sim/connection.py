"""One connection between a simulated client and a simulated server.

A connection is a stream, as TCP gives it: bytes arrive in order, or not at all. While faults are on,
`chances` says what may happen to each write. While the way is cut, writes wait, as they do in a
kernel's buffers; they arrive when the way is free again, unless the connection was given up.
"""

from __future__ import annotations

import asyncio
from heapq import heappush as _push
from typing import TYPE_CHECKING, Any, Protocol

from .chances import NO_FAULTS, Chances
from .process import Process

if TYPE_CHECKING:
    from .network import Network

DELAY = (0.0001, 0.0006)
"""Seconds that a message takes on a good day, from and to."""
LEAST, SPREAD = DELAY[0], DELAY[1] - DELAY[0]


class Server(Protocol):
    """A simulated server that listens at an address."""

    process: Process
    up: bool

    def opened(self, connection: SimConnection, /) -> None: ...
    def received(self, connection: SimConnection, data: bytes, /) -> None:
        """Handles the bytes that came in; replies go to `connection.answer`."""
        ...

    def closed(self, connection: SimConnection, /) -> None: ...
    def replayed(self, data: bytes) -> None:
        """Handles bytes that arrive once more; nobody hears the replies."""
        ...


class SimConnection(asyncio.Transport):
    """A connection. The client's end is an asyncio transport, the other end is a `Server`."""

    def __init__(self, network: Network, client: Process, server: Server, protocol: Any) -> None:
        super().__init__()
        self._network = network
        self._loop = loop = network.loop
        self._timers, self._number = loop.timers, loop.number
        self.client = client
        self.server = server
        self.protocol = protocol
        self._buffered = isinstance(protocol, asyncio.BufferedProtocol)
        self.state: Any = None
        """Whatever the server keeps of this connection."""
        self.broken = False
        self._closing = False
        self._last_arrival = self._last_delivery = 0.0
        """The times at which the latest bytes arrive: at the server, and at the client."""
        self._mute = False
        """Whether replies of the server are lost from now on."""
        self._held: dict[bool, list[bytes]] = {True: [], False: []}
        """Bytes that wait because the way is cut: to the server (True), and to the client (False)."""

    # The client's end.

    def write(self, data: Any) -> None:
        if self.broken:
            return
        network = self._network
        chances, random = network.chances, network.random
        delay = LEAST + random() * SPREAD
        if chances is not NO_FAULTS:
            # One draw for all of them: each has its own share of it.
            draw = random()
            if draw < chances.any:
                if self._go_wrong(bytes(data), draw, chances):
                    return
            elif draw < chances.any + chances.slow:
                delay = random() * chances.slowest
        self._send_to_server(bytes(data), delay)

    def _go_wrong(self, data: bytes, draw: float, chances: Chances) -> bool:
        """Applies the fault that was drawn; returns False if the write still has to be sent."""
        for chance, fault in (
            (chances.lost, self._lose),
            (chances.unanswered, self._leave_unanswered),
            (chances.overtaken, self._overtake),
        ):
            if draw < chance:
                fault(data)
                return True
            draw -= chance
        self._replay(data)
        return False

    def is_closing(self) -> bool:
        return self._closing

    def abort(self) -> None:
        self.close()

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            self._break(0.0, self._network.delay())

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    # The server's end.

    def answer(self, data: bytes) -> None:
        """Sends a reply of the server."""
        if not self.broken and not self._mute:
            network = self._network
            chances, random = network.chances, network.random
            delay = LEAST + random() * SPREAD
            if chances is not NO_FAULTS and random() < chances.slow:
                delay = random() * chances.slowest
            self._send_to_client(data, delay)

    def reset(self) -> None:
        """Breaks the connection, because the server closed it or its machine is gone."""
        self._break(self._network.delay(), 0.0)

    # On the way.

    def _send_to_server(self, data: bytes, delay: float) -> None:
        network, loop = self._network, self._loop
        if network.cuts and network.is_cut(self, True):
            self._hold(True, data)
            return
        at = loop.now + delay
        if at < self._last_arrival:
            at = self._last_arrival  # not before the bytes that were sent earlier
        self._last_arrival = at
        # As `loop.at`, without its call: nothing happens more often.
        _push(self._timers, (at, self._number(), self.server.process, (self._arrive, data)))

    def _send_to_client(self, data: bytes, delay: float) -> None:
        network, loop = self._network, self._loop
        if network.cuts and network.is_cut(self, False):
            self._hold(False, data)
            return
        at = loop.now + delay
        if at < self._last_delivery:
            at = self._last_delivery
        self._last_delivery = at
        _push(self._timers, (at, self._number(), self.client, (self._deliver, data)))

    def _hold(self, to_server: bool, data: bytes) -> None:
        self._held[to_server].append(data)
        self._network.holding[self] = None

    def _arrive(self, data: bytes) -> None:
        if not self.broken and self.server.up:
            self.server.received(self, data)

    def _deliver(self, data: bytes) -> None:
        if self.broken or self._closing:
            return
        protocol = self.protocol
        if not self._buffered:
            protocol.data_received(data)
            return
        while data:
            buffer = protocol.get_buffer(-1)
            count = len(data)
            if count <= len(buffer):  # nearly always
                buffer[:count] = data
                protocol.buffer_updated(count)
                return
            count = len(buffer)
            buffer[:count] = data[:count]
            protocol.buffer_updated(count)
            data = data[count:]

    def release_held(self) -> None:
        """Sends on the bytes that waited, because the way is free again."""
        for to_server, send in ((True, self._send_to_server), (False, self._send_to_client)):
            held, self._held[to_server] = self._held[to_server], []
            for data in held:
                if not self.broken:
                    send(data, self._network.delay())

    def _break(self, client_after: float, server_after: float) -> None:
        """Lets each end notice, after so many seconds, that the connection is gone."""
        if self.broken:
            return
        self._mute = True
        loop = self._loop
        # Bytes that are on their way already still arrive at the server: they were sent before.
        gone_at = max(loop.now + server_after, self._last_arrival)
        loop.at(gone_at, self.server.process, self._gone_at_server)
        loop.after(client_after, self.client, self._gone_at_client)

    def _gone_at_client(self) -> None:
        if self.protocol is not None:
            protocol, self.protocol = self.protocol, None
            self._closing = True
            protocol.connection_lost(ConnectionResetError("reset"))

    def _gone_at_server(self) -> None:
        if not self.broken:
            self.broken = True
            self.server.closed(self)

    # The faults.

    def _lose(self, data: bytes) -> None:
        self._record("lost", data)
        self._mute = True
        patience = self._loop.random.choice((0.001, 0.02, 30.0))
        self._break(patience, 0.0)

    def _leave_unanswered(self, data: bytes) -> None:
        self._record("unanswered", data)
        self._send_to_server(data, self._network.delay())
        self._break(self._loop.random.choice((0.001, 0.02, 30.0)), 0.0)

    def _overtake(self, data: bytes) -> None:
        """Breaks the connection for the client, while the write is on its way for up to a second."""
        self._record("overtaken", data)
        self._last_arrival = max(self._last_arrival, self._loop.now + self._loop.random.random())
        self._send_to_server(data, 0.0)
        self._break(self._network.delay(), 0.0)

    def _replay(self, data: bytes) -> None:
        server, incarnation = self.server, getattr(self.server, "incarnation", 0)

        def again() -> None:
            if server.up and getattr(server, "incarnation", 0) == incarnation:
                self._record("replayed", data)
                server.replayed(data)

        later = self._loop.random.random() * self._loop.random.choice((0.005, 0.1, 3.0))
        self._loop.after(later, server.process, again)

    def _record(self, fault: str, data: bytes) -> None:
        request = self._network.describe(data)
        self._network.trace.add(
            self.client.name, "%s on the way to %s: %s", fault, self.server.process.name, request
        )
