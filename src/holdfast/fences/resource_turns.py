"""Turns at a resource within one process, for threads and for the tasks of event loops alike.

One who has the turn writes; the others wait in order. The end of a turn hands it to the next, so
nobody polls and nobody is overtaken.

A signal's handler may raise between any two steps of ours. So whoever wants a turn first makes a
`Place`, and leaves it in the end, whether it had the turn by then, waited for it, or neither. To leave
twice does no harm, and finishes what an interrupted one could not. If even that is interrupted, the
place is left when its user is dropped.

A forked child has none of its parent's turns: they are in the memory that it has a copy of, and nobody
would end them there.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from threading import Event, Lock
from typing import TYPE_CHECKING
from weakref import ref

from .. import forks
from .turn_holder import TurnHolder

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Future


class Place:
    """The place of one who wants the turn at a resource; it is left when its `user` is dropped."""

    def __init__(self, turns: ResourceTurns, resource: str, user: object) -> None:
        self._turns = turns
        self.resource = resource
        self.holder = TurnHolder.here()
        self.waiter: _Waiter | _WaiterInLoop | None = None
        """The one to be woken when the turn has come; None if nobody waits."""
        # Not a finalizer, which would run each time; an exception of a signal's handler is lost there.
        self._watch: ref[object] | None = ref(user, self._dropped)

    def begin(self) -> None:
        """Waits for the turn, in a thread; raises `ConfigError` if it would wait for itself."""
        self.waiter = waiter = _Waiter()
        if not self._turns.enter(self, blocks=True):
            waiter.woken.wait()

    async def begin_in_loop(self) -> None:
        """Waits for the turn, in an event loop; raises `ConfigError` if the task has it already."""
        from asyncio import get_running_loop

        self.waiter = waiter = _WaiterInLoop(get_running_loop())
        if not self._turns.enter(self, blocks=False):
            await waiter.turn

    def leave(self) -> None:
        """Ends the turn, or gives up waiting for it."""
        self._turns.leave(self)
        self._watch = None

    def _dropped(self, _: object) -> None:
        self._turns.drop(self)

    def wake(self) -> bool:
        """Tells the waiter that its turn has come; returns False if it cannot be told any more."""
        waiter = self.waiter
        if waiter is None:
            return True
        if not waiter.wake():
            return False
        self.waiter = None
        return True


class _Turn:
    """The turn at one resource: who has it, and who waits."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.queue: deque[Place] = deque()


class ResourceTurns:
    """The turns at any number of resources; a resource that nobody uses is not kept."""

    def __init__(self) -> None:
        self._mutex = Lock()
        self._turns: dict[str, _Turn] = {}
        self._dropped: deque[Place] = deque()
        """Places that were dropped, perhaps by the garbage collector while the mutex was held."""
        forks.survive(self)

    def _after_fork(self) -> None:
        self._mutex = Lock()  # another thread may have held it
        self._turns = {}
        self._dropped.clear()

    def taken(self, resource: str) -> bool:
        """Returns True if somebody has the turn."""
        return resource in self._turns

    def waiting(self, resource: str) -> int:
        """Returns how many wait for the turn."""
        turn = self._turns.get(resource)
        return len(turn.queue) if turn is not None else 0

    def enter(self, place: Place, *, blocks: bool) -> bool:
        """Takes the turn if it is free, and returns True; otherwise a place in the queue."""
        forks.current()  # begins afresh in a child that Python was not told of
        try:
            with self._mutex:
                turn = self._turns.get(place.resource)
                if turn is None:
                    place.waiter = None
                    self._turns[place.resource] = _Turn(place)
                    return True
                if blocks:
                    # A task of this thread that waits ahead of us could not take its turn, either.
                    for ahead in (turn.place, *turn.queue):
                        ahead.holder.refuse_to_block(place.resource)
                else:
                    turn.place.holder.refuse_to_await(place.resource)
                turn.queue.append(place)
                return False
        finally:
            self._settle()

    def leave(self, place: Place) -> None:
        """Ends the turn of `place`, or its wait. The turn is then somebody else's, who was told."""
        forks.current()
        with self._mutex:
            self._leave(place)
        self._settle()

    def drop(self, place: Place) -> None:
        """Leaves a place as soon as that can be: at once, unless the mutex is held."""
        self._dropped.append(place)
        self._settle()

    def _settle(self) -> None:
        """Leaves the places that were dropped, unless another does so, who comes here afterwards."""
        while self._dropped and self._mutex.acquire(blocking=False):
            try:
                while self._dropped:
                    self._leave(self._dropped[0])
                    self._dropped.popleft()
            finally:
                self._mutex.release()

    def _leave(self, place: Place) -> None:
        turn = self._turns.get(place.resource)
        if turn is not None:
            with suppress(ValueError):
                turn.queue.remove(place)
            self._hand_on(turn, place)

    def _hand_on(self, turn: _Turn, left: Place) -> None:
        """Sees to it that the one who has the turn is there, and knows it."""
        while turn.place is left or not turn.place.wake():
            if not turn.queue:
                self._turns.pop(left.resource, None)
                return
            turn.place = turn.queue[0]
            turn.queue.popleft()


class _Waiter:
    """A thread that waits."""

    def __init__(self) -> None:
        self.woken = Event()

    def wake(self) -> bool:
        self.woken.set()
        return True


class _WaiterInLoop:
    """A task that waits in an event loop."""

    def __init__(self, loop: AbstractEventLoop) -> None:
        self._loop = loop
        self.turn: Future[None] = loop.create_future()

    def wake(self) -> bool:
        try:
            self._loop.call_soon_threadsafe(self._give)
        except RuntimeError:
            return False  # the loop was closed
        return True

    def _give(self) -> None:
        if not self.turn.done():
            self.turn.set_result(None)
