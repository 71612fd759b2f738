"""The ledger's rows in memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from itertools import chain

from ...clock import Clock
from ...entries import CHANGES_KEPT, CHANGES_KEPT_FOR, Claim, Entry, WakeUp
from ...model import Change, Granted, in_free_slot
from ...settlement import ELECTION

Notify = Callable[[Granted | None], None]


class _Queue:
    """The entries of one lock, by owner, in the order in which they became what they are."""

    __slots__ = ("holders", "waiters")

    def __init__(self) -> None:
        self.holders: dict[str, Entry] = {}
        self.waiters: dict[str, Entry] = {}


class MemoryRows:
    """The rows of the store, see `entries.Rows`. Used under the mutex of the store."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.locks: dict[str, _Queue] = {}
        self.notifiers: dict[str, Notify] = {}
        """The functions that wake waiters and observers, by owner."""
        self.token = 0
        self._arrivals = 0
        self._changes: dict[str, deque[Change]] = {}
        self._observers: dict[str, dict[str, tuple[WakeUp, float]]] = {}
        """The observers of each election, by owner, and until when."""

    def now(self) -> float:
        return self.clock.now()

    def wall(self) -> float:
        return self.clock.wall()

    def of(self, name: str) -> Iterator[Entry]:
        queue = self.locks.get(name)
        if queue is None:
            return iter(())
        return chain(queue.holders.values(), queue.waiters.values())

    def find(self, name: str, owner: str) -> Entry | None:
        queue = self.locks.get(name)
        return None if queue is None else queue.holders.get(owner) or queue.waiters.get(owner)

    def renew_held(self, claim: Claim) -> int | None:
        queue = self.locks.get(claim.name)
        entry = None if queue is None else queue.holders.get(claim.owner)
        now = self.now()
        if entry is None or not entry.confirmed or entry.expires <= now:
            return None
        entry.expires = max(entry.expires, now + claim.ttl)
        return entry.token

    def keep_waiting(self, name: str, owners: Sequence[str]) -> bool:
        queue, now = self.locks[name], self.now()
        for owner in owners:
            entry = queue.waiters.get(owner)
            if entry is None or entry.barge or entry.expires <= now:
                return False
            entry.expires = now + entry.patience
        return True

    def alive(self, entry: Entry) -> bool:
        return True

    def arrival(self, name: str) -> int:
        self._arrivals += 1
        return self._arrivals

    def mint(self, taken: Container[int] = (), permits: int = 1, above: int = 0) -> int:
        first = max(self.token + 1, above + 1, int(self.wall() * 1_000_000))
        self.token = in_free_slot(first, taken, permits)
        return self.token

    def rewrite(self, entry: Entry) -> None:
        pass  # the entry is the row

    def note(self, name: str, change: Change) -> Iterable[WakeUp]:
        # Into the deque first: a signal's handler may raise between two steps.
        noted = self._changes.get(name) or deque(maxlen=CHANGES_KEPT)
        noted.append(change)
        self._changes[name] = noted
        self._forget_ended()
        return [observer for observer, _ in self._observers.get(name, {}).values()]

    def changes(self, name: str, after: int) -> Iterable[Change]:
        noted = self._changes.get(name, ())
        return list(noted)[-1:] if not after else [one for one in noted if one.number > after]

    def observe(self, name: str, observer: WakeUp, until: float) -> None:
        self._observers.setdefault(name, {})[observer.owner] = (observer, until)

    def unobserve(self, name: str, owner: str) -> None:
        observers = self._observers.get(name, {})
        if observers.pop(owner, None) is not None:
            self.notifiers.pop(owner, None)
        if not observers:
            self._observers.pop(name, None)

    def _forget_ended(self) -> None:
        """Forgets observers that have not asked again, and elections of long ago."""
        now, wall = self.now(), self.wall()
        for name, observers in list(self._observers.items()):
            for owner, (_, until) in list(observers.items()):
                if until <= now:
                    self.unobserve(name, owner)
        for name, changes in list(self._changes.items()):
            if changes[-1].since < wall - CHANGES_KEPT_FOR:
                del self._changes[name]

    def add(self, entry: Entry) -> None:
        queue = self.locks.setdefault(entry.name, _Queue())
        (queue.holders if entry.token else queue.waiters)[entry.owner] = entry

    def save(self, entry: Entry, was_waiting: bool) -> None:
        # The entry is the row; but it may have become a holder's.
        if was_waiting and entry.token:
            queue = self.locks[entry.name]
            queue.holders[entry.owner] = queue.waiters.pop(entry.owner)

    def drop_held(self, name: str, owner: str) -> bool:
        entry = self.find(name, owner)
        if entry is None or not entry.token or entry.expires <= self.now():
            return False
        if entry.kind == ELECTION:
            return False
        self.drop(entry)
        return True

    def drop(self, entry: Entry) -> None:
        self.notifiers.pop(entry.owner, None)
        queue = self.locks[entry.name]
        del (queue.holders if entry.token else queue.waiters)[entry.owner]
        if not queue.holders and not queue.waiters:
            del self.locks[entry.name]
