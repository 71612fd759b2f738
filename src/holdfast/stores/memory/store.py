"""The store behind `memory://`: a dictionary behind a mutex, in one process, for users' own tests.

Managers that name the same `memory://NAME` in one process share one store, blocking or asyncio; it
ends with the last of them. Its clock may be one that the test moves by hand. A forked child has none of
its parent's stores.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from threading import Lock, get_ident
from typing import Protocol, TypeVar

from ... import forks
from ...clock import BootClock, Clock
from ...entries import AcquireRequest, Claim, WakeUp
from ...errors import BackendUnavailable, ConfigError
from ...ledger import Ledger
from ...model import Busy, Gone, Granted, LockState, Observation, Outcome, Queued
from .rows import MemoryRows, Notify

Result = TypeVar("Result")


class Recalled(Protocol):
    look: Callable[[Iterable[str]], None]
    """Asks about these owners, whose leases were ended by force."""


class MemoryStore:
    """The entries, and the atomic steps on them. Safe to use from any thread."""

    def __init__(self, clock: Clock | None = None) -> None:
        self.clock: Clock = BootClock() if clock is None else clock
        self.users = 0
        self.audit: list[tuple[float, str, str]] = []
        self._mutex = Lock()
        self._stepping = 0
        """The thread that is inside a step."""
        self._rows = MemoryRows(self.clock)
        self.backends: list[Recalled] = []
        """The backends that use it: they are told of leases that were ended by force."""

    # Its steps, each atomic.

    def acquire(self, request: AcquireRequest, notify: Notify) -> Granted | Queued | Busy:
        """Grants, enqueues or refuses; `notify` is called when a waiter is granted or should ask."""

        def step(ledger: Ledger) -> Granted | Queued | Busy:
            answer = ledger.acquire(request)
            if isinstance(answer, Queued):
                self._rows.notifiers[request.owner] = notify
            return answer

        return self._step(step)

    def renew(self, claims: list[Claim]) -> list[Outcome]:
        return self._step(lambda ledger: ledger.renew_all(claims))

    def release(self, name: str, owner: str) -> bool:
        return self._step(lambda ledger: ledger.release(name, owner))

    def inspect(self, name: str) -> LockState:
        return self._step(lambda ledger: ledger.state(name, self._rows.token))

    def list(self, prefix: str) -> list[LockState]:
        def step(ledger: Ledger) -> list[LockState]:
            names = sorted(name for name in self._rows.locks if name.startswith(prefix))
            states = [ledger.state(name, self._rows.token) for name in names]
            return [state for state in states if state.holders or state.waiters]

        return self._step(step)

    def acquire_all(self, requests: Sequence[AcquireRequest]) -> Sequence[Granted] | Busy:
        """Grants all of these locks, or none: nothing that others could see is done then."""

        def step(ledger: Ledger) -> Sequence[Granted] | Busy:
            grants: list[Granted] = []
            try:
                for request in requests:
                    answer = ledger.acquire(request)
                    if not isinstance(answer, Granted):
                        return Busy(answer.remaining)
                    grants.append(answer)
            finally:
                if len(grants) < len(requests):
                    for done in requests[: len(grants)]:
                        ledger.release(done.name, done.owner)
            return grants

        return self._step(step)

    def force_release(self, name: str, actor: str, above: int = 0) -> bool:
        def step(ledger: Ledger) -> Sequence[str]:
            self.audit.append((self.clock.wall(), name, actor))
            return [entry.owner for entry in ledger.force_release(name, above)]

        victims = self._step(step)
        for backend in list(self.backends):
            backend.look(victims)
        return bool(victims)

    def amend(self, name: str, owner: str, weight: int, text: str | None) -> bool:
        return self._step(lambda ledger: ledger.amend(name, owner, weight, text))

    def detach(self, name: str, owner: str, ttl: float) -> bool:
        return self._step(lambda ledger: ledger.detach(name, owner, ttl))

    def adopt(self, request: AcquireRequest, giver: str) -> Granted | Gone:
        return self._step(lambda ledger: ledger.adopt(request, giver))

    def observe(
        self, name: str, owner: str, after: int, until: float, notify: Notify
    ) -> Observation:
        def step(ledger: Ledger) -> Observation:
            self._rows.notifiers[owner] = notify
            return ledger.observe(name, after, WakeUp(name, owner, "", "", 0), until)

        return self._step(step)

    def unobserve(self, name: str, owner: str) -> None:
        self._step(lambda ledger: ledger.unobserve(name, owner))

    def is_inside(self, thread: int) -> bool:
        """Tells whether that thread is inside a step."""
        return self._stepping == thread

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
                ledger = Ledger(self._rows)
                result = step(ledger)
                woken = [
                    (self._rows.notifiers.get(wakeup.owner), wakeup) for wakeup in ledger.wakeups
                ]
            finally:
                self._stepping = 0
        for notify, wakeup in woken:
            if notify is not None:
                notify(Granted(wakeup.token, 0.0, handed=True) if wakeup.token else None)
        return result


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
