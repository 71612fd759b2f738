"""The queue of a lock: how an attempt that is in it waits until it is admitted.

Every attempt is a znode of its own below the lock's, in the order that ZooKeeper gave them. The rule
which of them may hold the lock is in `admission`; how one becomes a holder, in `grants`.

*Nothing is forgotten.* A request that was sent and not answered is settled on the next connection, also
if its caller is long gone: see `creation` and `deletion`.

A waiter watches what `admission.blocker` says: an entry for as long as which it is not admitted, the
whole queue if it is the first that waits, otherwise its predecessor. An entry that is moved looks as if
it were deleted, until it is read again. ZooKeeper tells of watches in order with what is read after
them, so an entry that was read and is watched needs no second read. After a lost connection everything
is read anew.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ... import admission
from ...model import Busy, Queued
from ...refusals import in_use_as
from .attempt import CREATING, DELETING, HELD, MINTING, WAITING, WAITS, Attempt
from .grants import Grants
from .names import SEMAPHORE, Entry, ordered_entries
from .requests import NoNodeError, Unanswered, get_children, get_data

ReplyOf = Callable[[Attempt, Any, Any], None]
"""A function to call with an attempt, and the value that its request returned, or the error."""


class QueueRead:
    """A queue as it was read for a renewal, with all that its waiters have in common: there may be
    thousands, and each would otherwise go through the whole queue."""

    __slots__ = ("admitted", "entries", "has_ended", "positions", "pzxid")

    def __init__(self, entries: Sequence[Entry], pzxid: int, now: int) -> None:
        self.entries = entries
        self.pzxid = pzxid
        self.positions = {entry.name: number for number, entry in enumerate(entries)}
        self.admitted = admission.admitted([entry.place for entry in entries])
        """The number of entries, from the first on, that may hold the lock."""
        self.has_ended = any(entry.has_ended(now) for entry in entries)
        """True if there is a detached entry whose time is over."""


class Queue(Grants):
    """The steps of an attempt that waits. Called under the mutex."""

    def _advance(self, attempt: Attempt) -> None:
        """Sends the next request of `attempt`, if none is under way and there is a connection."""
        if attempt.in_flight:
            return
        if not attempt.path and attempt.state in (WAITING, MINTING, HELD):
            if not attempt.maybe_created:
                self._lose(attempt)
            elif attempt.doubtful_session.ready:
                self._search(attempt)
            return
        ready = attempt.session.ready
        if attempt.state == CREATING and ready:
            if attempt.maybe_created:
                self._search(attempt)
            elif self._may_create(attempt):
                self._create(attempt)
        elif attempt.state == WAITING:
            first = attempt.on_result is not None  # found again: perhaps it need not wait
            if (first and ready) or (
                not self._park(attempt) and ready and not attempt.watched_path
            ):
                self._read_queue(attempt)
        elif attempt.state == MINTING:
            self._mint(attempt)
        elif attempt.state == HELD and not attempt.settled:
            self._settle(attempt)
        elif attempt.state == DELETING:
            if attempt.path:
                if not attempt.deletion_sent:
                    self._send_deletion(attempt)
            elif not attempt.doubtful_session.ready:
                return
            elif attempt.maybe_created:
                self._search(attempt)
            else:
                self._end(attempt)

    def _decide(self, attempt: Attempt, names: Sequence[str], stat: Any) -> None:
        """Decides what becomes of `attempt`, by the names of all entries of the queue.

        It is admitted, waits, or is refused; or it is not there any more.
        """
        first = attempt.on_result is not None
        attempt.read_pzxid = stat.pzxid
        if len(names) == 1 and names[0] == attempt.child:
            self._admit(attempt, stat.pzxid)
            return
        entries = ordered_entries(names)
        if self._drop_ended(attempt, entries):
            self._read_queue(attempt)
            return
        mine = _index_of(attempt, entries)
        if mine is None:
            self._lose(attempt)
            return
        places = [entry.place for entry in entries]
        if first and places[0].shape != attempt.shape:
            present, wanted = (
                (entries[0].kind, entries[0].capacity),
                (attempt.kind, attempt.capacity),
            )
            attempt.final_result = in_use_as(attempt.name, attempt.owner, present, wanted)
            self._begin_deletion(attempt)
            return
        blocker = admission.blocker(places, mine)
        if blocker is None:
            if attempt.kind == SEMAPHORE and not attempt.has_slot:
                attempt.slot = self._choose_slot(attempt, names, entries)
            self._admit(attempt, stat.pzxid)
            return
        remaining = self._longest_remaining(entries[: admission.admitted(places)])
        if first and not attempt.queue:
            attempt.final_result = Busy(remaining)
            self._begin_deletion(attempt)
            return
        self._wait(attempt, remaining)
        if self._park(attempt):
            return
        if blocker != admission.ALL or attempt.watched_path != attempt.lock_path:
            self._watch(attempt, entries, mine, blocker)
        elif attempt.changed:
            self._read_queue(attempt)

    def _wait(self, attempt: Attempt, remaining: float) -> None:
        """Makes `attempt` a waiter, behind holders that have so many seconds left at the most."""
        attempt.state = WAITING
        attempt.waited, attempt.record = True, None
        self._known_locks[attempt.lock_path] = True
        if attempt.on_result is not None:
            attempt.ticket.ttl = attempt.ttl  # the engine counts on it if the lock is handed over
            self._return_result(attempt, Queued(remaining, attempt.vouch(attempt.sent_at)))

    def _watch_neighbour(self, attempt: Attempt, path: str) -> None:
        """Lets an attempt that has just been created wait behind the entry `path`, if that is there.

        What is read behind the creation on the same session shows it after that: an entry of a mutex
        that is older than ours, for as long as which we are not admitted.
        """
        if not path:
            self._read_queue(attempt)
            return
        attempt.watched_blocks = True
        self._watch_entry(attempt, path, self._on_neighbour_read)

    def _on_neighbour_read(self, attempt: Attempt, value: Any, error: Any) -> None:
        if attempt.state == CREATING and error is None:
            self._wait(attempt, attempt.claim_window)
        elif attempt.state == CREATING and isinstance(error, Unanswered):
            attempt.state = WAITING
        self._on_watched(attempt, value, error)

    def _read_queue(self, attempt: Attempt) -> None:
        attempt.in_flight = True
        attempt.changed = False
        self._send(attempt, get_children(attempt.lock_path), self._on_queue_read)

    def _on_queue_read(self, attempt: Attempt, value: Any, error: Any) -> None:
        attempt.in_flight = False
        if attempt.state not in (CREATING, WAITING) or isinstance(error, Unanswered):
            if attempt.state == CREATING:
                attempt.state = WAITING
            self._advance(attempt)
        elif isinstance(error, NoNodeError):
            self._lose(attempt)
        elif error is not None:
            self._refuse(attempt, error)
        else:
            self._decide(attempt, *value)

    def _watch(self, attempt: Attempt, entries: Sequence[Entry], mine: int, blocker: int) -> None:
        """Reads and watches the entry at the index `blocker`, or the whole queue."""
        self._unwatch(attempt)
        session = attempt.session
        attempt.in_flight = True
        if blocker == admission.ALL:
            attempt.watched_path = attempt.lock_path
            watcher = session.watch(attempt.lock_path, attempt)
            self._send(attempt, get_children(attempt.lock_path, watcher), self._on_queue_read)
            return
        place = entries[blocker].place
        attempt.watched_blocks = mine == 1 or attempt.exclusive or place.weight == place.capacity
        self._watch_entry(attempt, f"{attempt.lock_path}/{entries[blocker].name}")

    def _watch_entry(self, attempt: Attempt, path: str, on_read: ReplyOf | None = None) -> None:
        attempt.in_flight = True
        attempt.changed = False
        attempt.watched_path = path
        watcher = attempt.session.watch(path, attempt)
        self._send(attempt, get_data(path, watcher), on_read or self._on_watched)

    def _on_watched(self, attempt: Attempt, value: Any, error: Any) -> None:
        attempt.in_flight = False
        if attempt.state not in (CREATING, WAITING) or isinstance(error, Unanswered):
            self._advance(attempt)
            return
        if error is not None:
            attempt.session.unwatch(attempt.watched_path, attempt)
            attempt.watched_path = ""
            self._read_queue(attempt)
            return
        data, stat = value
        attempt.watched_waits = data.startswith(WAITS)
        if attempt.changed or (not attempt.watched_blocks and stat.czxid > attempt.read_pzxid):
            # The predecessor has gone, or was granted the lock, since the queue was read: we may be
            # admitted by now.
            self._read_queue(attempt)

    # Called by renewals and sessions, under the mutex.

    def advance(self, attempt: Attempt) -> None:
        """Sends the next request of `attempt`, if none is under way and there is a connection."""
        self._advance(attempt)

    def lose(self, attempt: Attempt) -> None:
        """Ends `attempt`, whose znode a renewal did not find."""
        self._lose(attempt)

    def read_for_renewal(self, names: Sequence[str], pzxid: int) -> QueueRead:
        """Returns what the renewal of waiters has read of their queue."""
        return QueueRead(ordered_entries(names), pzxid, self._server_time)

    def check_waiter(self, attempt: Attempt, read: QueueRead) -> float:
        """Moves a waiter on, by what a renewal has read; returns the longest TTL of the holders."""
        if attempt.state != WAITING or not attempt.path:
            return 0.0
        mine = read.positions.get(attempt.child)
        if mine is None:
            self._lose(attempt)
        elif read.has_ended and self._drop_ended(attempt, read.entries):
            if attempt.in_flight:
                attempt.changed = True
            else:
                self._read_queue(attempt)
        elif mine < read.admitted:
            self._admit(attempt, read.pzxid)
        elif not attempt.parked or not attempt.watched_path:
            self._advance(attempt)
        return self._longest_remaining(read.entries[: read.admitted])

    def _longest_remaining(self, holders: Sequence[Entry]) -> float:
        """Returns the seconds that the holders have left at the most, unless they are renewed."""
        now = self._server_time
        return max((entry.remaining(now) for entry in holders), default=0.0)

    def watch_fired(self, attempt: Attempt, path: str, deleted: bool) -> None:
        """Moves `attempt` on, after a change of the znode that it watches."""
        if attempt.state == HELD:
            if path == attempt.path:
                attempt.watches_itself = False
                if deleted:
                    self._lose(attempt)
            return
        if attempt.state not in (CREATING, WAITING):
            return
        # Also while the entry is still being read: it may be the watch of another attempt at the same
        # path that tells all who are told of it, and ours, which may stand from that read on, tells
        # nobody then.
        attempt.watched_path = ""
        if attempt.in_flight:
            attempt.changed = True
        elif path != attempt.lock_path and attempt.watched_blocks and attempt.watched_waits:
            self._watch_entry(attempt, path)  # most likely it is a holder now, and still there
        else:
            self._read_queue(attempt)


def _index_of(attempt: Attempt, entries: Sequence[Entry]) -> int | None:
    return next((i for i, entry in enumerate(entries) if entry.name == attempt.child), None)
