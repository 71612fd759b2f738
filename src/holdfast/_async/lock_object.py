"""A lock object: it holds settings, not state, except for a lease that was entered by hand."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from .. import forks
from ..errors import ConfigError, LockNotOwned
from .decorator import Parameters, Result, hold_during
from .entering import Enterable, Leased

if TYPE_CHECKING:
    from .usage import Body


class LockObject(Enterable[Leased]):
    """A lock, or several as one, as a manager makes it. It may be entered by hand once at a time."""

    __slots__ = ("_by_hand",)

    def __init__(self) -> None:
        self._by_hand: list[tuple[Leased, Body]] = []
        """The lease that was entered by hand, as often as it was."""

    def __call__(
        self, function: Callable[Parameters, Coroutine[Any, Any, Result]]
    ) -> Callable[Parameters, Coroutine[Any, Any, Result]]:
        """Returns `function`, each call of which holds a lease of its own: for use as a decorator."""
        return hold_during(self, function)

    if TYPE_CHECKING:

        async def __aenter__(self) -> Leased: ...

    @abstractmethod
    def _title(self) -> str:
        """Returns the lock's name, or the names, for messages."""

    def _shared(self) -> bool:
        """Tells whether others may hold it at the same time."""
        return False

    def _check_by_hand(self) -> None:
        generation = forks.current()
        for entry in list(self._by_hand):
            hold, body = entry[0]._hold, entry[1]
            # By the parent of this process, or interrupted on the threshold.
            if hold._session.generation != generation or body not in hold._usage.bodies:
                with suppress(ValueError):  # left meanwhile
                    self._by_hand.remove(entry)
        if self._by_hand and self._shared():
            raise self._mistakable()

    def _note_by_hand(self, lease: Leased, body: Body) -> None:
        with lease._hold._session.mutex:
            if any(other is not lease for other, _ in self._by_hand[:1]):
                raise self._mistakable()
            self._by_hand.append((lease, body))

    def _mistakable(self) -> ConfigError:
        return ConfigError(
            f"this lock object for {self._title()} has been entered by hand, as an ExitStack does, and "
            "not been left: one exit could be mistaken for the other; enter what acquire() returns, "
            "or use a lock object for each",
            name=getattr(self, "name", None),
        )

    def _take_by_hand(self) -> tuple[Leased, Body]:
        if not self._by_hand:
            raise LockNotOwned(
                f"{self._title()} was not entered, so it cannot be left",
                name=getattr(self, "name", None),
            )
        return self._by_hand.pop()
