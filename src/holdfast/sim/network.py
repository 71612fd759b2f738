"""Connections between simulated machines: streams, as TCP gives them, and all that can go wrong.

What is written on one connection arrives in order or not at all. What happens to a request is drawn
for each write, while faults are on:

    delay       it arrives later, up to seconds
    lost        it never arrives, and the connection breaks, at once or only much later
    unanswered  it arrives, but the answer does not, and the connection breaks
    overtaken   the connection breaks first, and the request arrives after that
    replayed    it arrives a second time, later, as if somebody between had sent it again

A way between two machines can be cut, in one direction or both: what is sent waits, as it does in a
kernel's buffers, and arrives when the way is free again, unless the connection was given up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from heapq import heappush as _push
from typing import Any, Protocol

from .loop import Process, VirtualLoop
from .trace import Story

DELAY = (0.0001, 0.0006)
"""Seconds that a message takes on a good day, from and to."""
_LEAST, _SPREAD = DELAY[0], DELAY[1] - DELAY[0]
AGAIN = 0.05
"""Seconds in which one who wants to connect finds out that the way is free again."""


class Server(Protocol):
    """What listens at an address."""

    process: Process
    up: bool

    def opened(self, link: Link) -> None: ...
    def received(self, link: Link, data: bytes) -> None:
        """Bytes came in; answers go to `link.answer`."""
        ...

    def closed(self, link: Link) -> None: ...
    def replayed(self, data: bytes) -> None:
        """The same bytes once more, whose answers nobody hears."""
        ...


class Chances:
    """How likely each fault is, for one write."""

    def __init__(
        self,
        slow: float = 0.0,
        slowest: float = 1.0,
        lost: float = 0.0,
        unanswered: float = 0.0,
        overtaken: float = 0.0,
        replayed: float = 0.0,
    ) -> None:
        self.slow = slow
        self.slowest = slowest
        self.lost = lost
        self.unanswered = unanswered
        self.overtaken = overtaken
        self.replayed = replayed
        self.any = lost + unanswered + overtaken + replayed
        """That something happens to a write other than a delay."""


CALM = Chances()


class Link(asyncio.Transport):
    """One connection: the client's end is an asyncio transport, the other end is a `Server`."""

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
        """The server's own."""
        self.broken = False
        self._closing = False
        self._there = self._back = 0.0
        self._mute = False
        self._held: dict[bool, list[bytes]] = {True: [], False: []}

    # The client's end.

    def write(self, data: Any) -> None:
        if self.broken:
            return
        network = self._network
        chances, random = network.chances, network.random
        delay = _LEAST + random() * _SPREAD
        if chances is not CALM:
            # One draw for all of them: each has its own share of it.
            draw = random()
            if draw < chances.any:
                if self._go_wrong(bytes(data), draw, chances):
                    return
            elif draw < chances.any + chances.slow:
                delay = random() * chances.slowest
        self._send_there(bytes(data), delay)

    def _go_wrong(self, data: bytes, draw: float, chances: Chances) -> bool:
        """True if the write is dealt with."""
        for chance, fault in (
            (chances.lost, self._lose),
            (chances.unanswered, self._silence),
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
        if not self.broken and not self._mute:
            network = self._network
            chances, random = network.chances, network.random
            delay = _LEAST + random() * _SPREAD
            if chances is not CALM and random() < chances.slow:
                delay = random() * chances.slowest
            self._send_back(data, delay)

    def reset(self) -> None:
        """The server hangs up, or its machine is gone."""
        self._break(self._network.delay(), 0.0)

    # On the way.

    def _send_there(self, data: bytes, delay: float) -> None:
        network, loop = self._network, self._loop
        if network.cuts and network.is_cut(self, True):
            self._hold(True, data)
            return
        at = loop.now + delay
        if at < self._there:
            at = self._there  # not before what was sent before it
        self._there = at
        # `loop.at`, in short: this is what happens most
        _push(self._timers, (at, self._number(), self.server.process, (self._arrive, data)))

    def _send_back(self, data: bytes, delay: float) -> None:
        network, loop = self._network, self._loop
        if network.cuts and network.is_cut(self, False):
            self._hold(False, data)
            return
        at = loop.now + delay
        if at < self._back:
            at = self._back
        self._back = at
        _push(self._timers, (at, self._number(), self.client, (self._deliver, data)))

    def _hold(self, there: bool, data: bytes) -> None:
        self._held[there].append(data)
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
        for there, send in ((True, self._send_there), (False, self._send_back)):
            held, self._held[there] = self._held[there], []
            for data in held:
                if not self.broken:
                    send(data, self._network.delay())

    def _break(self, client_after: float, server_after: float) -> None:
        if self.broken:
            return
        self._mute = True
        loop = self._loop
        # What is on its way already still arrives at the server: it was sent before.
        loop.at(max(loop.now + server_after, self._there), self.server.process, self._gone_there)
        loop.after(client_after, self.client, self._gone_here)

    def _gone_here(self) -> None:
        if self.protocol is not None:
            protocol, self.protocol = self.protocol, None
            self._closing = True
            protocol.connection_lost(ConnectionResetError("reset"))

    def _gone_there(self) -> None:
        if not self.broken:
            self.broken = True
            self.server.closed(self)

    # The faults.

    def _lose(self, data: bytes) -> None:
        self._tell("lost", data)
        self._mute = True
        patience = self._loop.random.choice((0.001, 0.02, 30.0))
        self._break(patience, 0.0)

    def _silence(self, data: bytes) -> None:
        self._tell("unanswered", data)
        self._send_there(data, self._network.delay())
        self._break(self._loop.random.choice((0.001, 0.02, 30.0)), 0.0)

    def _overtake(self, data: bytes) -> None:
        """The client sees it break; the request is still on its way, for up to a second."""
        self._tell("overtaken", data)
        self._there = max(self._there, self._loop.now + self._loop.random.random())
        self._send_there(data, 0.0)
        self._break(self._network.delay(), 0.0)

    def _replay(self, data: bytes) -> None:
        server, born = self.server, getattr(self.server, "incarnation", 0)

        def again() -> None:
            if server.up and getattr(server, "incarnation", 0) == born:
                self._tell("replayed", data)
                server.replayed(data)

        later = self._loop.random.random() * self._loop.random.choice((0.005, 0.1, 3.0))
        self._loop.after(later, server.process, again)

    def _tell(self, fault: str, data: bytes) -> None:
        what = self._network.describe(data)
        self._network.story.tell(
            self.client.name, "%s on the way to %s: %s", fault, self.server.process.name, what
        )


class Network:
    def __init__(self, loop: VirtualLoop, story: Story) -> None:
        self.loop = loop
        self.random = loop.random.random
        self.story = story
        self.chances = CALM
        self.describe: Callable[[bytes], object] = bytes
        """How a request is shown in the story."""
        self.holding: dict[Link, None] = {}
        self._servers: dict[str, Server] = {}
        self.cuts: set[tuple[str, str]] = set()
        self._knocking: dict[asyncio.Future[None], Process] = {}
        """Who wants to connect, while the way is cut."""
        loop.network = self

    def listen(self, address: str, server: Server) -> None:
        self._servers[address] = server

    def delay(self) -> float:
        return _LEAST + self.random() * _SPREAD

    async def connect(self, client: Process, factory: Callable[[], Any], address: str) -> Any:
        server = self._servers.get(address)
        there = self.loop.create_future()
        if server is None:
            raise ConnectionRefusedError(f"nobody is at {address}")
        # A way that is cut, or a machine that stands still, does not answer; the caller gives up.
        ends = (client.name, server.process.name)
        while ends in self.cuts or ends[::-1] in self.cuts:
            self._knocking[there] = client
            await there
            there = self.loop.create_future()
        self.loop.after(self.delay(), server.process, self._come_back, client, there)
        await there
        if not server.up:
            raise ConnectionRefusedError(f"{address} refuses connections")
        protocol = factory()
        link = Link(self, client, server, protocol)
        server.opened(link)
        protocol.connection_made(link)
        return link, protocol

    def _come_back(self, client: Process, there: asyncio.Future[None]) -> None:
        self.loop.after(self.delay(), client, _wake, there)

    # Cuts.

    def cut(self, one: str, other: str) -> None:
        """From now on nothing gets from one to the other; the way back is another matter."""
        self.cuts.add((one, other))

    def is_cut(self, link: Link, there: bool) -> bool:
        ends = (link.client.name, link.server.process.name)
        return (ends if there else ends[::-1]) in self.cuts

    def mend(self, one: str, other: str) -> None:
        self.cuts.discard((one, other))
        self._let_go()

    def heal(self) -> None:
        self.cuts.clear()
        self.chances = CALM
        self._let_go()

    def _let_go(self) -> None:
        holding, self.holding = self.holding, {}
        for link in holding:
            link.release_held()
        knocking, self._knocking = self._knocking, {}
        for there, client in knocking.items():
            self.loop.after(self.loop.random.random() * AGAIN, client, _wake, there)


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
