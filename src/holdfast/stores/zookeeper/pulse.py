"""The pulse of a session: small writes in a row, which prove from when on the leader knew it.

That a session lives is proved by *writes* that were answered, because a majority had to agree to them.
A ping or a read is answered by a follower that has lost its leader, and even a `sync` by a leader that
has lost its followers and does not know it yet.

One write is not enough (found by the simulator). A follower tells the leader which sessions it has
heard from when the leader pings it, twice in a tick; a write that it passes on says nothing of that. So
it takes three in a row, each sent after the one before was answered, and the second at least half a
tick after that: by then the leader has pinged the follower after it heard the first, the answer to that
ping has gone out before the third, and has reached the leader before it. When the third is answered,
the session lives for its whole timeout *from the sending of the first*: that is `base`. The pulse goes
on, and moves it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .requests import Unanswered

if TYPE_CHECKING:
    from .attempts import Attempts
    from .session import ClientSession


class Pulse:
    """The writes that keep a session proved, while it is ready."""

    def __init__(self, attempts: Attempts, session: ClientSession) -> None:
        self._attempts = attempts
        self._session = session
        self.base = 0.0
        """The time at which, or after which, the leader is known to have heard of the session."""
        self._interval = 0.0
        self._answered: list[float] = []
        """The times at which writes were sent that were answered in a row; the latest three matter."""
        self._due = 0.0

    def restart(self, greeted_at: float, interval: float) -> None:
        """Sets out anew on a new connection: the leader knew the session when it was greeted."""
        self.base = greeted_at
        self._interval = interval

    def begin(self) -> None:
        self._answered.clear()
        self._schedule()

    def _schedule(self) -> None:
        self._due = self._attempts.clock.now() + self._interval
        self._attempts.call_at(self._due, self._beat)

    def _beat(self) -> None:
        """Sends the next write, if it is due."""
        session = self._session
        with self._attempts.mutex:
            now = self._attempts.clock.now()
            if not session.ready or session.closed:
                return
            if now < self._due:
                self._attempts.call_at(self._due, self._beat)
                return
            session_id = session.client.session_id

            def on_reply(value: Any, error: Exception | None) -> None:
                with self._attempts.mutex:
                    same = session_id == session.client.session_id
                    if error is not None or not session.ready or not same:
                        self._answered.clear()
                        if session.ready and not isinstance(error, Unanswered):
                            self._schedule()
                        return
                    self._answered.append(now)
                    if len(self._answered) >= 3:
                        self.base = max(self.base, self._answered[-3])
                        del self._answered[:-2]
                    self._schedule()

            session.prove(on_reply)
