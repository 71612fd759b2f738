"""Requests to all nodes at once, in asyncio: one connection to each, which all tasks share.

The twin is `threads`: the same names and meanings.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Container, Sequence
from typing import Any

from .... import forks
from ....clock import Clock
from ....errors import BackendUnavailable
from ...redis.address import Address
from ..commands import BatchItem
from ..membership import NodeTable
from .aio_connection import NodeConnection, NodeConnector, all_of
from .aio_fan_out import FanOut, OnReply

IDLE = 0.5
"""Seconds without use after which a server, or something in between, may have closed a connection."""


class RedlockWire:
    """The connections to all nodes."""

    def __init__(
        self,
        addresses: Sequence[Address],
        table: NodeTable,
        clock: Clock,
        first_commands: list[bytes],
    ) -> None:
        self.table = table
        self.clock = clock
        self.first_commands = first_commands
        """Commands that every new connection begins with."""
        self.closed = False
        self._made_in = forks.current()
        self._used_at = 0.0
        """The moment at which a request last went to all nodes."""
        self._loop = asyncio.get_running_loop()
        self._connectors = [
            NodeConnector(self, index, address) for index, address in enumerate(addresses)
        ]
        self._connections: list[NodeConnection | None] = [None] * len(addresses)
        """The connection to each node: another list whenever one of them changes."""

    async def fan_out(
        self,
        commands: Sequence[bytes | None],
        on_reply: OnReply,
        deadline: float,
        earlier: Sequence[object] = (),
        replied: Container[int] = (),
        fallback: bytes = b"",
        item: BatchItem | None = None,
    ) -> Sequence[object]:
        """Sends each node its command, all at once; waits until `on_reply` has enough, or all replied.

        Later replies go to `on_reply` as well, while their connection lasts. Returns the connections
        that were used. A command that follows an earlier one passes the connections of that as
        `earlier`, and the nodes that have `replied` to it: a node that has not, and whose connection
        is another by now, is sent `fallback`, since the earlier command may arrive after it. With an
        `item`, a command may go in one with those of other tasks.
        """
        self.check_open()
        self._used_at = now = self.clock.now()
        fan_out = FanOut(self.table, self._loop, on_reply, deadline - now)
        used = self._connections
        # The node that wakes waiters is the last: whoever it wakes finds the others free.
        for index in range(len(commands) - 1, -1, -1):
            usual = commands[index]
            if usual is None:
                continue
            connection = used[index]
            if connection is None:
                self.table.report_failure(index, "it is not connected")
                on_reply(index, BackendUnavailable("not connected"))
                continue
            late = earlier and connection is not earlier[index] and index not in replied
            if late:
                connection.send_for(fan_out, fallback, deadline)
            else:
                connection.send_for(fan_out, usual, deadline, item)
        if fan_out.missing:
            await fan_out
        return used

    def same_run(self, connections: Sequence[object], index: int) -> bool:
        """Returns whether a command to the node reaches the server's run that `connections` led to."""
        connection = self._connections[index]
        return connection is not None and connection is connections[index]

    def drop_hung_up(self) -> None:
        """Drops connections that servers closed because they were idle, if some may be."""
        if self.clock.now() - self._used_at > IDLE:
            for connector in self._connectors:
                if connector.connection is not None and connector.connection.is_hung_up():
                    connector.connection.abort()

    def read_late_replies(self) -> None:
        """Does nothing: the event loop reads replies that came too late to be waited for."""

    def post(
        self,
        commands: Sequence[bytes | None],
        deadline: float,
        on_reply: OnReply,
        earlier: Sequence[object] = (),
        fallbacks: Sequence[bytes | None] = (),
    ) -> list[int]:
        """Sends each node its command behind whatever was sent before, and does not wait.

        Returns the nodes to which that was not possible. `earlier` is as in `fan_out`; a node whose
        connection is another by now is sent its fallback.
        """
        fan_out = FanOut(self.table, self._loop, on_reply, deadline - self.clock.now())
        unsent: list[int] = []
        for index, command in enumerate(commands):
            if command is not None:
                connection = self._connections[index]
                if connection is None:
                    unsent.append(index)
                else:
                    behind = not earlier or connection is earlier[index]
                    chosen = command if behind else fallbacks[index] or command
                    connection.send_for(fan_out, chosen, deadline)
        return unsent

    def reach(self, index: int, deadline: float) -> Awaitable[list[Any]]:
        """Returns one node's replies to the first commands, on a connection that lasts."""
        self.check_open()
        return self._connectors[index].reach(deadline)

    async def call(self, index: int, command: bytes, deadline: float, run_id: bytes = b"") -> Any:
        """Returns one node's reply, on the connection there is or a new one; or raises.

        With a `run_id`, only if that connection leads to this run of the server.
        """
        connector = self._connectors[index]
        if connector.connection is None:
            # Servers close idle connections. That says nothing of the node.
            await self.reach(index, deadline)
        connection = connector.connection
        if connection is None or (run_id and connector.run_id != run_id):
            raise connector.broken()
        reply = await connection.send(command, deadline)
        if isinstance(reply, Exception):
            raise BackendUnavailable(str(reply))
        return reply

    def call_many(
        self, index: int, commands: Sequence[bytes], deadline: float
    ) -> Awaitable[list[Any]]:
        """Returns one node's replies to many commands, with an error where the node refused one."""
        connection = self._connectors[index].connection
        if connection is None:
            raise self._connectors[index].broken()
        return all_of(connection.send_all(commands, deadline))

    def run_id(self, index: int) -> bytes:
        """Returns the run_id of the server on which the node was last reached."""
        return self._connectors[index].run_id

    def refresh(self) -> None:
        """Makes the list of connections anew. Called by a connector."""
        self._connections = [connector.connection for connector in self._connectors]

    def shut(self) -> None:
        """Refuses new requests, and fails those under way."""
        self.closed = True
        for connector in self._connectors:
            connector.shut()

    async def close(self) -> None:
        """Closes all connections."""
        self.shut()
        await asyncio.sleep(0)  # the transports close their sockets in the loop's next turn

    def check_open(self) -> None:
        """Raises if the wire is shut, or the parent's of this forked process."""
        forks.refuse_inherited(self._made_in)
        if self.closed:
            raise BackendUnavailable("this connection to the nodes is closed")
