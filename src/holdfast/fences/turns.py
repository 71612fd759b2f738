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


class Turns:
    """Whose turn it is, for any number of resources; those that nobody uses are not kept."""

    def __init__(self) -> None:
        self._mutex = Lock()
        self._queues: dict[str, deque[Wake]] = {}
        """For each resource whose turn somebody has: how to wake the others."""

    def begin(self, resource: str) -> None:
        """Wait for the turn, in a thread."""
        woken = Event()
        if self._enrol(resource, woken.set):
            return
        try:
            woken.wait()
        except BaseException:  # interrupted by a signal's handler
            self._withdraw(resource, woken.set)
            raise

    async def begin_in_loop(self, resource: str) -> None:
        """Wait for the turn, in an event loop."""
        from asyncio import get_running_loop

        loop = get_running_loop()
        turn = loop.create_future()
        wake = _waker(loop, turn)
        if self._enrol(resource, wake):
            return
        try:
            await turn
        except BaseException:
            self._withdraw(resource, wake)
            raise

    def end(self, resource: str) -> None:
        with self._mutex:
            queue = self._queues[resource]
            wake = queue.popleft() if queue else None
            if wake is None:
                del self._queues[resource]
        if wake is not None:
            wake()

    def _enrol(self, resource: str, wake: Wake) -> bool:
        with self._mutex:
            queue = self._queues.get(resource)
            if queue is None:
                self._queues[resource] = deque()
                return True
            queue.append(wake)
            return False

    def _withdraw(self, resource: str, wake: Wake) -> None:
        """Give up waiting; if the turn has come meanwhile, hand it on."""
        with self._mutex:
            queue = self._queues[resource]
            if wake in queue:
                queue.remove(wake)
                return
        self.end(resource)


def _waker(loop: AbstractEventLoop, turn: Future[None]) -> Wake:
    def give() -> None:
        if not turn.done():
            turn.set_result(None)

    return lambda: loop.call_soon_threadsafe(give)
