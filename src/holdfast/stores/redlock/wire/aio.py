"""Asking all nodes at once, in asyncio: one connection for each, on which all tasks' commands travel.

The twin is `threads`: the same names and meanings.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Container, Sequence
from math import inf
from typing import Any

from ....clock import Clock
from ....errors import BackendUnavailable
from ...redis.address import Address
from ..commands import Part
from ..membership import Board
from .aio_connections import Asking, Heard, Link, NodeConnection, all_of


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
        self._ways: list[NodeConnection | None] = [None] * len(addresses)
        """The links' connections: another list whenever one of them changes."""
        self._waiting: dict[NodeConnection, None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due = inf

    async def ask(
        self,
        commands: Sequence[bytes | None],
        heard: Heard,
        deadline: float,
        ways: Sequence[object] = (),
        answered: Container[int] = (),
        instead: bytes = b"",
        part: Part | None = None,
    ) -> Sequence[object]:
        """Each node its command, all at once; until `heard` has enough, or all have answered.

        Answers that come later are told to `heard` as well, while their connection lasts. Answers the
        ways on which they went. With those of an earlier question, which some nodes have answered,
        another that is not reached on the same way any more is sent `instead`: what was asked then may
        arrive after it. With `part`, the command may go together with others'.
        """
        self.check()
        asking = Asking(self.board, self._loop, heard, deadline - self.clock.now())
        question = (asking, deadline)
        used = self._ways
        for index, usual in enumerate(commands):
            if usual is None:
                continue
            connection = used[index]
            if connection is None:
                self.board.failed(index, "it is not connected")
                heard(index, BackendUnavailable("not connected"))
                continue
            late = ways and connection is not ways[index] and index not in answered
            asking.left += 1
            if late:
                connection.put(instead, question, None)
            else:
                connection.put(usual, question, part)
        if asking.left:
            await asking
        return used

    def same_run(self, ways: Sequence[object], index: int) -> bool:
        """Whether what is sent to a node now reaches the run of its server that those led to."""
        connection = self._ways[index]
        return connection is not None and connection is ways[index]

    def catch_up(self) -> None:
        """Take in the answers that came too late to be waited for: here the loop does so."""

    def post(
        self,
        commands: Sequence[bytes | None],
        deadline: float,
        heard: Heard,
        ways: Sequence[object] = (),
        instead: Sequence[bytes | None] = (),
    ) -> list[int]:
        """Send, and do not wait: behind whatever was sent before. Answers who could not be told.

        The rest as in `ask`.
        """
        asking = Asking(self.board, self._loop, heard, deadline - self.clock.now())
        untold: list[int] = []
        for index, command in enumerate(commands):
            if command is not None:
                connection = self._links[index].connection
                if connection is None:
                    untold.append(index)
                else:
                    behind = not ways or connection is ways[index]
                    asking.left += 1
                    connection.send(
                        command if behind else instead[index] or command, deadline, asking
                    )
        return untold

    def reach(self, index: int, deadline: float) -> Awaitable[list[Any]]:
        """The answers of one node to the first commands, on a connection that lasts."""
        self.check()
        return self._links[index].reach(deadline)

    async def call(self, index: int, command: bytes, deadline: float, run_id: bytes = b"") -> Any:
        """One node's answer, on the connection on which it was last reached; or raises.

        With a `run_id`, only if it is in that life.
        """
        link = self._links[index]
        connection = link.connection
        if connection is None or (run_id and link.run_id != run_id):
            raise link.broken()
        reply = await connection.send(command, deadline)
        if isinstance(reply, Exception):
            raise BackendUnavailable(str(reply))
        return reply

    def batch(self, index: int, commands: Sequence[bytes], deadline: float) -> Awaitable[list[Any]]:
        """One node's answers to many, errors that it answered among them."""
        connection = self._links[index].connection
        if connection is None:
            raise self._links[index].broken()
        return all_of(connection.send_all(commands, deadline))

    def run_id(self, index: int) -> bytes:
        return self._links[index].run_id

    def changed(self) -> None:
        """Called by a link."""
        self._ways = [link.connection for link in self._links]

    # One timer for all connections: what is asked is mostly asked of all of them.

    def look_at(self, connection: NodeConnection, due: float) -> None:
        """Called by it: what it waits for is due then."""
        self._waiting[connection] = None
        if due < self._timer_due:
            if self._timer is not None:
                self._timer.cancel()
            self._timer_due = due
            self._timer = self._loop.call_later(max(0.0, due - self.clock.now()), self._look)

    def _look(self) -> None:
        self._timer, self._timer_due = None, inf
        waiting, self._waiting = self._waiting, {}
        for connection in waiting:
            connection.look()

    def shut(self) -> None:
        """Nothing is asked any more, and nobody waits for an answer."""
        self.closed = True
        for link in self._links:
            link.shut()

    async def close(self) -> None:
        self.shut()
        if self._timer is not None:
            self._timer.cancel()
        await asyncio.sleep(0)  # the transports close their sockets in the loop's next turn

    def check(self) -> None:
        if self.closed:
            raise BackendUnavailable("this connection to the nodes is closed")
