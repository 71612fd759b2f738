"""A lease as `with` enters it, of one lock or of several."""

from __future__ import annotations

import sys
from abc import abstractmethod
from collections.abc import Coroutine
from typing import Any

from .._runtime.aio import Interrupt, current
from ..errors import LeaseLost, LockNotOwned
from .entering import Enterable, Leased, exit_of
from .usage import Body


class LeaseObject(Enterable[Leased]):
    """A lease, under which any number of bodies may run: the last one to end releases it."""

    __slots__ = ()

    _hold: Any
    """The engine's side of it, an `EnteredHold`."""

    def __aenter__(self) -> Coroutine[Any, Any, Leased]:
        # Until its body has begun it counts as not given: an exception from a signal's handler may come
        # first, and if nobody else has the lease (`with lock.acquire():`), it is freed.
        self._hold._usage.given = False  # before any call: an interrupt comes only after one
        return self._enter(exit_of(self, sys._getframe(1)))

    @abstractmethod
    def remaining(self) -> float:
        """Returns the seconds for which it is held without a renewal."""

    @abstractmethod
    def ensure(self, at_least: float = 0.0) -> None:
        """Raises `LeaseLost` unless it is held."""

    @abstractmethod
    def _title(self) -> str:
        """Returns the lock's name, or the names, for messages."""

    @abstractmethod
    def _set_alarm(self) -> None:
        """Has its bodies told of a loss, whatever the store does."""

    @abstractmethod
    def _loss(self) -> LeaseLost:
        """Returns the error for its use after its end."""

    def _check_by_hand(self) -> None:
        """Refuses nothing: all bodies of a lease are alike."""

    def _note_by_hand(self, lease: Leased, body: Body) -> None:
        """Does nothing: the body is noted already."""

    def _body_by_hand(self) -> Body:
        """Returns the body that is being left: one of this task or thread, if it has any."""
        bodies: list[Body] = list(self._hold._usage.bodies)
        if not bodies:
            raise LockNotOwned(
                f"the lease on {self._title()} was not entered, so it cannot be left",
                name=getattr(self, "name", None),
            )
        runner = current()
        return ([body for body in bodies if body.runner is runner] or bodies)[-1]

    def _begin(self) -> Body:
        """Begins a body of `with`, which is stopped, where that can be done, if the lease is lost."""
        if self.remaining() <= 0:
            self.ensure()  # which says why
        usage = self._hold._usage
        body: Body = usage.new_body(current())
        try:
            if not usage.begin(body) or self._hold._session.closed:
                raise self._loss()  # `close` may have looked for bodies before it began
            if Interrupt.works:
                self._set_alarm()
        except BaseException:
            try:
                usage.settle(body, None)
            finally:  # another interrupt may come at the very entry of it
                usage.end(body)
            raise
        return body
