"""Waiters are woken by two watches: of their manager's wake-up key, and of whatever blocks them.

Whoever grants a lock to a waiter writes, in the same transaction, the wake-up key of the waiter's
manager. That watch starts from what is now, which is what etcd is quick at (it brings old revisions
every 100 ms only); a waiter that joined the queue before the watch stood looks for itself. It has a
stream of its own, on which nothing is sent after it was opened.

The watch of what blocks a waiter is for changes without a wake-up: a holder that died, or another with
which the waiter may share the lock.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from threading import RLock

from ....admission import ALL
from ....clock import Clock
from ..keys import StoredEntry, Wakeup, decode_wakeup
from ..wire.messages import Event
from .attempt import GRANTED, RELEASED, Attempt
from .watches import Watch, Watches

LOOK_AGAIN = 5.0
"""Seconds after which a waiter reads its queue though its watches are quiet."""


class Blocker:
    """A waiter's watch of what blocks it."""

    __slots__ = ("looked", "stirred", "watch")

    watch: Watch

    def __init__(self) -> None:
        self.looked = 0.0
        """The time at which the queue was last read for the waiter."""
        self.stirred = False
        """True if something was heard since that read began."""


class WaiterWatch:
    """The watches of all waiters of one manager."""

    def __init__(
        self,
        clock: Clock,
        mutex: RLock,
        watches: Watches,
        wakeups: Watches,
        key: bytes,
        granted: Callable[[Wakeup, int], None],
        started: Callable[[int], None],
    ) -> None:
        self._clock = clock
        self._mutex = mutex
        self._watches = watches
        self._wakeups = wakeups
        self._key = key
        self._granted = granted
        self._started = started
        self._wakeup: Watch | None = None
        self._blockers: dict[Attempt, Blocker] = {}

    def listen(self) -> None:
        """Watches the manager's wake-up key, from the first waiter on."""
        with self._mutex:
            if self._wakeup is None:
                self._wakeup = self._wakeups.add(self._key, b"", 0, self._heard, self._started)

    def follow(self) -> None:
        """Moves the watches to the member that calls go to now."""
        self._watches.follow()
        self._wakeups.follow()

    def may_have_missed(self, attempt: Attempt) -> bool:
        """Returns True if `attempt` may have been woken before the wake-up key was watched."""
        return self._wakeup is None or self._wakeup.began >= attempt.created

    def hint(self, attempt: Attempt) -> None:
        """Lets a waiter ask how things stand."""
        blocker = self._blockers.get(attempt)
        if blocker is not None:
            blocker.stirred = True
        if attempt.state not in (GRANTED, RELEASED):
            attempt.ticket.tell()

    def is_quiet(self, attempt: Attempt) -> bool:
        """Returns True if nothing can have changed for a waiter since its queue was last read."""
        blocker, wakeup = self._blockers.get(attempt), self._wakeup
        return (
            blocker is not None
            and not blocker.stirred
            and blocker.watch.confirmed
            and wakeup is not None
            and wakeup.confirmed
            and self._clock.now() < blocker.looked + LOOK_AGAIN
        )

    def begin_look(self, attempt: Attempt) -> None:
        """Notes that the queue is about to be read: what is heard after this calls for another read."""
        blocker = self._blockers.get(attempt)
        if blocker is not None:
            blocker.stirred = False
            blocker.looked = 0.0

    def end_look(self, attempt: Attempt) -> None:
        """Notes that the queue was read, and that what blocks the waiter is watched since then."""
        blocker = self._blockers.get(attempt)
        if blocker is not None:
            blocker.looked = self._clock.now()

    def watch(
        self, attempt: Attempt, queue: Sequence[StoredEntry], blocking: int | None, revision: int
    ) -> None:
        """Watches what blocks a waiter, from `revision` on.

        `blocking` is an index in `queue`, or `ALL`; None if nothing does.
        """
        if blocking is None or attempt.released:
            return
        key, end = attempt.queue.start, attempt.queue.end
        if blocking != ALL:
            key, end = queue[blocking].kv.key, b""
        blocker = self._blockers.get(attempt)
        if blocker is None or (blocker.watch.key, blocker.watch.end) != (key, end):
            self.drop(attempt)
            blocker = Blocker()
            stir = partial(self._stir, attempt, blocker)
            blocker.watch = self._watches.add(
                key,
                end,
                revision,
                stir,
                stir,
                deletions_only=attempt.capacity == 1 or blocking == ALL,
            )
            self._blockers[attempt] = blocker
        if attempt.released:  # by another thread, perhaps before it could see the watch
            self.drop(attempt)

    def drop(self, attempt: Attempt) -> None:
        """Ends the watch for an attempt that does not wait any more."""
        blocker = self._blockers.pop(attempt, None)
        if blocker is not None:
            self._watches.drop(blocker.watch)

    def _stir(self, attempt: Attempt, blocker: Blocker, heard: object) -> None:
        # By the blocker itself, which `hint` may not find yet.
        blocker.stirred = True
        self.hint(attempt)

    def _heard(self, events: Sequence[Event]) -> None:
        for event in events:
            if not event.deleted:
                self._granted(decode_wakeup(event.key.value), event.key.changed)
