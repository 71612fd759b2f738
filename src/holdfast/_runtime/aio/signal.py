"""Signals: one task waits, and another task or thread sets."""

from __future__ import annotations

import asyncio
from threading import get_ident as _thread

from ... import forks
from ...clock import Clock

LONGEST_SLEEP = 1.0
"""Seconds after which a sleeper looks at the clock again: a timer of the loop stands still while the
machine is suspended, and the boot clock does not."""


class Signal:
    """An event that is set once for each `wait`, from any thread, and remembered until then.

    In a forked child nobody is left who would set it: to wait for one of the parent's is refused there.
    """

    __slots__ = ("_clock", "_ident", "_is_set", "_loop", "_made_in", "_waiter")

    def __init__(self, clock: Clock, made_in: int | None = None) -> None:
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._ident = _thread()
        self._is_set = False
        self._made_in = forks.generation if made_in is None else made_in
        self._waiter: asyncio.Future[None] | None = None

    def set(self) -> None:
        """Sets the signal, and wakes its waiter."""
        self._is_set = True
        if self._waiter is None and _thread() == self._ident:
            return
        self._wake_from_any_thread()

    def _wake_from_any_thread(self) -> None:
        if _thread() == self._ident:
            self._wake()
        else:
            try:
                self._loop.call_soon_threadsafe(self._wake)
            except RuntimeError:
                return  # the loop is closed, and no task waits on it any more

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def wait(self, until: float | None) -> bool:
        """Waits until the signal is set, and clears it: True. Returns False once `until` has come."""
        unsubscribe = self._clock.subscribe(self._wake_from_any_thread)
        try:
            while not self._is_set:
                if self._made_in != forks.generation:
                    forks.refuse_inherited(self._made_in)
                left = None if until is None else until - self._clock.now()
                if left is not None and left <= 0:
                    return False
                self._waiter = self._loop.create_future()
                timer = None
                if left is not None and unsubscribe is None:
                    timer = self._loop.call_later(min(left, LONGEST_SLEEP), self._wake)
                try:
                    if not self._is_set:  # set between the test and the future, by another thread
                        await self._waiter
                finally:
                    self._waiter = None
                    if timer is not None:
                        timer.cancel()
            self._is_set = False
            return True
        finally:
            if unsubscribe is not None:
                unsubscribe()
