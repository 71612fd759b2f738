"""The line of those attempts of one manager that are about to join the same queue.

Whoever joins a queue reads the names of all who are in it: a crowd that does so at once costs the
square of its number, and keeps the heartbeats of those who have joined from being answered in time.
So of the attempts of one manager that want the same mutex, the first joins alone. The others stand in
line for its answer, and then join behind an entry of their own manager, their *neighbour*, a few
at a time. While that entry is there they cannot be admitted: they watch it, and read nothing else.

The line stands here, under the mutex, and not in a turnstile before the verbs: an attempt that is given
up in line is known to have no znode. Behind a turnstile, each of a crowd that gave up would read the
whole queue to find that out.
"""

from __future__ import annotations

from math import inf
from typing import Any

from .attempt import CREATING, DELETING, ENDED, Attempt
from .changes import ELECTION
from .deletion import Deletion
from .names import SEMAPHORE

JOINS_AT_ONCE = 32
"""The number of attempts in one line that join at the same time."""


class Line:
    """The attempts of one manager at one mutex that have not joined its queue."""

    __slots__ = ("answered", "joining", "latest", "waiting")

    def __init__(self, now: float) -> None:
        self.joining: set[Attempt] = set()
        self.waiting: dict[Attempt, None] = {}
        """The attempts for which nothing was sent, in the order in which they came."""
        self.latest: Attempt | None = None
        """The attempt that was the latest to join."""
        self.answered = now
        """The time at which an attempt of this line was last answered."""

    @property
    def neighbour(self) -> Attempt | None:
        """The latest attempt to join, if its entry is in the queue as far as we know."""
        latest = self.latest
        return latest if latest is not None and stands(latest) else None

    @property
    def first(self) -> Attempt | None:
        """The attempt that is to join next: the first in line whose session is connected."""
        return next((one for one in self.waiting if one.session.ready), None)


def stands(attempt: Attempt) -> bool:
    """Returns True if the attempt has an entry in the queue, as far as we know."""
    return bool(attempt.path) and attempt.state not in (DELETING, ENDED)


class Lines(Deletion):
    """The lines of one manager, by the path of the lock. Called under the mutex."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._lines: dict[str, Line] = {}

    def _may_create(self, attempt: Attempt) -> bool:
        """Returns True if `attempt` may join the queue now; if not, it is moved on when it may."""
        if (
            not attempt.queue
            or attempt.giver is not None
            or attempt.capacity != 1
            or attempt.kind in (ELECTION, SEMAPHORE)
        ):
            return True
        line = self._lines.get(attempt.lock_path)
        if line is None:
            line = self._lines[attempt.lock_path] = Line(self.clock.now())
        if attempt in line.joining:
            return True
        line.waiting[attempt] = None
        return self._let_join(line, attempt)

    def _let_join(self, line: Line, attempt: Attempt) -> bool:
        """Lets `attempt` join the queue, if it is next; returns whether."""
        most = 1 if line.neighbour is None else JOINS_AT_ONCE
        if len(line.joining) >= most or line.first is not attempt:
            return False
        del line.waiting[attempt]
        line.joining.add(attempt)
        attempt.sent_at = self.clock.now()
        return True

    def _leave_line(self, attempt: Attempt, joined: bool) -> None:
        """Notes that `attempt` has joined the queue, or never will; the next in line go on."""
        line = self._lines.get(attempt.lock_path)
        if line is None:
            return
        line.waiting.pop(attempt, None)
        line.joining.discard(attempt)
        if joined:
            line.answered = self.clock.now()
            if line.neighbour is None:
                line.latest = attempt
        while (first := line.first) is not None and self._let_join(line, first):
            self._advance(first)
        unused = not line.joining and not line.waiting and line.neighbour is None
        if unused and self._lines.get(attempt.lock_path) is line:
            del self._lines[attempt.lock_path]

    def _return_result(self, attempt: Attempt, result: Any) -> None:
        first = attempt.on_result is not None
        super()._return_result(attempt, result)
        if first:
            self._leave_line(attempt, stands(attempt))

    def _forget(self, attempt: Attempt) -> None:
        super()._forget(attempt)
        self._leave_line(attempt, joined=False)

    def later_deadline(self, owner: str, give_up: float | None, patience: float) -> float:
        """Returns the time until which an acquire has to be answered that is not by its deadline.

        The time for which it stood in line is not ZooKeeper's: as long as that answers those before
        it, each has `patience` seconds of its own, until its caller gives up.
        """
        with self.mutex:
            attempt = self._attempts.get(owner)
            line = None if attempt is None else self._lines.get(attempt.lock_path)
            if attempt is None or line is None or attempt.state != CREATING:
                return 0.0
            if attempt in line.waiting:
                since = line.answered
            elif attempt in line.joining:
                since = attempt.sent_at
            else:
                return 0.0
            return min(since + patience, give_up or inf)
