"""The end of an attempt: it is released, given up, expired, or gone without our doing.

- *Nothing is forgotten.* A deletion that was not answered is sent again on the next connection; the
  caller that asked for it may long be gone.
- *A lease ends by our own clock.* A holder that was not renewed within its TTL is deleted by us, since
  the session, which others share, may live on; if we cannot reach ZooKeeper, the session's end does it.
"""

from __future__ import annotations

from typing import Any

from ... import admission
from ...errors import BackendUnavailable
from .attempt import CREATING, DELETING, ENDED, HELD, Attempt
from .attempt_table import AttemptTable, ignore_reply
from .failures import request_failed
from .names import NO_SLOT, ordered_entries
from .requests import Conflict, NoNodeError, Unanswered, delete, done, get_children, remove, sync

MOST_LIKELY_SLOTS = 10_000


class Deletion(AttemptTable):
    """The steps that end an attempt. Called under the mutex."""

    def _expire_if_due(self, attempt: Attempt) -> None:
        with self.mutex:
            if attempt.state != HELD or attempt.expiry_timer is None:
                return
            if self.clock.now() < attempt.expires_at:
                self._alarm.at(attempt.expires_at, attempt.expiry_timer)
                return
            attempt.final_result = False  # the lease has ended: a release that comes now is told so
            self._begin_deletion(attempt)
            attempt.freed = False
            self._report_doubt([attempt.owner])

    def _begin_deletion(self, attempt: Attempt) -> None:
        """Gives up `attempt`: from now on its znode is to be deleted, however long that takes."""
        if attempt.state in (DELETING, ENDED):
            return
        attempt.freed = attempt.state == HELD
        attempt.state = DELETING
        self._unwatch(attempt)
        self._stop_timer(attempt)
        if attempt.final_result is None:
            # The acquire may still wait: the attempt was given up by another call, such as `close`.
            self._return_result(attempt, _given_up(attempt.name))
        self._notify_minted(attempt)
        if attempt.path:
            # Whatever is under way for it; a move that comes later finds nothing to move.
            self._send_deletion(attempt)
        else:
            self._advance(attempt)

    def _send_deletion(self, attempt: Attempt) -> None:
        """Sends the deletion, on any session that is connected: the znode may be on any of ours."""
        sessions = [attempt.session, attempt.home, attempt.waiting_session]
        session = next((one for one in sessions if one is not None and one.ready), None)
        if session is None:
            return
        attempt.deletion_sent = True
        if not attempt.freed and attempt.final_result is None:
            # The attempt waited. If it is admitted by now, then a lease ends here, not a wait.
            self._send(attempt, sync(self.naming.root), ignore_reply, session)
            self._send(attempt, get_children(attempt.lock_path), self._on_last_read, session)
        request = remove(attempt.path, attempt.slot_path)
        self._send(attempt, request, self._on_deleted, session)

    def _on_last_read(self, attempt: Attempt, value: Any, error: Any) -> None:
        if error is None:
            entries = ordered_entries(value[0])
            admitted = admission.admitted([entry.place for entry in entries])
            attempt.freed = any(entry.name == attempt.child for entry in entries[:admitted])

    def _on_deleted(self, attempt: Attempt, value: Any, error: Any) -> None:
        _, error = done(value, error)
        if isinstance(error, Conflict):  # a foreign hand has removed the slot
            session = next((one for one in attempt.sessions if one.ready), attempt.session)
            self._send(attempt, delete(attempt.path), self._on_deleted, session)
            return
        if isinstance(error, Unanswered):
            attempt.deletion_sent = False
            attempt.maybe_deleted = True
            self._advance(attempt)  # there may be another session
            return
        if isinstance(error, NoNodeError) and not attempt.maybe_deleted:
            attempt.freed = False
        elif error is not None and not isinstance(error, NoNodeError):
            attempt.error = error
        self._end(attempt)

    def _end(self, attempt: Attempt) -> None:
        """Ends `attempt`, whose znode is not there any more, and calls back all who wait for that."""
        self._forget(attempt)
        if attempt.slot != NO_SLOT:
            self._likely_slots[attempt.lock_path] = attempt.slot
            if len(self._likely_slots) > MOST_LIKELY_SLOTS:
                del self._likely_slots[next(iter(self._likely_slots))]
        if attempt.final_result is not None:
            self._return_result(attempt, attempt.final_result)
        error = attempt.error
        for on_deleted in attempt.on_deleted:
            on_deleted(attempt.freed if error is None else request_failed(attempt.name, error))

    def _lose(self, attempt: Attempt) -> None:
        """Ends `attempt`, whose znode has gone without our doing: by a foreign hand, or its session."""
        self._unwatch(attempt)
        if (
            attempt.on_result is not None
            and attempt.final_result is None
            and not attempt.on_deleted
        ):
            # The acquire still waits for its first result: start again.
            attempt.generation += 1
            attempt.state = CREATING
            attempt.path = ""
            attempt.in_flight = attempt.maybe_created = attempt.parked = False
            attempt.session, attempt.moving_to = attempt.home, None
            attempt.slot = NO_SLOT
            self._advance(attempt)
            return
        attempt.freed = False
        self._end(attempt)
        attempt.ticket.tell()
        self._report_doubt([attempt.owner])

    def _refuse(self, attempt: Attempt, error: Exception) -> None:
        """Gives up `attempt`, whose queue ZooKeeper does not let us read, and says so."""
        if attempt.on_result is not None and attempt.final_result is None:
            attempt.final_result = request_failed(attempt.name, error)
        self._begin_deletion(attempt)
        attempt.ticket.tell()  # a waiter asks, enrols again, and is told why that fails

    def _abandon(self, attempt: Attempt) -> None:
        """Gives up `attempt` because a session has ended: its znode may be there, or gone with that."""
        attempt.generation += 1
        attempt.in_flight = attempt.deletion_sent = False
        attempt.maybe_deleted = True
        if attempt.state == DELETING:
            self._advance(attempt)
            return
        self._begin_deletion(attempt)
        attempt.freed = False
        attempt.ticket.tell()
        self._report_doubt([attempt.owner])

    def _fail(self, attempt: Attempt, error: Exception) -> None:
        """Ends `attempt`, whose znode ZooKeeper refused to create."""
        self._forget(attempt)
        self._return_result(attempt, request_failed(attempt.name, error))
        for on_deleted in attempt.on_deleted:
            on_deleted(False)


def _given_up(name: str) -> BackendUnavailable:
    return BackendUnavailable(f"the request for {name!r} was given up", name=name)
