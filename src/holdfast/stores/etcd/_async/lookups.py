"""Looking for the entry of an owner that this manager does not know: one read for all who ask at once.

Each attempt of a crowd that fails before it could be sent is cleaned up after, and nobody knows by then
whether another has asked for the same owner. If each read the whole queue for itself, that would cost
the square of their number, just when there is trouble already.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from math import inf
from threading import RLock
from weakref import WeakValueDictionary

from ...._runtime.aio import Turn
from ....clock import Clock
from ..keys import Naming, StoredEntry
from ..wire import messages
from ..wire.messages import KeyValue
from .retry import Retrier

AT_ONCE = 50
"""The number of queues that one transaction reads: some are long."""


class Lookup:
    """The entries of one queue by owner, for those who look for one at the same time."""

    __slots__ = ("__weakref__", "read", "turn")

    def __init__(self) -> None:
        self.turn = Turn()
        """The turn to read the queue, which one of them has at a time."""
        self.read: tuple[float, Mapping[str, StoredEntry]] = -inf, {}
        """The time at which the last answered read was sent, and what it found."""


class Lookups:
    """The looks at queues that one manager has under way: each lives as long as somebody uses it."""

    def __init__(self, clock: Clock, naming: Naming, retrier: Retrier) -> None:
        self._clock = clock
        self._naming = naming
        self._retrier = retrier
        self._mutex = RLock()
        self._lookups: WeakValueDictionary[str, Lookup] = WeakValueDictionary()

    async def find(self, name: str, owner: str, deadline: float) -> StoredEntry | None:
        """Returns the entry of `owner` for the lock `name`, by a read that was sent from now on."""
        return (await self._of_one(name, deadline)).get(owner)

    async def find_all(
        self, pairs: Sequence[tuple[str, str]], deadline: float
    ) -> list[StoredEntry | None]:
        """Returns as `find` does for each name and owner; the queue of each lock is read once."""
        names = list(dict.fromkeys(name for name, _ in pairs))
        entries: dict[str, Mapping[str, StoredEntry]] = {}
        if len(names) == 1:
            entries[names[0]] = await self._of_one(names[0], deadline)
            names.clear()
        for number in range(0, len(names), AT_ONCE):
            some = names[number : number + AT_ONCE]
            starts = [self._naming.queue(name) for name in some]
            reads = [messages.read(start, messages.after(start)) for start in starts]
            reply = await self._retrier.txn(messages.then(*reads), deadline)
            for name, result in zip(some, reply.results, strict=True):
                entries[name] = self._by_owner(messages.held_keys((result,)))
        return [entries[name].get(owner) for name, owner in pairs]

    async def _of_one(self, name: str, deadline: float) -> Mapping[str, StoredEntry]:
        arrived = self._clock.now()
        with self._mutex:
            lookup = self._lookups.get(name)
            if lookup is None:
                lookup = self._lookups[name] = Lookup()
        return await self._retrier.in_turn(
            lookup.turn, deadline, partial(self._read, lookup, name, arrived, deadline)
        )

    async def _read(
        self, lookup: Lookup, name: str, arrived: float, deadline: float
    ) -> Mapping[str, StoredEntry]:
        began, entries = lookup.read
        if began <= arrived:
            began, start = self._clock.now(), self._naming.queue(name)
            request = messages.range_of(start, messages.after(start))
            entries = self._by_owner((await self._retrier.range(request, deadline)).keys)
            lookup.read = began, entries
        return entries

    def _by_owner(self, keys: Iterable[KeyValue]) -> Mapping[str, StoredEntry]:
        # Of two entries of one owner the first counts.
        return {one.entry.owner: one for one in reversed(self._naming.stored_entries(keys))}
