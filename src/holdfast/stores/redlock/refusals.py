"""What is refused before any node is asked."""

from __future__ import annotations

from typing import Protocol

from ...errors import ConfigError, GuaranteeError
from .address import Settings
from .shared_commands import mode_of


class Asked(Protocol):
    """The part of a ticket that says what is asked for."""

    @property
    def name(self) -> str: ...
    @property
    def owner(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def weight(self) -> int: ...
    @property
    def capacity(self) -> int: ...


def check_shape(ticket: Asked) -> None:
    """Refuses a weight that the nodes cannot give."""
    if mode_of(ticket.kind, ticket.weight, ticket.capacity) is None:
        raise GuaranteeError(
            f"{ticket.name!r} was requested as a {ticket.kind}, with a weight of {ticket.weight} "
            f"out of {ticket.capacity}; on redlock:// shares do not add up over a majority: there "
            "are locks, semaphores with a slot for each holder, readers and writers",
            name=ticket.name,
            owner=ticket.owner,
        )


def check_ttl(name: str, ttl: float, settings: Settings) -> None:
    """Refuses a TTL for which a node that restarted might vote too early."""
    if ttl > settings.max_ttl:
        raise ConfigError(
            f"a ttl of {ttl:g} s for {name!r} is longer than max_ttl, {settings.max_ttl:g}: "
            "a node that restarted stays out for that long; give connect() a larger max_ttl, the "
            "same in all clients",
            name=name,
        )
