"""Several locks at once, in one step, where one server has them all: not in a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from ....model import Busy, Granted
from ..._async.contract import Ticket
from ..wire.protocol import Lost
from .backend import RedisBackend


class OneServerBackend(RedisBackend):
    """The adapter to one server at a time, on which all locks are."""

    async def acquire_all(
        self, tickets: Sequence[Ticket], deadline: float
    ) -> Sequence[Granted] | Busy:
        command = self._commands.acquire_all(tickets)
        send = self._sender(command, deadline)
        try:
            try:
                reply = await send()
                if isinstance(reply, Exception):
                    reply = await self._retrier.retry_refused(reply, send, deadline)
            except Lost as error:
                # Sent again for the same owners, which get the same reply if it was carried out.
                self._doubt(tickets)
                reply = await self._retrier.retry_lost(error, send, deadline)
        except BaseException:
            self._doubt(tickets)
            raise
        if type(reply) is list:
            for ticket in tickets:
                if ticket.capacity != 1:
                    self._singly_renewed.add(ticket.owner)
                if not self._wire.attentive:
                    self._wire.attend(ticket.owner)
            return [
                Granted(token, ticket.terms.ttl)
                for token, ticket in zip(reply, tickets, strict=True)
            ]
        for ticket in tickets:
            if ticket.owner in self._doubtful_owners:
                # An earlier request may still arrive: nobody would release its grants.
                await self.release(ticket.name, ticket.owner, deadline)
        if isinstance(reply, Exception):
            text, _, number = str(reply).rpartition(" ")
            if number.isdigit() and text.startswith("HF"):
                raise self._refused(type(reply)(text), tickets[int(number)])
            raise self._retrier.error_for(reply)
        return Busy((-1 - reply) / 1000)

    async def release_all(self, pairs: Sequence[tuple[str, str]], deadline: float) -> list[bool]:
        """Releases the lock `name` of `owner` for each of `pairs`, as `release` does.

        That is one step for all that nobody else holds or waits for, and one write for the rest.
        """
        for _, owner in pairs:
            if owner in self._singly_renewed:
                self._forget(owner)
        lost = False

        async def send(commands: Sequence[bytes]) -> Any:
            nonlocal lost
            try:
                replies = await self._wire.batch(commands, deadline)
            except Lost:
                lost = True
                raise
            return self._retrier.transient_among(replies) or replies

        async def send_persistently(commands: Sequence[bytes]) -> list[Any]:
            replies = await self._retrier.send_persistently(partial(send, commands), deadline)
            if isinstance(replies, Exception):
                raise self._retrier.error_for(replies)
            for reply in replies:
                if isinstance(reply, Exception):
                    raise self._retrier.error_for(reply)
            return list(replies)

        rest: Sequence[int] = range(len(pairs))
        freed = [False] * len(pairs)
        if not any(owner in self._doubtful_owners for _, owner in pairs):
            (answers,) = await send_persistently([self._commands.release_all(pairs)])
            freed = [answer == 1 for answer in answers]
            rest = [i for i in rest if not freed[i]]
        if rest:
            replies = await send_persistently([self._release_command(*pairs[i]) for i in rest])
            for i, reply in zip(rest, replies, strict=True):
                # By our own clock it was held when we first asked; if that was lost, we freed it.
                freed[i] = lost or reply == 1
                self._doubtful_owners.discard(pairs[i][1])
        return freed

    def _release_command(self, name: str, owner: str) -> bytes:
        if owner in self._doubtful_owners:
            return self._commands.release_and_refuse(name, owner)
        return self._commands.release(name, owner)

    def _doubt(self, tickets: Sequence[Ticket]) -> None:
        for ticket in tickets:
            self._doubtful_owners.add(ticket.owner)
