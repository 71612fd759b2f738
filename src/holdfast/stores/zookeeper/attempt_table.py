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
from .names import Naming

if TYPE_CHECKING:
    from .session import ClientSession


class AttemptTable(ABC):
    """The attempts that are not over, and what all steps of their lives have in common.

    Methods that begin with an underscore are called under the mutex.
    """

    def __init__(self, naming: Naming, clock: Clock, claim_window: float) -> None:
        self.naming = naming
        self.clock = clock
        self.mutex = RLock()
        self.on_doubt: Callable[[Iterable[str]], None] | None = None
        """A function to call with the owners whose leases are to be renewed at once."""
        self._claim_window = claim_window
        self._attempts: dict[str, Attempt] = {}
        """By owner."""
        self._known_locks: dict[str, bool] = {}
        """By the path of a lock whose znode was there when we last used it: whether we had to wait."""
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

    def _report_doubt(self, owners: Sequence[str]) -> None:
        if self.on_doubt is not None and owners:
            self.on_doubt(owners)


def ignore_reply(attempt: Attempt, value: Any, error: Any) -> None:
    """Ignores a reply: if the request failed, the one that was sent behind it fails too."""
