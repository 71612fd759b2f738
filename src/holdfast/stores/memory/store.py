"""The store behind `memory://`: a dictionary behind a mutex, in one process, for users' own tests.

Managers that name the same `memory://NAME` in one process share one store, blocking or asyncio; it
ends with the last of them. Its clock may be one that the test moves by hand. A forked child has none of
its parent's stores.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence
from itertools import chain
from threading import Lock, get_ident
from typing import TypeVar

from ... import forks
from ...clock import BootClock, Clock
from ...entries import AcquireRequest, Claim, Entry
from ...errors import BackendUnavailable, ConfigError
from ...ledger import Ledger
from ...model import Busy, Granted, LockState, Outcome, Queued, in_free_slot

Result = TypeVar("Result")
Notify = Callable[[Granted | None], None]


class _Queue:
    """The entries of one lock, by owner, in the order in which they became what they are."""

    __slots__ = ("holders", "waiters")

    def __init__(self) -> None:
        self.holders: dict[str, Entry] = {}
        self.waiters: dict[str, Entry] = {}


class MemoryStore:
    """The entries, and the atomic steps on them. Safe to use from any thread."""

    def __init__(self, clock: Clock | None = None) -> None:
        self.clock: Clock = BootClock() if clock is None else clock
        self.users = 0
        self.audit: list[tuple[float, str, str]] = []
        self._mutex = Lock()
        self._stepping = 0
        """The thread that is inside a step."""
        self._locks: dict[str, _Queue] = {}
        self._notifiers: dict[str, Notify] = {}
        self._token = 0
        self._arrivals = 0

    # Its steps, each atomic.

    def acquire(self, request: AcquireRequest, notify: Notify) -> Granted | Queued | Busy:
        """Grants, enqueues or refuses; `notify` is called when a waiter is granted or should ask."""

        def step(ledger: Ledger) -> Granted | Queued | Busy:
            answer = ledger.acquire(request)
            if isinstance(answer, Queued):
                self._notifiers[request.owner] = notify
            return answer

        return self._step(step)

    def renew(self, claims: list[Claim]) -> list[Outcome]:
        return self._step(lambda ledger: ledger.renew_all(claims))

    def release(self, name: str, owner: str) -> bool:
        return self._step(lambda ledger: ledger.release(name, owner))

    def inspect(self, name: str) -> LockState:
        return self._step(lambda ledger: ledger.state(name, self._token))

    def list(self, prefix: str) -> list[LockState]:
        def step(ledger: Ledger) -> list[LockState]:
            names = sorted(name for name in self._locks if name.startswith(prefix))
            states = [ledger.state(name, self._token) for name in names]
            return [state for state in states if state.holders or state.waiters]

        return self._step(step)

    def force_release(self, name: str, actor: str) -> bool:
        def step(ledger: Ledger) -> bool:
            self.audit.append((self.wall(), name, actor))
            return bool(ledger.force_release(name))

        return self._step(step)

    def _step(self, step: Callable[[Ledger], Result]) -> Result:
        """Runs `step` under the mutex, and wakes waiters after it."""
        me = get_ident()
        if self._stepping == me:
            raise BackendUnavailable(
                "a signal's handler cannot use the store in the middle of a step of its own thread"
            )
        with self._mutex:
            try:
                self._stepping = me
                ledger = Ledger(self)
                result = step(ledger)
                woken = [(self._notifiers.get(wakeup.owner), wakeup) for wakeup in ledger.wakeups]
            finally:
                self._stepping = 0
        for notify, wakeup in woken:
            if notify is not None:
                notify(Granted(wakeup.token, 0.0, handed=True) if wakeup.token else None)
        return result

    # Its rows, for the ledger.

    def now(self) -> float:
        return self.clock.now()

    def wall(self) -> float:
        return self.clock.wall()

    def of(self, name: str) -> Iterator[Entry]:
        queue = self._locks.get(name)
        if queue is None:
            return iter(())
        return chain(queue.holders.values(), queue.waiters.values())

    def find(self, name: str, owner: str) -> Entry | None:
        queue = self._locks.get(name)
        return None if queue is None else queue.holders.get(owner) or queue.waiters.get(owner)

    def renew_held(self, claim: Claim) -> int | None:
        queue = self._locks.get(claim.name)
        entry = None if queue is None else queue.holders.get(claim.owner)
        now = self.now()
        if entry is None or not entry.confirmed or entry.expires <= now:
            return None
        entry.expires = max(entry.expires, now + claim.ttl)
        return entry.token

    def keep_waiting(self, name: str, owners: Sequence[str]) -> bool:
        queue, now = self._locks[name], self.now()
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

    def mint(self, taken: Container[int] = (), permits: int = 1) -> int:
        above = max(self._token + 1, int(self.wall() * 1_000_000))
        self._token = in_free_slot(above, taken, permits)
        return self._token

    def add(self, entry: Entry) -> None:
        queue = self._locks.setdefault(entry.name, _Queue())
        (queue.holders if entry.token else queue.waiters)[entry.owner] = entry

    def save(self, entry: Entry, was_waiting: bool) -> None:
        # The entry is the row; but it may have become a holder's.
        if was_waiting and entry.token:
            queue = self._locks[entry.name]
            queue.holders[entry.owner] = queue.waiters.pop(entry.owner)

    def drop_held(self, name: str, owner: str) -> bool:
        entry = self.find(name, owner)
        if entry is None or not entry.token or entry.expires <= self.now():
            return False
        self.drop(entry)
        return True

    def drop(self, entry: Entry) -> None:
        self._notifiers.pop(entry.owner, None)
        queue = self._locks[entry.name]
        del (queue.holders if entry.token else queue.waiters)[entry.owner]
        if not queue.holders and not queue.waiters:
            del self._locks[entry.name]


_stores: dict[str, MemoryStore] = {}
_stores_mutex = Lock()


def join(name: str, clock: Clock | None) -> MemoryStore:
    """Returns the store of that name, made if it is not there. Each `join` needs a `leave`."""
    with _stores_mutex:
        store = _stores.get(name)
        if store is None:
            store = _stores[name] = MemoryStore(clock)
        elif clock is not None and clock is not store.clock:
            raise ConfigError(
                f"memory://{name} is in use with another clock; give all its users the same one, "
                "or another name"
            )
        store.users += 1
        return store


def leave(name: str, store: MemoryStore) -> None:
    """Ends one use of `store`, and the store with its last one."""
    with _stores_mutex:
        store.users -= 1
        if store.users == 0 and _stores.get(name) is store:
            del _stores[name]


def _after_fork_in_child() -> None:
    global _stores_mutex
    _stores_mutex = Lock()  # another thread of the parent may have held it
    _stores.clear()


forks.in_child(_after_fork_in_child)
