"""Several locks at once, in one step, where one server has them all: not in a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....model import Busy, Granted, quick_new
from ..._async.contract import Ticket
from ..wire.protocol import Lost
from .backend import RedisBackend


class OneServerBackend(RedisBackend):
    """The adapter to one server at a time, on which all locks are."""

    async def acquire_all(
        self, tickets: Sequence[Ticket], deadline: float
    ) -> Sequence[Granted] | Busy:
        prepared = [ticket.terms.prepared or self._prepare(ticket.terms) for ticket in tickets]
        command = self._commands.acquire_all(prepared, [ticket.owner for ticket in tickets])
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
            grants: list[Granted] = []
            for token, ticket in zip(reply, tickets, strict=True):
                terms = ticket.terms
                if terms.capacity != 1:
                    self._singly_renewed.add(ticket.owner)
                grants.append(quick_new(Granted, (token, terms.ttl, False, 0.0, None)))
            if not self._wire.attentive:
                for ticket in tickets:
                    self._wire.attend(ticket.owner)
            return grants
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
        if self._singly_renewed:
            for _, owner in pairs:
                if owner in self._singly_renewed:
                    self._forget(owner)
        doubtful = self._doubtful_owners
        if doubtful and any(owner in doubtful for _, owner in pairs):
            return await self._release_each(pairs, [False] * len(pairs), False, deadline)
        command = self._commands.release_all(pairs)
        lost = False
        try:
            answers = await self._wire.call(command, deadline)
            if isinstance(answers, Exception):
                send = self._sender(command, deadline)
                answers = await self._retrier.retry_refused(answers, send, deadline)
        except Lost as error:
            lost = True
            answers = await self._retrier.retry_lost(
                error, self._sender(command, deadline), deadline
            )
        if isinstance(answers, Exception):
            raise self._retrier.error_for(answers)
        freed = [answer == 1 for answer in answers]
        return freed if all(freed) else await self._release_each(pairs, freed, lost, deadline)

    async def _release_each(
        self, pairs: Sequence[tuple[str, str]], freed: list[bool], lost: bool, deadline: float
    ) -> list[bool]:
        """Releases what is not `freed` yet, in one write; `lost`: an earlier reply was lost."""
        rest = [i for i in range(len(pairs)) if not freed[i]]
        commands = [self._release_command(*pairs[i]) for i in rest]

        async def send() -> Any:
            nonlocal lost
            try:
                replies = await self._wire.batch(commands, deadline)
            except Lost:
                lost = True
                raise
            return self._retrier.transient_among(replies) or replies

        replies = await self._retrier.send_persistently(send, deadline)
        for reply in [replies] if isinstance(replies, Exception) else replies:
            if isinstance(reply, Exception):
                raise self._retrier.error_for(reply)
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
