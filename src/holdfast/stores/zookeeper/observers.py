"""The observers of elections, and the watches by which they are told of the next change.

An observer has two watches on a session of its manager: on the record of the election, which each
change writes, and on the first entry of its queue, whose end nobody may have written down yet. It has
no znode and no session of its own, so a thousand of them cost one connection.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from .attempt import ResultCallback
from .requests import get_data, sync

if TYPE_CHECKING:
    from .attempts import Attempts
    from .session import ClientSession


class ObserverTicket(Protocol):
    """The members of an observer's ticket that matter here."""

    owner: str

    def tell(self) -> None: ...


class Observer:
    """One observer, for as long as it goes on asking."""

    def __init__(self, ticket: ObserverTicket) -> None:
        self.ticket = ticket
        self.session: ClientSession | None = None
        self.until = 0.0
        """The time until which it is told of changes, unless it asks again."""
        self._paths: set[str] = set()

    def attach(self, session: ClientSession, until: float) -> None:
        """Begins to be told of changes by `session`."""
        if self.session is not session:
            if self.session is not None:
                self.ticket.tell()  # what it watched there has to be read again
            self.leave()
            self.session = session
        self.until = until
        session.observers[self] = None

    def watch(self, path: str) -> Any:
        """Returns the watcher to give along with a read of `path`."""
        assert self.session is not None
        self._paths.add(path)
        return self.session.watch(path, self)

    def leave(self) -> None:
        """Ends all that was begun."""
        if self.session is not None:
            for path in self._paths:
                self.session.unwatch(path, self)
            self.session.observers.pop(self, None)
        self.session = None
        self._paths.clear()


class Observers:
    """The observers of one manager, by owner. All is done under the mutex of its attempts."""

    def __init__(self, attempts: Attempts) -> None:
        self._attempts = attempts
        self._observers: dict[str, Observer] = {}

    def read(
        self,
        ticket: ObserverTicket,
        seconds: float,
        path: str,
        beside: Sequence[Any],
        on_result: ResultCallback,
    ) -> None:
        """Reads `path`, and tells the observer of its next change; sends other reads behind that.

        The result is the list of the replies.
        """
        with self._attempts.mutex:
            now = self._attempts.clock.now()
            observer = self._observers.setdefault(ticket.owner, Observer(ticket))
            observer.ticket = ticket  # a service has one for each request
            session = observer.session
            if session is None or not session.ready:
                session = self._attempts.session_for_reads()
            observer.attach(session, now + seconds)
            # A server may lag behind what its client already knows from others.
            requests = [sync(path), get_data(path, observer.watch(path)), *beside]

        def on_replies(replies: list[Any]) -> None:
            on_result(session.error or replies[1:])

        session.send_all(requests, on_replies)

    def forget(self, owner: str) -> None:
        """Ends what an observer began."""
        with self._attempts.mutex:
            observer = self._observers.pop(owner, None)
            if observer is not None:
                observer.leave()

    def expire(self) -> None:
        """Ends what those observers began who have not asked again in time."""
        now = self._attempts.clock.now()
        with self._attempts.mutex:
            for owner, observer in list(self._observers.items()):
                if observer.until < now:
                    self.forget(owner)

    def tell_all(self) -> None:
        for observer in list(self._observers.values()):
            observer.ticket.tell()
