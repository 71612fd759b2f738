"""Commands that a node has missed: that a lock was given back, or that a waiter has left.

A node gets them as soon as it votes again, so that no waiter waits there for the end of a hold that
is over. This is the store's one memory of them, whichever part first tried to send them. The engine's
pending releases are another matter: releases that no majority has confirmed.
"""

from __future__ import annotations

from threading import Lock
from typing import Any

from ....errors import LockError
from ...redis.wire.protocol import Late
from ..address import Settings
from ..membership import NodeState, is_refusal
from ..wire.aio import RedlockWire

MOST = 1000
"""Commands kept for one node. What it misses beyond that ends with its TTL."""
AT_ONCE = 100
"""Commands that are sent together."""
REFUSED_PAUSE = 1.0
"""Seconds in which a node is not sent again what it refused: it may refuse for long, and votes on."""


class Undelivered:
    """The commands that each node still has to get."""

    def __init__(self, settings: Settings, wire: RedlockWire) -> None:
        self._patience = settings.patience
        self._wire = wire
        self._table, self._clock = wire.table, wire.clock
        self._mutex = Lock()
        self._commands: list[dict[bytes, float]] = [{} for _ in wire.table.nodes]
        """By node: its commands, and the moment after which each does not matter any more."""
        self._pauses = [0.0] * len(wire.table.nodes)
        """By node: the moment until which it is sent nothing, since it has refused."""

    def add(self, index: int, command: bytes, ttl: float, missed: object = None) -> None:
        """Sends `command` now if the node votes, otherwise once it does; not later than in `ttl`.

        `missed` is what came in place of a reply, if the command was sent before. A node that was late
        gets the command with the next one: a new connection to it would only be waited for. One that
        has refused gets it after a pause.
        """
        now = self._clock.now()
        self._remember(index, command, now + ttl)
        if is_refusal(missed):
            self._pauses[index] = now + REFUSED_PAUSE
        elif type(missed) is not Late:
            self._send_if_due(index)

    def send_again(self) -> None:
        """Sends what nodes refused, or were late with: a round has failed, perhaps because of it."""
        for node in self._table.nodes:
            if self._commands[node.index]:
                self._send_if_due(node.index)

    def _send_if_due(self, index: int) -> None:
        node = self._table.nodes[index]
        if node.incarnation and self._clock.now() >= self._pauses[index]:
            self._send_now(node)

    async def deliver(self, node: NodeState) -> None:
        """Sends a node that votes again its commands. Each is forgotten when the node has replied."""
        now = self._clock.now()
        with self._mutex:
            kept = self._commands[node.index]
            live = {command: until for command, until in kept.items() if until > now}
            self._commands[node.index] = live
            commands = list(live)
        for start in range(0, len(commands), AT_ONCE):
            some = commands[start : start + AT_ONCE]
            try:
                deadline = self._clock.now() + self._patience
                replies = await self._wire.call_many(node.index, some, deadline)
            except LockError as error:
                self._report_failure(node.index, str(error))
                return
            for command, reply in zip(some, replies, strict=True):
                if type(reply) is int:
                    with self._mutex:
                        self._commands[node.index].pop(command, None)
                elif is_refusal(reply):
                    self._pauses[node.index] = self._clock.now() + REFUSED_PAUSE
                else:
                    self._report_failure(node.index, str(reply))

    def _send_now(self, node: NodeState) -> None:
        """Sends a node its commands without waiting; those without a reply are remembered again."""
        with self._mutex:
            kept, self._commands[node.index] = self._commands[node.index], {}
        now = self._clock.now()
        for command, until in kept.items():
            if until > now and not self._post(node.index, command, until):
                self._remember(node.index, command, until)
                self._report_failure(node.index, "it is not connected")

    def _remember(self, index: int, command: bytes, until: float) -> None:
        with self._mutex:
            commands = self._commands[index]
            if len(commands) < MOST:
                commands[command] = until

    def _post(self, index: int, command: bytes, until: float) -> bool:
        """Returns whether `command` could be sent. Without a reply it may not have arrived."""

        def on_reply(index: int, reply: Any) -> bool:
            if type(reply) is not int:
                self.add(index, command, until - self._clock.now(), reply)
            return False

        commands: list[bytes | None] = [None] * len(self._table.nodes)
        commands[index] = command
        return not self._wire.post(commands, self._clock.now() + self._patience, on_reply)

    def _report_failure(self, index: int, reason: str) -> None:
        self._table.report_failure(index, f"it cannot be told what was given up: {reason}")
