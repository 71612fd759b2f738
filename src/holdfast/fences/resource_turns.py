"""Turns at a resource within one process, for threads and for the tasks of event loops alike.

One who has the turn writes; the others wait in order. The end of a turn hands it to the next, so
nobody polls and nobody is overtaken.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from threading import Event, Lock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Future

Wake = Callable[[], object]
"""Wakes a waiter; returns False if there is nobody to be woken any more."""


class ResourceTurns:
    """The turns at any number of resources; a resource that nobody uses is not kept."""

    def __init__(self) -> None:
        self._mutex = Lock()
        self._queues: dict[str, deque[Wake]] = {}
        """The waiters for each resource whose turn is taken, by how to wake them."""

    def begin(self, resource: str) -> None:
        """Waits for the turn, in a thread."""
        woken = Event()
        if self._enrol(resource, woken.set):
            return
        try:
            woken.wait()
        except BaseException:  # interrupted by a signal's handler
            self._withdraw(resource, woken.set)
            raise

    async def begin_in_loop(self, resource: str) -> None:
        """Waits for the turn, in an event loop."""
        from asyncio import get_running_loop

        waiter = _Waiter(get_running_loop())
        if self._enrol(resource, waiter.wake):
            return
        try:
            await waiter.turn
        except BaseException:
            if not waiter.passed_over:
                self._withdraw(resource, waiter.wake)
            raise

    def end(self, resource: str) -> None:
        while True:
            with self._mutex:
                queue = self._queues[resource]
                if not queue:
                    del self._queues[resource]
                    return
                wake = queue.popleft()
            if wake() is not False:
                return

    def _enrol(self, resource: str, wake: Wake) -> bool:
        with self._mutex:
            queue = self._queues.get(resource)
            if queue is None:
                self._queues[resource] = deque()
                return True
            queue.append(wake)
            return False

    def _withdraw(self, resource: str, wake: Wake) -> None:
        """Gives up waiting; if the turn has come meanwhile, hands it on."""
        with self._mutex:
            queue = self._queues[resource]
            if wake in queue:
                queue.remove(wake)
                return
        self.end(resource)


class _Waiter:
    """A waiter in an event loop."""

    def __init__(self, loop: AbstractEventLoop) -> None:
        self._loop = loop
        self.turn: Future[None] = loop.create_future()
        self.passed_over = False
        """The turn went to the next, since our loop was closed."""

    def wake(self) -> bool:
        try:
            self._loop.call_soon_threadsafe(self._give)
        except RuntimeError:
            self.passed_over = True
        return not self.passed_over

    def _give(self) -> None:
        if not self.turn.done():
            self.turn.set_result(None)
