"""Heartbeats: one routine keeps the places of all waiters of a namespace, in batches."""

from __future__ import annotations

import asyncio
from math import inf
from typing import TYPE_CHECKING

from .._runtime.aio import Routine, Signal
from ..entries import Claim
from ..errors import LockError
from ..events import report
from ..model import UNKNOWN, Gone, Outcome, Renewed, Unknown, Waiting
from ..timer_wheel import TimerWheel

if TYPE_CHECKING:
    from .store import Store
    from .waiter import Waiter

BATCH = 128
"""Heartbeats in one call, as the engine's keeper sends them."""
SOON = 0.02
"""Seconds after a holder's end at which its waiters ask."""
AGAIN = 0.3
"""Seconds after which a heartbeat that was not answered is sent again."""


class Heartbeats:
    """The routine, and the waiters that it keeps."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._wheel: TimerWheel[Waiter] = TimerWheel()
        self._waiters: dict[str, Waiter] = {}
        self._signal: Signal | None = None
        self._routine: Routine | None = None
        self._next = inf
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False

    def __len__(self) -> int:
        return len(self._waiters)

    def keep(self, waiter: Waiter, due: float) -> None:
        """Sends the waiter's heartbeats from `due` on."""
        self._waiters[waiter.owner] = waiter
        self._wheel.add(waiter, due, self._store.now())
        if self._routine is None and not self._closed:
            self._loop = asyncio.get_running_loop()
            self._signal = Signal(self._store.backend.clock)
            self._routine = Routine(self._run, "holdfast-serve-heartbeats")
        elif due < self._next and self._signal is not None:
            self._signal.set()

    def forget(self, waiter: Waiter) -> None:
        """Sends no more heartbeats of this waiter."""
        if self._waiters.get(waiter.owner) is waiter:
            del self._waiters[waiter.owner]
        self._wheel.remove(waiter)

    def hurry(self, owner: str) -> None:
        """Asks about this owner now, if it is one of the waiters. From any thread."""
        if owner in self._waiters and self._loop is not None:
            try:
                self._loop.call_soon_threadsafe(self._hurry, owner)
            except RuntimeError:
                return  # the loop is closed

    def _hurry(self, owner: str) -> None:
        waiter = self._waiters.get(owner)
        if waiter is not None and self._signal is not None:
            self._wheel.add(waiter, self._store.now(), self._store.now())
            self._signal.set()

    def close(self) -> None:
        """Ends the routine."""
        self._closed = True
        if self._signal is not None:
            self._signal.set()

    async def _run(self) -> None:
        assert self._signal is not None
        store = self._store
        while not self._closed:
            now = store.now()
            due = self._wheel.pop_due(now)
            if due:
                for start in range(0, len(due), BATCH):
                    await self._beat(due[start : start + BATCH])
                continue
            self._next = self._wheel.next_due()
            await self._signal.wait(None if self._next == inf else self._next)
            self._next = inf

    async def _beat(self, some: list[Waiter]) -> None:
        store = self._store
        kept = [waiter for waiter in some if self._waiters.get(waiter.owner) is waiter]
        if not kept:
            return
        sent = store.now()
        outcomes: list[Outcome]
        try:
            claims = [Claim(one.name, one.owner, one.ttl) for one in kept]
            outcomes = list(await store.renew(claims))
        except Exception as error:
            outcomes = [UNKNOWN] * len(kept)
            if not isinstance(error, LockError):
                report("the heartbeats of waiters could not be sent", error)
        now = store.now()
        for waiter, outcome in zip(kept, outcomes, strict=True):
            if self._waiters.get(waiter.owner) is waiter:
                again = self._hear(waiter, outcome, sent)
                if again is not None and waiter not in self._wheel:
                    self._wheel.add(waiter, max(again, now), now)

    def _hear(self, waiter: Waiter, outcome: Outcome, sent: float) -> float | None:
        """Notes what became of a waiter; returns when its next heartbeat is due."""
        heartbeat = self._store.backend.heartbeat
        if isinstance(outcome, Waiting):
            waiter.answered()
            return sent + min(heartbeat, max(outcome.remaining, 0.0) + SOON)
        if isinstance(outcome, Renewed):
            waiter.hear(outcome, sent)
            return sent + min(heartbeat, waiter.ttl / 3)
        if isinstance(outcome, Gone):
            waiter.lose_place()
            return None
        assert isinstance(outcome, Unknown)
        waiter.note_silence(self._store.now())
        return self._store.now() + min(AGAIN, heartbeat / 3)
