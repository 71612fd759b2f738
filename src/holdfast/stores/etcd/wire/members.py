"""The members of a cluster, one of which is called at a time."""

from __future__ import annotations

from collections.abc import Callable
from random import randrange
from typing import Protocol


class Several(Protocol):
    """The address of several servers, any of which may be asked."""

    @property
    def endpoints(self) -> tuple[str, ...]: ...


class Members:
    """The turn among the members. It begins at a random one, so that clients spread over them."""

    def __init__(self, address: Several, draw: Callable[[int], int] = randrange) -> None:
        self._endpoints = address.endpoints
        self.endpoint = self._endpoints[draw(len(self._endpoints))]
        """The member that is called now."""

    def turn_from(self, endpoint: str) -> None:
        """Turns from a member that is no good now to the next; once, however many callers say so."""
        # Without a mutex: two threads that are here at once both turn to the same next one.
        if endpoint == self.endpoint:
            following = self._endpoints.index(endpoint) + 1
            self.endpoint = self._endpoints[following % len(self._endpoints)]


class KeepAlive:
    """The pace of pings on watch streams, on which nothing may come for hours."""

    def __init__(self) -> None:
        self.pause = 10.0
        """Seconds without a word from the server before a ping; etcd's own lower limit is 5."""
        self.patience = 3.0
        """Seconds for the answer to a ping."""

    def slow_down(self) -> None:
        """Pings half as often: the server has complained."""
        self.pause *= 2
