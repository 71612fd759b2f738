"""The latest look at the locks of a store."""

from __future__ import annotations

from collections.abc import Sequence

from .. import BackendUnavailable, Locks, LockState
from .wakeups import now


class Look:
    """The latest look at the locks of a store. `take` is called on a thread of its own."""

    def __init__(self, locks: Locks, prefix: str) -> None:
        self._locks = locks
        self._prefix = prefix
        self.states: Sequence[LockState] = ()
        """The locks, the most waited for first."""
        self.at = now()
        """When the store last answered."""
        self.error: BackendUnavailable | None = None
        """The reason why it does not, if it does not."""
        self.taken = False
        """True once it has answered at all."""

    def take(self) -> None:
        """Asks the store."""
        try:
            states = self._locks.list(self._prefix)
        except BackendUnavailable as error:
            self.error = error
        else:
            self.states = sorted(states, key=lambda one: (-len(one.waiters), one.name))
            self.at = now()
            self.error = None
            self.taken = True
