"""Waiters and observers to which the database sends no messages: which of them to look after."""

from __future__ import annotations

from itertools import islice

FIRST = 32
"""Waiters for one lock that are looked after: the first of its queue. Those behind them come later."""


class Unheard:
    """The waiters for each lock, in the order in which they asked; and the observers."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        """The locks that they wait for, by owner; empty for an observer."""
        self._waiters: dict[str, dict[str, None]] = {}
        """The owners who wait for each lock."""
        self._observers: dict[str, None] = {}

    def __bool__(self) -> bool:
        return bool(self._names)

    def add(self, owner: str, name: str, observes: bool) -> None:
        """Takes up `owner`, who waits for the lock `name`, or observes it."""
        self.discard(owner)
        if observes:
            self._names[owner] = ""
            self._observers[owner] = None
        else:
            self._names[owner] = name
            self._waiters.setdefault(name, {})[owner] = None

    def discard(self, owner: str) -> None:
        """Forgets `owner`, if it is there."""
        name = self._names.pop(owner, None)
        if name is None:
            return
        self._observers.pop(owner, None)
        line = self._waiters.get(name)
        if line is not None:
            line.pop(owner, None)
            if not line:
                del self._waiters[name]

    def first(self) -> list[str]:
        """Returns the owners to look after now.

        A lock is granted in the order of its queue, so a look costs the same whatever the crowd. A
        waiter that is further ahead there than it is here is told by its next heartbeat.
        """
        owners = list(self._observers)
        for line in self._waiters.values():
            owners += islice(line, FIRST)
        return owners
