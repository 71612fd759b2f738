"""The grant: how an attempt that is admitted becomes a holder, and gets its token.

*The token is a zxid at which we had become a holder*, after every entry that could not hold the lock
along with us had gone.

- That is the zxid of our creation, if the read that follows it shows us admitted and no child of the
  lock came or went since: the lock's pzxid is still our czxid.
- Later, for an attempt that holds the lock alone, it is the pzxid of a read that shows us first: at
  least the deletion that let us in, and below our own deletion, which every later token is above.
- Attempts that share the lock could read the same number. The move of their znode is their token.
- The move of a candidate's znode is its token, too: the same step writes down that it leads.

*Another's clock never makes us a holder.* The read may come from a server that was cut off. But it is
used only while our last answered *write* still vouches for the session, and so for our znode; the
engine counts from that write. The move of our znode follows at once: it shows the token, and would
fail.

*Who waits is on another session than who holds.* A session outlives the death of its process by its
timeout, and a dead waiter at the head of a queue keeps a free lock from all behind it. So a waiter is
*parked* on a session that is as short as the claim window, and *settled* on the session for its TTL
when it has become a holder. Both are moves; `move` says what that is. A znode is moved only to a
session that is sure to live for as long as the waiter counts on its place.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from ...model import Granted
from .attempt import CREATING, HELD, MINTING, WAITING, WAITS, Attempt
from .attempt_table import ignore_reply
from .changes import ELECTION, Record, with_leader, write_beside
from .creation import Creation
from .names import NO_SLOT, SEMAPHORE, Entry, free_slots, ordered_entries, slot_path
from .requests import (
    EPHEMERAL,
    Conflict,
    NoNodeError,
    Unanswered,
    create,
    create_beside,
    delete,
    done,
    get_children,
    get_data,
    move,
)

if TYPE_CHECKING:
    from .session import ClientSession

LOOK_AGAIN = 0.03
"""Seconds after which an admitted attempt looks again for a free slot."""


class Grants(Creation):
    """The steps that park a waiter, and make an attempt a holder. Called under the mutex."""

    @abstractmethod
    def _session_to_wait_on(self, attempt: Attempt) -> ClientSession | None:
        """Returns the session for waiters, which may not be ready; None if there can be none."""

    def _can_move(self, attempt: Attempt, session: ClientSession) -> bool:
        return session.ready and session.sure_until >= attempt.counted_until

    def _move(
        self,
        attempt: Attempt,
        session: ClientSession,
        data: bytes,
        on_reply: Any,
        beside: Sequence[Any] = (),
        slot: int | None = None,
    ) -> None:
        """Moves the znode of `attempt` to `session`, to say `data`, and to have another `slot`.

        With another slot it has another path; if the reply is lost, the znode is searched for.
        """
        self._unwatch(attempt)
        attempt.moving_to = session
        session.attempts[attempt.owner] = attempt
        before = path = attempt.path
        if slot is not None:
            path = f"{attempt.lock_path}/{attempt.entry.renamed(slot=slot)}"
            attempt.path, attempt.maybe_created = "", True
        request = move(self, before, data, path, beside=beside)

        def receive(attempt: Attempt, value: Any, error: Any) -> None:
            stat, error = done(value, error)
            if slot is not None and not isinstance(error, Unanswered):
                attempt.path, attempt.maybe_created = before, False
            if error is None:
                if slot is not None:
                    attempt.path, attempt.slot = path, slot
                attempt.session, attempt.moving_to = session, None
                attempt.czxid = stat.czxid
                self.note_time(stat)
            on_reply(attempt, stat, error)

        self._send(attempt, request, receive, session)

    def _move_failed(self, attempt: Attempt, error: Exception) -> None:
        attempt.moving_to = None
        if isinstance(error, NoNodeError):
            self._lose(attempt)
        else:
            self._refuse(attempt, error)
            self._report_doubt([attempt.owner])

    # A waiter is parked.

    def _park(self, attempt: Attempt) -> bool:
        """Moves the znode of a waiter to the session for waiting; returns False if it has to stay."""
        session = self._session_to_wait_on(attempt)
        if attempt.parked or session is None or not self._can_move(attempt, session):
            return False
        attempt.in_flight = True
        slot, beside = None, []
        if attempt.has_slot:  # for which it has to wait
            slot, beside = NO_SLOT, [delete(attempt.slot_path)]
        self._move(attempt, session, WAITS + attempt.label, self._on_parked, beside, slot)
        return True

    def _on_parked(self, attempt: Attempt, stat: Any, error: Any) -> None:
        attempt.in_flight = False
        attempt.parked = error is None
        if error is None or isinstance(error, Unanswered) or attempt.state != WAITING:
            self._advance(attempt)
        else:
            self._move_failed(attempt, error)

    # A waiter becomes a holder.

    def _admit(self, attempt: Attempt, pzxid: int) -> None:
        """Grants the lock, after a read that showed us admitted and `pzxid` as the latest change."""
        if attempt.kind == ELECTION or (attempt.kind == SEMAPHORE and not attempt.has_slot):
            attempt.state = MINTING
            self._advance(attempt)
        elif pzxid == attempt.czxid and attempt.state == CREATING:
            self._hold(attempt, attempt.czxid)
        elif attempt.exclusive:
            self._hold(attempt, pzxid)
        else:
            attempt.state = MINTING
            self._advance(attempt)

    def _mint(self, attempt: Attempt) -> None:
        """Moves our znode to the session for its TTL; the zxid of that is the token."""
        if not self._can_move(attempt, attempt.home):
            self._notify_minted(attempt)  # not now: the next renewal tries again
            return
        attempt.in_flight = True
        token, data = 0, attempt.label
        slot: int | None = None
        beside: Sequence[Any] = ()
        if attempt.kind == ELECTION:
            if attempt.record is None:
                self._read_record(attempt)
                return
            change = attempt.record.led_by(attempt.owner)
            if change is not None:  # the step was done, and its reply was lost
                token, data = change.token, b"%d" % change.token + attempt.label
            else:
                beside = (self.write_leader(attempt, attempt.record),)
        elif attempt.kind == SEMAPHORE and not attempt.has_slot:
            slot = attempt.slot
            if slot == NO_SLOT:
                self._read_slots(attempt)
                return
            path = slot_path(attempt.lock_path, slot)
            beside = (create_beside(self, path, attempt.owner.encode(), EPHEMERAL),)
        on_reply = partial(self._on_minted, self.clock.now(), token)
        self._move(attempt, attempt.home, data, on_reply, beside, slot)

    def write_leader(self, attempt: Attempt, record: Record) -> Any:
        """Returns the write of an election's record by which `attempt` leads, as a part of a step."""
        data = with_leader(record, attempt.owner, attempt.shown_label, attempt.waited)
        return write_beside(self, self.naming.election(attempt.name), record, data)

    def _read_record(self, attempt: Attempt) -> None:
        """Reads the changes of an election, and then goes on."""
        attempt.in_flight = True

        def receive(attempt: Attempt, value: Any, error: Any) -> None:
            attempt.in_flight = False
            self._on_record_read(attempt, value, error)
            if attempt.record is None and not isinstance(error, Unanswered):
                self._refuse(attempt, error)
            else:
                self._advance(attempt)

        path = self.naming.election(attempt.name)
        self._send(attempt, get_data(path), receive, attempt.home)

    def _read_slots(self, attempt: Attempt) -> None:
        """Reads which slots of a semaphore are free, and then goes on."""

        def receive(attempt: Attempt, value: Any, error: Any) -> None:
            attempt.in_flight = False
            if error is None:
                attempt.slot = self._choose_slot(attempt, value[0], ordered_entries(value[0]))
            elif not isinstance(error, Unanswered):
                self._refuse(attempt, error)
            if attempt.state != MINTING or attempt.slot != NO_SLOT:
                self._advance(attempt)
            elif error is None:
                # A newcomer has one that finds only now that it has to wait, and then gives it back.
                self.call_at(self.clock.now() + LOOK_AGAIN, partial(self._mint_again, attempt))

        self._send(attempt, get_children(attempt.lock_path), receive, attempt.home)

    def _mint_again(self, attempt: Attempt) -> None:
        with self.mutex:
            if attempt.state == MINTING:
                self._advance(attempt)

    def _choose_slot(self, attempt: Attempt, names: Sequence[str], entries: Sequence[Entry]) -> int:
        """Returns a free slot for an entry that is admitted; another for each that has none yet."""
        free = free_slots(names, attempt.capacity)
        rank = 0
        for entry in entries:
            if entry.name == attempt.child:
                break
            rank += entry.slot == NO_SLOT
        return free[rank] if rank < len(free) else NO_SLOT

    def _on_minted(
        self, sent_at: float, token: int, attempt: Attempt, stat: Any, error: Any
    ) -> None:
        attempt.in_flight = False
        record, attempt.record = attempt.record, None
        if attempt.state != MINTING:
            attempt.freed = attempt.freed or error is None
            self._advance(attempt)
        elif error is None:
            attempt.parked = False
            self._hold(attempt, token or stat.czxid, sent_at)
        elif isinstance(error, Conflict):  # another has changed the record, or has the slot
            attempt.moving_to = None
            attempt.slot = NO_SLOT
            if record is not None and record.version < 0:
                request = create(self, self.naming.elections, b"")
                self._send(attempt, request, ignore_reply, attempt.home)
            self._advance(attempt)
        elif not isinstance(error, Unanswered):
            self._move_failed(attempt, error)

    def _settle(self, attempt: Attempt) -> None:
        """Moves the znode of a holder to the session for its TTL, where everybody sees the token."""
        if attempt.in_flight:
            return
        if not self._can_move(attempt, attempt.home):
            self._notify_minted(attempt)  # not now: the next renewal tries again
            return
        attempt.in_flight = True
        data = b"%d" % attempt.token + attempt.label
        self._move(attempt, attempt.home, data, self._on_settled)

    def _on_settled(self, attempt: Attempt, stat: Any, error: Any) -> None:
        attempt.in_flight = False
        if attempt.state != HELD:
            self._advance(attempt)
        elif error is None:
            attempt.settled = True
            attempt.parked = False
            self._leave_waiting_session(attempt)
            self._notify_minted(attempt)
        elif not isinstance(error, Unanswered):
            self._move_failed(attempt, error)

    def _leave_waiting_session(self, attempt: Attempt) -> None:
        session, attempt.waiting_session = attempt.waiting_session, None
        if session is not None and session is not attempt.home:
            session.attempts.pop(attempt.owner, None)
            session.used_at = self.clock.now()

    def _hold(self, attempt: Attempt, token: int, sent_at: float | None = None) -> None:
        """Makes `attempt` a holder, and tells its caller or its waiter.

        A waiter is handed the lock for the claim window, and confirms it by a renewal.
        """
        first, handed = attempt.on_result is not None, attempt.parked
        whole = first and not handed
        first_ttl = attempt.ttl if whole else attempt.claim_window + attempt.delay
        self._unwatch(attempt)
        attempt.state = HELD
        attempt.token = token
        attempt.expires_at = (self.clock.now() if sent_at is None else sent_at) + first_ttl
        attempt.expiry_timer = partial(self._expire_if_due, attempt)
        self._alarm.at(attempt.expires_at, attempt.expiry_timer)
        if first:
            self._known_locks[attempt.lock_path] = False
            since = attempt.vouch(attempt.sent_at)
            attempt.ticket.ttl = attempt.ttl
            slot = attempt.granted_slot
            self._return_result(attempt, Granted(token, attempt.ttl, handed, since, slot))
        else:
            attempt.ticket.tell(Granted(token, attempt.ttl, True, slot=attempt.granted_slot))
        attempt.settled = not attempt.parked and (token == attempt.czxid or sent_at is not None)
        if attempt.settled:
            self._leave_waiting_session(attempt)
            self._notify_minted(attempt)
        else:
            self._settle(attempt)
