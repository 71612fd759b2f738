"""Asking all nodes at once, in asyncio: one connection for each, on which all tasks' commands travel.

The twin is `threads`: the same names and meanings.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from ..clock import Clock
from ..errors import BackendUnavailable
from ..redis.address import Address
from ..redis.aio import Connection
from ..redis.protocol import Late, Lost, check_greeting, greeting
from ..redis.reply import Reply
from .standing import Board, run_id_of, why

Heard = Callable[[int, Any], bool]
"""Called with each node's answer, or the error that it is without; True: enough."""


class Link:
    """The connection to one node, and how to get it again. It stands where `Connection` has a wire."""

    def __init__(self, fan: Fan, index: int, address: Address) -> None:
        self._fan = fan
        self._index = index
        self._address = address
        self.connection: Connection | None = None
        self.run_id = b""
        """Of the server at its other end."""

    async def reach(self, by: float) -> list[Any]:
        """The answers to the fan's first questions, on the connection there is or a new one."""
        if self.connection is not None:
            return await self._fan.batch(self._index, self._fan.first, by)
        connection = await self._connect(by)
        try:
            hello = [connection.send(command, by) for command in greeting(self._address)]
            questions = [connection.send(command, by) for command in self._fan.first]
            replies = await _all([*hello, *questions])
            check_greeting(replies[: len(hello)], self._address)
            answers = replies[len(hello) :]
        except BaseException:
            connection.abort()
            raise
        if connection.dead or self._fan.closed:
            connection.abort()
            raise self.broken()
        self.connection = connection
        self.run_id = run_id_of(answers[0])
        return answers

    async def _connect(self, by: float) -> Connection:
        fan, address = self._fan, self._address
        loop = asyncio.get_running_loop()

        def make() -> Connection:
            return Connection(self, loop, fan.clock)  # type: ignore[arg-type]

        try:
            async with asyncio.timeout(max(0.0, by - fan.clock.now())):
                made = await loop.create_connection(
                    make, address.host, address.port, ssl=address.tls
                )
                return made[1]
        except TimeoutError:
            raise BackendUnavailable(f"{address} did not answer in time") from None
        except OSError as error:
            raise BackendUnavailable(f"{address} cannot be reached: {error}") from error

    # Called by the connection.

    def woken(self, message: bytes) -> None:
        return None

    def lost(self, connection: Connection) -> None:
        if self.connection is connection:
            self.connection = None
            self._fan.board.failed(self._index, "its connection broke")

    def broken(self) -> Lost:
        return Lost(f"the connection to {self._address} broke")

    def late(self) -> Late:
        return Late(f"{self._address} did not answer in time")


class Asking:
    """A question to several nodes, and who wants to hear the answers."""

    __slots__ = ("board", "done", "heard", "left", "loop")

    def __init__(self, board: Board, loop: asyncio.AbstractEventLoop, heard: Heard) -> None:
        self.board = board
        self.loop = loop
        self.heard = heard
        self.left = 0
        self.done = Reply(loop)

    def answered(self, index: int, reply: Any) -> None:
        """Only from a callback of the event loop: it may resume the task that asked."""
        if isinstance(reply, Exception):
            self.board.failed(index, why(reply))
        self.left -= 1
        if self.heard(index, reply) or self.left == 0:
            self.done.settle(None)


class Answer(Reply):
    """One node's answer to it; nobody awaits this one."""

    __slots__ = ("_asking", "_index", "_over")

    def __init__(self, asking: Asking, index: int) -> None:
        self._asking = asking
        self._index = index
        self._over = False

    def settle(self, value: Any) -> None:
        if not self._over:
            self._over = True
            self._asking.answered(self._index, value)

    def settle_soon(self, value: Any, error: BaseException | None = None) -> None:
        if not self._over:
            self._over = True
            asking = self._asking
            asking.loop.call_soon(asking.answered, self._index, value if error is None else error)


class Fan:
    def __init__(
        self, addresses: Sequence[Address], board: Board, clock: Clock, first: list[bytes]
    ) -> None:
        self.board = board
        self.clock = clock
        self.first = first
        self.closed = False
        self._loop = asyncio.get_running_loop()
        self._links = [Link(self, index, address) for index, address in enumerate(addresses)]

    async def ask(self, commands: Sequence[bytes | None], heard: Heard, by: float) -> None:
        """Each node its command, all at once; until `heard` has enough, or all have answered.

        Answers that come later are told to `heard` as well, while their connection lasts.
        """
        self.check()
        asking = Asking(self.board, self._loop, heard)
        for index, command in enumerate(commands):
            if command is None:
                continue
            connection = self._links[index].connection
            if connection is None:
                self.board.failed(index, "it is not connected")
                heard(index, BackendUnavailable("not connected"))
                continue
            asking.left += 1
            connection.send(command, by, Answer(asking, index))
        if asking.left:
            await asking.done

    def post(self, commands: Sequence[bytes | None], by: float) -> list[int]:
        """Send, and do not wait: behind whatever was sent before. Answers who could not be told."""
        untold: list[int] = []
        for index, command in enumerate(commands):
            if command is not None:
                connection = self._links[index].connection
                if connection is None:
                    untold.append(index)
                else:
                    connection.send(command, by)
        return untold

    async def reach(self, index: int, by: float) -> list[Any]:
        """The answers of one node to the first commands, on a connection that lasts."""
        self.check()
        return await self._links[index].reach(by)

    async def call(self, index: int, command: bytes, by: float, run_id: bytes = b"") -> Any:
        """One node's answer, on the connection on which it was last reached; or raises.

        With a `run_id`, only if it is in that life.
        """
        link = self._links[index]
        connection = link.connection
        if connection is None or (run_id and link.run_id != run_id):
            raise link.broken()
        reply = await connection.send(command, by)
        if isinstance(reply, Exception):
            raise BackendUnavailable(str(reply))
        return reply

    async def batch(self, index: int, commands: Sequence[bytes], by: float) -> list[Any]:
        """One node's answers to many, errors that it answered among them."""
        connection = self._links[index].connection
        if connection is None:
            raise self._links[index].broken()
        return await _all([connection.send(command, by) for command in commands])

    def run_id(self, index: int) -> bytes:
        return self._links[index].run_id

    async def close(self) -> None:
        self.closed = True
        for link in self._links:
            if link.connection is not None:
                link.connection.abort()
        await asyncio.sleep(0)  # the transports close their sockets in the loop's next turn

    def check(self) -> None:
        if self.closed:
            raise BackendUnavailable("this connection to the nodes is closed")


async def _all(replies: list[Reply]) -> list[Any]:
    return [await reply for reply in replies]
