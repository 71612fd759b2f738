"""The asyncio connection to one node, and how to get it again."""

from __future__ import annotations

import asyncio
from math import inf
from typing import TYPE_CHECKING, Any

from ....clock import Clock
from ....errors import BackendUnavailable
from ....refusals import reason
from ...redis.address import Address
from ...redis.wire.pipelined_connection import Connection, check_greeting
from ...redis.wire.protocol import NOTHING, Late, Lost, greeting
from ...redis.wire.reply import Reply
from ...redis.wire.sockets import open_protocol, unreached
from ..commands import BatchItem
from ..membership import run_id_of
from .aio_batch import Batch
from .aio_fan_out import FanOut, NodeReply

if TYPE_CHECKING:
    from .aio import RedlockWire


class NodeConnector:
    """The one that opens and keeps the connection to a node. To `Connection` it is the user."""

    def __init__(self, wire: RedlockWire, index: int, address: Address) -> None:
        self._wire = wire
        self._index = index
        self._address = address
        self._name = str(address)
        self.connection: NodeConnection | None = None
        self._opening: NodeConnection | None = None
        self._limits: set[asyncio.Timeout] = set()
        """The time limits of the connections that are not made yet."""
        self.run_id = b""
        """The run_id of the server at the other end."""

    async def reach(self, deadline: float) -> list[Any]:
        """Returns the replies to the wire's first commands, on the connection there is or a new one."""
        if self.connection is not None:
            return await self._wire.call_many(self._index, self._wire.first_commands, deadline)
        connection = self._opening = await self._connect(deadline)
        try:
            self._wire.check_open()  # it may have been shut meanwhile
            hello = greeting(self._address)
            commands = [*hello, *self._wire.first_commands]
            replies = connection.send_all(commands, deadline)
            await check_greeting(replies[: len(hello)], self._address)
            first_replies = await all_of(replies[len(hello) :])
        except BaseException:
            connection.abort()
            raise
        finally:
            self._opening = None
        if connection.dead or self._wire.closed:
            connection.abort()
            raise self.broken()
        if self.connection is not None:  # another task was quicker
            connection.abort()
            return await self._wire.call_many(self._index, self._wire.first_commands, deadline)
        self.connection = connection
        self.run_id = run_id_of(first_replies[0])
        self._wire.refresh()
        return first_replies

    def shut(self) -> None:
        """Ends the connection, also one that is being opened."""
        for connection in (self.connection, self._opening):
            if connection is not None:
                connection.abort()
        while self._limits:
            self._limits.pop().reschedule(0.0)  # its time is over

    async def _connect(self, deadline: float) -> NodeConnection:
        clock, address = self._wire.clock, self._address
        loop = asyncio.get_running_loop()

        def make() -> NodeConnection:
            return NodeConnection(self, loop, clock, self._index)

        limit = asyncio.timeout(None)
        try:
            async with limit:
                self._limits.add(limit)
                try:
                    return await open_protocol(loop, make, address, deadline, clock.now)
                finally:
                    self._limits.discard(limit)
        except TimeoutError:
            raise BackendUnavailable(f"{address}: {unreached(address)}") from None
        except OSError as error:
            raise BackendUnavailable(f"{address} cannot be reached: {reason(error)}") from error

    # Called by the connection.

    def hear(self, ticket: object) -> None:
        """Does nothing: waiters are woken on connections of their own, see `wakeups`."""

    def woken(self, message: bytes) -> None:
        """Does nothing, see `hear`."""

    def lost(self, connection: Connection) -> None:
        """Notes that the connection has ended: the node is out."""
        if self.connection is connection:
            self.connection = None
            self._wire.refresh()
            self._wire.table.report_failure(self._index, "its connection broke")

    def broken(self) -> Lost:
        """Returns the error for a request whose connection broke."""
        return Lost(f"the connection to {self._name} broke")

    def late(self) -> Late:
        """Returns the error for a request without a reply in time."""
        return Late(f"{self._name} did not answer in time")


class NodeConnection(Connection):
    """A connection on which fan-outs wait for replies, beside single requests.

    A fan-out itself is what waits on the connections to all nodes, and requests of one kind go in one
    command (`aio_batch`). Both are here for one figure, 64 coroutines on five nodes: an object for each
    node's reply takes 7 % more of the client's time.
    """

    def __init__(
        self, connector: NodeConnector, loop: asyncio.AbstractEventLoop, clock: Clock, index: int
    ) -> None:
        super().__init__(connector, loop, clock)
        self._index = index
        self._open_batch: Batch | None = None
        """The last of what is not sent yet, if more requests may join it."""
        self._batches: list[Batch] = []
        """All batches that are not sent yet."""

    def send(self, command: bytes, deadline: float, reply: Reply | None = None) -> Reply:
        """Sends a command behind all batches."""
        self._open_batch = None
        return super().send(command, deadline, reply)

    def send_for(
        self, fan_out: FanOut, command: bytes, deadline: float, item: BatchItem | None = None
    ) -> None:
        """Sends a command of a fan-out; with an `item`, in one with others that are not sent yet."""
        fan_out.missing += 1
        if self.dead:
            fan_out.receive_soon(self._index, self._user.broken())
        elif item is None or not (self._pending or self._unsent):
            self.send(command, deadline, fan_out)
        elif self._open_batch is None or not self._open_batch.add(item, fan_out):
            batch = Batch(self._index, item, fan_out, len(self._unsent))
            self._batches.append(batch)
            self.send(command, deadline, batch)
            if self._unsent:  # otherwise it was sent
                self._open_batch = batch
        elif self._open_batch.is_full():
            self._flush()

    def _flush(self) -> None:
        for batch in self._batches:
            batch.write_into(self._unsent)
        self._batches.clear()
        self._open_batch = None
        super()._flush()

    def _answer(self) -> None:
        gets, push, pending = self._gets, self._push, self._pending
        try:
            while (reply := gets()) is not NOTHING:
                if type(reply) is push or not pending:
                    continue  # a reply to nothing, which cannot be ours
                waiting = pending.popleft()[0]
                if type(waiting) is FanOut:
                    waiting.receive(self._index, reply)
                else:
                    waiting.settle(reply)
        except self._nonsense:
            self.abort()  # nothing that follows could be understood
        except BaseException:
            # A task raised what ends the event loop. If that goes on, so does the rest.
            self._loop.call_soon(self._answer)
            raise

    def _end(self) -> None:
        self._stand_in(inf)
        self._batches.clear()
        self._open_batch = None
        super()._end()

    def _stand_in(self, until: float) -> None:
        """Replaces fan-outs whose reply is due `until` then: each shall hear of this node once."""
        for i, (waiting, deadline) in enumerate(self._pending):
            if deadline <= until and type(waiting) is FanOut:
                self._pending[i] = (NodeReply(waiting, self._index), deadline)


async def all_of(replies: list[Reply]) -> list[Any]:
    """Waits for the last of a connection's replies, which come in order, and returns them all."""
    if replies:
        await replies[-1]
    return [reply.result() for reply in replies]
