"""Hooks: what the service tells metrics, traces and the access log. Empty lists cost one truth test."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ..events import Event, Listeners, report
from ..stores._async.contract import Backend


class Finished(NamedTuple):
    """A request that was answered, or whose client went away before."""

    operation: str
    """The id of the operation, as in `/openapi.json`; empty if there is none at that path."""
    method: str
    path: str
    """The path as it was sent."""
    status: int
    """The status of the answer; 499 if the client went away before."""
    duration: float
    """Seconds from receipt to the end of the answer."""
    caller: str
    """The caller's title; empty if it is not known."""
    client: str
    """The address that the request came from."""
    namespace: str = ""
    name: str = ""


class Hooks:
    """The listeners of one service. They are called in its event loop, so they have to be quick."""

    def __init__(self) -> None:
        self.events: Listeners[Event] = Listeners()
        """Listeners to what happens to leases (`holdfast.events`): acquired, waited, renewed, released,
        forced."""
        self.finished: list[Callable[[Finished], object]] = []
        self.wrap: Callable[[Backend], Backend] = lambda backend: backend
        """Returns a store's backend as the one that the service is to use: metrics watch its verbs."""

    def tell_finished(self, finished: Finished) -> None:
        for listener in tuple(self.finished):
            try:
                listener(finished)
            except Exception as error:  # a broken metric must not break a lock
                report("a listener failed on Finished", error)
