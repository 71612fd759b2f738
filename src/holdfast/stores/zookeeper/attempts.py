"""All attempts of one manager at an ensemble, and the sessions that they are on.

Each verb ends by calling `on_result` with the result, or with the exception to raise: now, or later
from the thread of a connection. The rules are in `queue` and the files that it builds on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...clock import Clock
from ...entries import Claim
from ...errors import BackendUnavailable
from ...interrupts import let_through
from ...model import Granted, Queued, Renewed, Waiting
from ...refusals import owner_used_again
from .address import Address
from .attempt import (
    CREATING,
    DELETING,
    ENDED,
    HELD,
    MINTING,
    WAITING,
    Attempt,
    ResultCallback,
    Ticket,
)
from .changes import Record
from .client import acl_of
from .names import Entry, Naming
from .observers import Observers
from .renewal import Renewal
from .requests import sync
from .session import CLASSES, ClientSession
from .transfers import Transfers

DEFAULT_CLASS = 30.0


class Attempts(Transfers):
    """The verbs of the backend, for both worlds, and the sessions by TTL."""

    def __init__(
        self, address: Address, naming: Naming, clock: Clock, claim_window: float, tick: float
    ) -> None:
        super().__init__(naming, acl_of(address), clock, claim_window)
        self.address = address
        self.tick = tick
        self._sessions: dict[float, ClientSession] = {}
        """By the TTL that they were opened for."""
        self.observers = Observers(self)
        self._closed = False

    def _require_open(self) -> None:
        if self._closed:
            raise BackendUnavailable("this connection to ZooKeeper is closed")

    def open(self, on_result: ResultCallback) -> None:
        with self.mutex:
            session = self._session_for(DEFAULT_CLASS)
        session.send_all([sync(self.naming.root)], lambda replies: on_result(replies[0]))

    def _session_for(self, ttl: float) -> ClientSession:
        """Returns the session for `ttl`, which may have still to be opened. Under the mutex."""
        self._require_open()
        for session in self._sessions.values():
            if session.can_give(ttl):
                return session
        seconds = next((one for one in CLASSES if one >= ttl), CLASSES[-1])
        found = self._sessions.get(seconds)
        if found is None:
            found = ClientSession(self, seconds)
            try:
                found.start()
            except (OSError, RuntimeError) as error:  # no descriptor, or no thread, to be had
                let_through(error)
                raise BackendUnavailable(
                    f"no session with ZooKeeper at {self.address} could be opened: {error}"
                ) from error
            self._sessions[seconds] = found
        return found

    def _choose_session(self, attempt: Attempt) -> None:
        """Decides on which session the znode of `attempt` is to be created.

        A lock for which we had to wait is probably one for which we have to wait again.
        """
        attempt.session, attempt.parked = attempt.home, False
        known = attempt.giver is None and self._known_locks.get(attempt.lock_path)
        if attempt.queue and known:
            session = self._session_to_wait_on(attempt)
            if session is not None and session.ready:
                attempt.session, attempt.parked = session, True

    def _session_to_wait_on(self, attempt: Attempt) -> ClientSession | None:
        if attempt.waiting_session is None:
            # A lock that is handed to a waiter which dies stays closed for the delay, too.
            seconds = min(self._claim_window + attempt.delay, attempt.home.requested_ttl)
            try:
                session = self._session_for(seconds)
            except BackendUnavailable:
                return None  # then it waits where it is
            attempt.waiting_session = session
            session.attempts[attempt.owner] = attempt
        return attempt.waiting_session

    def session_for_reads(self) -> ClientSession:
        """Returns a session for what is not on behalf of an attempt. Under the mutex."""
        sessions = self._sessions.values()
        ready = next((session for session in sessions if session.ready), None)
        return ready or self._session_for(DEFAULT_CLASS)

    def send_all(self, requests: Sequence[Any], on_result: ResultCallback) -> None:
        """Sends requests that may be repeated; the result is the list of their replies."""
        with self.mutex:
            self._require_open()
            session = self.session_for_reads()

        def on_replies(replies: list[Any]) -> None:
            on_result(session.error or replies)

        session.send_all(requests, on_replies)

    def acquire(self, ticket: Ticket, on_result: ResultCallback) -> None:
        with self.mutex:
            known = self._attempts.get(ticket.owner)
            if known is None:
                self._begin(ticket, on_result)
            else:
                self._begin_again(known, ticket, on_result)

    def _begin(
        self,
        ticket: Ticket,
        on_result: ResultCallback,
        giver: Entry | None = None,
        record: Record | None = None,
    ) -> None:
        session = self._session_for(ticket.ttl)
        lock_path = self.naming.lock(ticket.name)
        attempt = Attempt(ticket, lock_path, session, on_result, self.clock.now())
        attempt.giver, attempt.record = giver, record
        attempt.waited = giver is not None  # so that the hand-over is one change
        self._attempts[attempt.owner] = session.attempts[attempt.owner] = attempt
        self._advance(attempt)

    def _begin_again(self, attempt: Attempt, ticket: Ticket, on_result: ResultCallback) -> None:
        """Repeats an acquire whose result the caller did not get."""
        same = (attempt.name, attempt.shape, attempt.ticket.weight) == (
            ticket.name,
            f"{ticket.kind},{ticket.capacity}",
            ticket.weight,
        )
        if not same or attempt.state == DELETING:
            on_result(owner_used_again(attempt.owner, attempt.name))
        elif attempt.state == CREATING:
            attempt.on_result = on_result
        else:

            def on_renewed(outcomes: Any) -> None:
                outcome = outcomes[0]
                if isinstance(outcome, Renewed):
                    on_result(Granted(outcome.token, outcome.ttl, False, *outcome[2:]))
                elif isinstance(outcome, Waiting):
                    on_result(Queued(outcome.remaining, outcome.since))
                else:
                    on_result(BackendUnavailable(f"the request for {attempt.name!r} was lost"))

            self.renew([Claim(attempt.name, attempt.owner, attempt.ttl)], on_renewed)

    def renew(self, claims: Sequence[Claim], on_result: ResultCallback) -> None:
        with self.mutex:
            self._require_open()
            Renewal(self, claims, on_result).start()

    def find(self, name: str, owner: str) -> Attempt | None:
        """Returns the attempt of `owner` at the lock `name`, if it is one of ours."""
        attempt = self._attempts.get(owner)
        return attempt if attempt is not None and attempt.name == name else None

    def kind_of(self, name: str, owner: str) -> str:
        """Returns the kind of the lock, if `owner` is one of ours; otherwise nothing."""
        with self.mutex:
            attempt = self.find(name, owner)
            return "" if attempt is None else attempt.kind

    def release(self, name: str, owner: str, on_result: ResultCallback) -> None:
        """Ends the attempt of `owner`. The result is whether it was a holder; None if not ours."""
        with self.mutex:
            self._require_open()
            attempt = self.find(name, owner)
            if attempt is None:
                on_result(None)
                return
            attempt.on_deleted.append(on_result)
            self._begin_deletion(attempt)

    def remaining_and_token(self, owner: str) -> tuple[float, int] | None:
        """Returns the seconds that an admitted owner has left by our own timer, and its token.

        None if the owner is not one of ours. The token is 0 if it has not been granted yet.
        """
        with self.mutex:
            attempt = self._attempts.get(owner)
            if attempt is None:
                return None
            if attempt.state in (WAITING, MINTING):
                return attempt.claim_window, 0
            return max(0.0, attempt.expires_at - self.clock.now()), attempt.token

    def failure(self) -> str:
        """Returns why a session that has no connection could not get one; empty if all have one."""
        with self.mutex:
            failures = [session.client.failure for session in self._sessions.values()]
        return next(filter(None, failures), "")

    def try_other_servers(self) -> None:
        """Drops connections on which a reply is overdue: another server may answer."""
        with self.mutex:
            for session in self._sessions.values():
                session.try_other_server()

    def close(self, on_result: ResultCallback) -> None:
        """Refuses all verbs from now on, and ends the sessions. The result is None, once they ended."""
        with self.mutex:
            self._closed = True
            sessions = list(self._sessions.values())
            attempts = list(self._attempts.values())
        self._alarm.close()
        for attempt in attempts:
            attempt.ticket.tell()
        self.observers.tell_all()
        awaited = len(sessions) + 1

        def on_ended() -> None:
            nonlocal awaited
            with self.mutex:
                awaited -= 1
                last = awaited == 0
            if last:
                on_result(None)

        for session in sessions:
            session.end(on_ended)
        on_ended()

    # Called by sessions, under the mutex.

    def session_suspended(self, session: ClientSession) -> None:
        """Puts all leases in doubt, because the session has lost its connection."""
        attempts = list(session.attempts.values())
        for attempt in attempts:
            if attempt.session is session:
                attempt.watches_itself = False
                attempt.watched_path = ""
            self._notify_minted(attempt)
        self._doubt_holders(attempts)

    def session_ready(self, session: ClientSession) -> None:
        """Moves all attempts on, because the session is connected again, or is a new one."""
        attempts = list(session.attempts.values())
        for attempt in attempts:
            if attempt.state != ENDED:
                self._advance(attempt)
        self._doubt_holders(attempts)

    def recall(self, session: ClientSession, name: str | None) -> None:
        """Puts the leases of the lock `name` in doubt, or all, because of a forced release."""
        attempts = session.attempts.values()
        self._doubt_holders([one for one in attempts if name is None or one.name == name])

    def _doubt_holders(self, attempts: Sequence[Attempt]) -> None:
        self._report_doubt([attempt.owner for attempt in attempts if attempt.state == HELD])

    def session_ended(self, session: ClientSession) -> None:
        """Ends all attempts whose znodes have gone with the session; the others start again."""
        for attempt in list(session.attempts.values()):
            if attempt.moving_to is not None and session in (attempt.session, attempt.moving_to):
                self._abandon(attempt)
            elif attempt.session is not session:
                self._notify_minted(attempt)  # its znode is elsewhere
            else:
                attempt.generation += 1
                attempt.in_flight = False
                if attempt.path:
                    self._lose(attempt)
                elif attempt.state == DELETING:
                    self._end(attempt)
                else:
                    attempt.maybe_created = attempt.parked = False
                    attempt.session = attempt.home
                    self._advance(attempt)

    def session_failed(self, session: ClientSession) -> None:
        """Ends all attempts, because the ensemble does not let the session be used.

        The next attempt opens another one: the reason may be mended by then.
        """
        self.drop_session(session)
        for observer in session.observers:
            observer.ticket.tell()
        attempts = []
        for attempt in list(session.attempts.values()):
            if session not in (attempt.home, attempt.session):
                attempt.waiting_session = attempt.moving_to = None  # it waits where it is
                continue
            attempts.append(attempt)
            self._forget(attempt)
            self._return_result(attempt, session.error)
            for on_deleted in attempt.on_deleted:
                on_deleted(False)
            attempt.ticket.tell()
        self._report_doubt([attempt.owner for attempt in attempts])

    def drop_session(self, session: ClientSession) -> None:
        """Closes a session, and forgets it."""
        if self._sessions.get(session.requested_ttl) is session:
            del self._sessions[session.requested_ttl]
        session.end(_ignore_end)


def _ignore_end() -> None:
    """Ignores that a session has ended: nobody waits for that."""
