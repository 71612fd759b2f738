"""A request to several nodes at once, in asyncio, and the way of their replies to the task."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from ...redis.wire.protocol import Late
from ...redis.wire.reply import Reply
from ..membership import NodeTable, failure_reason

OnReply = Callable[[int, Any], bool]
"""Called with each node's reply, or the error in its place; returns True when that is enough."""


class FanOut(Reply):
    """A request to several nodes. The task awaits it: until enough of them have replied."""

    __slots__ = ("_allowed", "_on_reply", "_table", "missing")

    def __init__(
        self, table: NodeTable, loop: asyncio.AbstractEventLoop, on_reply: OnReply, allowed: float
    ) -> None:
        Reply.__init__(self, loop)
        self._table = table
        self._on_reply = on_reply
        self._allowed = allowed
        """Seconds that the nodes have to reply."""
        self.missing = 0
        """The number of nodes that have not replied."""

    def receive(self, index: int, reply: Any) -> None:
        """Takes a node's reply. Only from a callback of the event loop: it may resume the task."""
        if type(reply) is not int and isinstance(reply, Exception):
            self._blame(index, reply)
        self.missing -= 1
        if self._on_reply(index, reply) or self.missing == 0:
            self.settle(None)

    def receive_soon(self, index: int, reply: Any) -> None:
        """Takes a node's reply, from anywhere in the thread of the event loop."""
        self._loop.call_soon(self.receive, index, reply)

    def _blame(self, index: int, error: Exception) -> None:
        """Puts the node out, unless it had too little time."""
        if type(error) is not Late or self._table.is_enough_time(self._allowed):
            self._table.report_failure(index, failure_reason(error))


class NodeReply(Reply):
    """The reply of one node to a fan-out, where it is overdue or will never come.

    It takes the place of the fan-out in the order of its connection, so that each node is counted once.
    """

    __slots__ = ("_fan_out", "_index", "_settled")

    def __init__(self, fan_out: FanOut, index: int) -> None:
        self._fan_out = fan_out
        self._index = index
        self._settled = False

    @property
    def settled(self) -> bool:
        return self._settled

    def settle(self, value: Any) -> None:
        """Passes the reply on. Only from a callback of the event loop."""
        if not self._settled:
            self._settled = True
            self._fan_out.receive(self._index, value)

    def settle_soon(self, value: Any, error: BaseException | None = None) -> None:
        """Passes the reply on, from anywhere in the thread of the event loop."""
        if not self._settled:
            self._settled = True
            self._fan_out.receive_soon(self._index, value if error is None else error)
