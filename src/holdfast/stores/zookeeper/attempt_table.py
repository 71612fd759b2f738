"""The table of all attempts of one manager: their mutex, their requests and their expiry.

All state is behind one mutex. Replies come in the connection's thread; nothing here waits for anything.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from threading import RLock
from typing import TYPE_CHECKING, Any

from ..._runtime.threads import Alarm
from ...clock import Clock
from .attempt import ENDED, Attempt
from .names import NO_SLOT, Entry, Naming, slot_path
from .requests import Conflict, NoNodeError, Unanswered, delete, done, remove

if TYPE_CHECKING:
    from .session import ClientSession


class AttemptTable(ABC):
    """The attempts that are not over, and what all steps of their lives have in common.

    Methods that begin with an underscore are called under the mutex.
    """

    def __init__(
        self, naming: Naming, acl: Sequence[Any], clock: Clock, claim_window: float
    ) -> None:
        self.naming = naming
        self.acl = acl
        """The users who may use the znodes that we create."""
        self.clock = clock
        self.mutex = RLock()
        self.on_doubt: Callable[[Iterable[str]], None] | None = None
        """A function to call with the owners whose leases are to be renewed at once."""
        self._claim_window = claim_window
        self._attempts: dict[str, Attempt] = {}
        """By owner."""
        self._known_locks: dict[str, bool] = {}
        """By the path of a lock whose znode was there when we last used it: whether we had to wait."""
        self._likely_slots: dict[str, int] = {}
        """By the path of a semaphore: a slot that we have given back."""
        self._server_time = 0
        """The time on the servers' clock at the latest write of ours: ms since the epoch."""
        self._being_dropped: set[str] = set()
        """The paths of detached entries that have ended, and whose deletion was sent."""
        self._alarm = Alarm(clock)

    def call_at(self, due: float, function: Callable[[], None]) -> None:
        self._alarm.at(due, function)

    @abstractmethod
    def _advance(self, attempt: Attempt) -> None:
        """Sends the next request of `attempt`, if none is under way and there is a connection."""

    def _send(
        self,
        attempt: Attempt,
        request: Any,
        on_reply: Callable[[Attempt, Any, Any], None],
        session: ClientSession | None = None,
    ) -> None:
        """Sends a request for `attempt`. A reply that comes too late to concern it is ignored."""
        generation = attempt.generation

        def receive(value: Any, error: Exception | None) -> None:
            with self.mutex:
                if attempt.generation == generation and attempt.state != ENDED:
                    on_reply(attempt, value, error)

        (session or attempt.session).send(request, receive)

    def _forget(self, attempt: Attempt) -> None:
        """Takes `attempt` out of the table: its znode is not there any more, or never was."""
        attempt.state = ENDED
        self._unwatch(attempt)
        self._stop_timer(attempt)
        if self._attempts.get(attempt.owner) is attempt:
            del self._attempts[attempt.owner]
        for session in attempt.sessions:
            session.attempts.pop(attempt.owner, None)
            session.used_at = self.clock.now()
        self._notify_minted(attempt)

    def _stop_timer(self, attempt: Attempt) -> None:
        if attempt.expiry_timer is not None:
            self._alarm.cancel(attempt.expiry_timer)
            attempt.expiry_timer = None

    def _return_result(self, attempt: Attempt, result: Any) -> None:
        on_result, attempt.on_result = attempt.on_result, None
        if on_result is not None:
            on_result(result)

    def _notify_minted(self, attempt: Attempt) -> None:
        callbacks, attempt.on_minted = attempt.on_minted, []
        for callback in callbacks:
            callback()

    def _unwatch(self, attempt: Attempt) -> None:
        if attempt.watched_path:
            attempt.session.unwatch(attempt.watched_path, attempt)
            attempt.watched_path = ""
        if attempt.watches_itself:
            attempt.session.unwatch(attempt.path, attempt)
            attempt.watches_itself = False

    def note_time(self, stat: Any) -> None:
        """Notes the servers' time, by the facts about a znode that was just written."""
        self._server_time = getattr(stat, "mtime", self._server_time)

    def _drop_ended(self, attempt: Attempt, entries: Sequence[Entry]) -> bool:
        """Deletes the detached entries in the queue of `attempt` that have ended; returns whether any.

        What is read behind that on the same session is without them.
        """
        now, dropped = self._server_time, False
        for entry in entries:
            path = f"{attempt.lock_path}/{entry.name}"
            if entry.has_ended(now) and path not in self._being_dropped:
                self._being_dropped.add(path)
                dropped = True
                self._send_drop(attempt, path, entry)
        return dropped

    def _send_drop(self, attempt: Attempt, path: str, entry: Entry) -> None:
        def receive(value: Any, error: Exception | None) -> None:
            _, error = done(value, error)
            with self.mutex:
                self._being_dropped.discard(path)
                if isinstance(error, Conflict):  # a foreign hand has removed the slot
                    attempt.session.send(delete(path), ignore)
                elif error is not None and not isinstance(error, (NoNodeError, *Unanswered)):
                    self._refuse(attempt, error)

        attempt.session.send(removal(attempt.lock_path, entry), receive)
        attempt.session.send(delete(self.naming.marker(entry)), ignore)

    @abstractmethod
    def _refuse(self, attempt: Attempt, error: Exception) -> None:
        """Gives up `attempt`, whose queue ZooKeeper does not let us use, and says so."""

    def _report_doubt(self, owners: Sequence[str]) -> None:
        if self.on_doubt is not None and owners:
            self.on_doubt(owners)


def removal(lock_path: str, entry: Entry) -> Any:
    """Returns the request to delete an entry, and the slot that it has."""
    slot = "" if entry.slot == NO_SLOT else slot_path(lock_path, entry.slot)
    return remove(f"{lock_path}/{entry.name}", slot)


def ignore_reply(attempt: Attempt, value: Any, error: Any) -> None:
    """Ignores a reply: if the request failed, the one that was sent behind it fails too."""


def ignore(value: Any, error: Exception | None) -> None:
    """Ignores a reply that nobody waits for."""
