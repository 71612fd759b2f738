"""The verbs of those who observe an election. Changes are on the server; these tell of the next one.

An observer is told on the channel of its manager, whatever the number of elections: in asyncio on the
one connection, in blocking code on one that listens for all threads.
"""

from __future__ import annotations

from ....model import Observation
from ..._async.contract import OBSERVED_FOR, Ticket
from ..answers import observation
from ..commands import Commands
from .retry import AnyWire, Retrier


class Elections:
    """The part of a backend that observes elections."""

    _commands: Commands
    _wire: AnyWire
    _retrier: Retrier

    async def observe(self, ticket: Ticket, after: int, deadline: float) -> Observation:
        command = self._commands.observe(ticket.name, OBSERVED_FOR, after)

        async def send() -> object:
            return await self._wire.observe(ticket, command, deadline)

        reply = await self._retrier.send_persistently(send, deadline)
        if isinstance(reply, Exception):
            raise self._retrier.error_for(reply)
        return observation(reply)

    async def unobserve(self, ticket: Ticket, deadline: float) -> None:
        command = self._commands.unobserve(ticket.name)
        reply = await self._wire.unobserve(ticket, command, deadline)
        if isinstance(reply, Exception):
            raise self._retrier.error_for(reply)
