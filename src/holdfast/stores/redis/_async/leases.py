"""The verbs that change a lease which is held, or pass it on. Each is one script, as all verbs are."""

from __future__ import annotations

from abc import ABC, abstractmethod

from ....errors import BackendUnavailable, ConfigError
from ....model import GONE, Gone, Granted
from ..._async.contract import Ticket
from ..commands import Commands
from ..owners import OwnerSet
from .retry import AnyWire, Retrier


class HeldLeases(ABC):
    """The part of a backend that amends, detaches and adopts leases."""

    _commands: Commands
    _wire: AnyWire
    _retrier: Retrier
    _doubtful_owners: OwnerSet
    _singly_renewed: OwnerSet

    async def amend(
        self, name: str, owner: str, deadline: float, weight: int = 0, text: str | None = None
    ) -> bool:
        command = self._commands.amend(name, owner, weight, text)
        return bool(await self._retrier.call(command, deadline))

    async def detach(self, name: str, owner: str, ttl: float, deadline: float) -> bool:
        return bool(await self._retrier.call(self._commands.detach(name, owner, ttl), deadline))

    async def adopt(self, ticket: Ticket, giver: str, deadline: float) -> Granted | Gone:
        owner, terms = ticket.owner, ticket.terms
        command = self._commands.adopt(terms, giver, owner)

        async def send() -> object:
            return await self._wire.call(command, deadline)

        try:
            reply = await self._retrier.send_persistently(send, deadline)
        except BaseException:
            # It may still arrive: the release of this owner leaves a tombstone.
            self._doubtful_owners.add(owner)
            raise
        if isinstance(reply, Exception):
            raise self._refused(reply, ticket)
        if reply == 0:
            return GONE
        if terms.capacity != 1:
            self._singly_renewed.add(owner)
        if not self._wire.attentive:
            self._wire.attend(owner)
        return Granted(int(reply), terms.ttl)

    @abstractmethod
    def _refused(self, error: Exception, ticket: Ticket) -> BackendUnavailable | ConfigError:
        """Returns the error for a request that the server refused."""
