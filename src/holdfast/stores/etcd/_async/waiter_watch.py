"""Waiters are woken by two watches: of their manager's wake-up key, and of whatever blocks them.

Whoever grants a lock to a waiter writes, in the same transaction, the wake-up key of the waiter's
manager. That watch starts from what is now, which is what etcd is quick at (it brings old revisions
every 100 ms only); a waiter that joined the queue before the watch stood looks for itself. It has a
stream of its own, on which nothing is sent after it was opened.

The watch of what blocks a waiter is for changes without a wake-up: a holder that died, or another with
which the waiter may share the lock. Behind another waiter of the same manager none is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import inf
from threading import RLock

from ....admission import ALL
from ....clock import Clock
from ..keys import StoredEntry, Wakeup, decode_wakeup
from ..wire.messages import Event
from .attempt import GRANTED, QUEUED, RELEASED, Attempt
from .watches import Watch, Watches

LOOK_AGAIN = 5.0
"""Seconds after which a waiter reads its queue though its watches are quiet."""


class Blocker:
    """The entry that blocks a waiter, or the whole queue: it is watched, unless it is our own."""

    __slots__ = ("ahead", "looked", "watch")

    def __init__(self, watch: Watch | None, ahead: Attempt | None) -> None:
        self.watch = watch
        self.ahead = ahead
        """A waiter of this manager, of which we know without a watch whether it is still there."""
        self.looked = -inf
        """The time at which the queue was last read for the waiter, as that read began."""

    def blocks(self, attempt: Attempt) -> bool:
        """Returns True if nothing has changed, as far as we are told, since the queue was read."""
        if self.watch is not None:
            return self.watch.confirmed
        ahead = self.ahead
        # On one lease, the two keys end together, or by ourselves.
        return ahead is not None and ahead.state == QUEUED and ahead.lease is attempt.lease


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
        attempt.stir(self._clock.now())
        if attempt.state not in (GRANTED, RELEASED):
            attempt.ticket.tell()

    def is_quiet(self, attempt: Attempt) -> bool:
        """Returns True if nothing can have changed for a waiter since its queue was last read."""
        blocker, wakeup = self._blockers.get(attempt), self._wakeup
        return (
            blocker is not None
            and attempt.stirred < blocker.looked
            and blocker.blocks(attempt)
            and wakeup is not None
            and wakeup.confirmed
            and self._clock.now() < blocker.looked + LOOK_AGAIN
        )

    def looked(self, attempt: Attempt, began: float) -> None:
        """Notes that the queue was read by a request sent at `began`; what blocks the waiter is watched
        from there on."""
        blocker = self._blockers.get(attempt)
        if blocker is not None:
            blocker.looked = began

    def watch(
        self,
        attempt: Attempt,
        queue: Sequence[StoredEntry],
        blocking: int | None,
        revision: int,
        ahead: Attempt | None = None,
    ) -> None:
        """Watches what blocks a waiter, from `revision` on.

        `blocking` is an index in `queue`, or `ALL`; None if nothing does. `ahead` is the attempt
        at that index, if it is a waiter of this manager: of such a one nothing is asked.
        """
        if blocking is None or attempt.released:
            return
        key, end, heard = attempt.queue.start, attempt.queue.end, self._stir
        if blocking != ALL:
            key, end = queue[blocking].kv.key, b""
            if attempt.capacity == 1 and not queue[blocking].place.granted:
                heard = self._stir_later
        if not self._is_watched(attempt, key, end, ahead):
            self.drop(attempt)
            watch = None
            if ahead is None:
                stir = partial(heard, attempt)
                deletions_only = attempt.capacity == 1 or blocking == ALL
                watch = self._watches.add(
                    key, end, revision, stir, stir, deletions_only=deletions_only
                )
            self._blockers[attempt] = Blocker(watch, ahead)
        if attempt.released:  # by another thread, perhaps before it could see the watch
            self.drop(attempt)

    def _is_watched(self, attempt: Attempt, key: bytes, end: bytes, ahead: Attempt | None) -> bool:
        blocker = self._blockers.get(attempt)
        if blocker is None or ahead is not None or blocker.watch is None:
            return blocker is not None and blocker.ahead is ahead
        return (blocker.watch.key, blocker.watch.end) == (key, end)

    def drop(self, attempt: Attempt) -> None:
        """Ends the watch for an attempt that does not wait any more."""
        blocker = self._blockers.pop(attempt, None)
        if blocker is not None and blocker.watch is not None:
            self._watches.drop(blocker.watch)

    def _stir(self, attempt: Attempt, heard: object) -> None:
        self.hint(attempt)

    def _stir_later(self, attempt: Attempt, heard: object) -> None:
        """Has the queue read at the next heartbeat of a waiter that stood behind another.

        That one mostly held the lock since, and has handed it to this waiter in the same step. If all
        who are handed the lock from hand to hand asked at once, each would go through the whole queue.
        """
        attempt.stir(self._clock.now())

    def _heard(self, events: Sequence[Event]) -> None:
        for event in events:
            if not event.deleted:
                self._granted(decode_wakeup(event.key.value), event.key.changed)
