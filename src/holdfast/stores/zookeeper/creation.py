"""The beginning of an attempt: its znode gets into the queue, whatever replies are lost on the way.

- *A znode is ours if the session that is alive says so.* A creation whose reply was lost is found again
  by the owner in its name; but a znode of an earlier session of ours is dying, and never ours.
- *Nothing is forgotten.* The znode of an attempt that was given up before its creation was answered is
  searched for, and deleted.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from functools import partial
from random import randrange
from typing import Any

from .attempt import CREATING, DELETING, HELD, WAITING, WAITS, Attempt
from .attempt_table import ignore, ignore_reply
from .changes import ELECTION, NO_RECORD, read_record
from .failures import REFUSALS
from .lines import Lines, stands
from .names import NO_SLOT, SEMAPHORE, Entry, ordered_entries, slot_path
from .requests import (
    EPHEMERAL,
    SEQUENTIAL,
    NodeExistsError,
    NoNodeError,
    Step,
    Unanswered,
    create,
    create_beside,
    create_container,
    delete,
    done,
    get_children,
    get_data,
    set_data,
)

MOST_KNOWN_LOCKS = 10_000
MOST_TRIES = 5


class Creation(Lines):
    """The steps that create an attempt's znode. Called under the mutex."""

    @abstractmethod
    def _decide(self, attempt: Attempt, names: Sequence[str], stat: Any) -> None:
        """Decides what becomes of `attempt`, by the names of all entries of the queue."""

    @abstractmethod
    def _send_adoption(self, attempt: Attempt, giver: Entry) -> None:
        """Sends the step that puts the znode of `attempt` in the place of the entry `giver`."""

    @abstractmethod
    def _choose_session(self, attempt: Attempt) -> None:
        """Decides on which session the znode of `attempt` is to be created."""

    def _create(self, attempt: Attempt) -> None:
        self._choose_session(attempt)
        session, longest = attempt.session, attempt.home.ttl
        rounded = (
            attempt.renew and not attempt.delay
        )  # the rest would count as the lease's, not the delay's
        attempt.ttl = longest if rounded else min(attempt.requested_ttl, longest)
        attempt.claim_window = min(self._claim_window, attempt.ttl)
        attempt.in_flight = attempt.maybe_created = True
        attempt.error = attempt.refusal = None
        if attempt.giver is not None:
            self._send_adoption(attempt, attempt.giver)
            return
        attempt.tries += 1
        if attempt.tries > 2:  # a foreign hand has removed more than the lock's own znode
            for path in self.naming.needed():
                self._send(attempt, create(session.client, path, b""), ignore_reply)
        if attempt.lock_path not in self._known_locks:
            request = create_container(session.client, attempt.lock_path)
            self._send(attempt, request, self._on_lock_created)
        flags = EPHEMERAL | SEQUENTIAL
        data = WAITS + attempt.label if attempt.parked else attempt.label
        attempt.slot = self._likely_slot(attempt)
        neighbour = self._neighbour(attempt)
        if neighbour is not None:
            request = create(session.client, attempt.path_prefix, data, flags)
            on_reply = partial(self._on_created_behind, neighbour, neighbour.path)
            self._send(attempt, request, on_reply)
            return
        if attempt.slot == NO_SLOT:
            request = create(session.client, attempt.path_prefix, data, flags)
            self._send(attempt, request, self._on_created)
        else:
            slot = slot_path(attempt.lock_path, attempt.slot)
            writes = (
                create_beside(self, slot, b"", EPHEMERAL),
                create_beside(self, attempt.path_prefix, data, flags),
                set_data(slot, attempt.owner.encode()),  # whose reply says the zxid
            )
            self._send(attempt, Step(writes), self._on_created_in_slot)
        if attempt.kind == ELECTION:
            self._send(attempt, get_data(self.naming.election(attempt.name)), self._on_record_read)
        self._send(attempt, get_children(attempt.lock_path), self._on_listed)

    @staticmethod
    def _on_lock_created(attempt: Attempt, value: Any, error: Any) -> None:
        """Keeps a refusal: it is the reason, if the entry finds the lock's znode missing."""
        if isinstance(error, REFUSALS):
            attempt.refusal = error

    def _on_created(self, attempt: Attempt, value: Any, error: Any) -> None:
        if error is None:
            path, stat = value
            self.note_time(stat)
            self._record_znode(attempt, path, stat)
        elif isinstance(error, NoNodeError):
            attempt.maybe_created = False
            attempt.error = attempt.refusal
            self._known_locks.pop(attempt.lock_path, None)
        elif not isinstance(error, Unanswered):
            attempt.maybe_created = False
            attempt.error = error

    def _neighbour(self, attempt: Attempt) -> Attempt | None:
        """Returns the attempt of this manager behind which `attempt` can join the queue, to wait."""
        line = self._lines.get(attempt.lock_path)
        if line is None or attempt not in line.joining or not attempt.parked:
            return None
        return line.neighbour

    def _on_created_behind(
        self, neighbour: Attempt, path: str, attempt: Attempt, value: Any, error: Any
    ) -> None:
        """Goes on with an attempt that was created while `neighbour` was in the queue, at `path`."""
        self._on_created(attempt, value, error)
        if not attempt.path or attempt.state != CREATING:
            self._on_listed(attempt, None, error)
            return
        line = self._lines[attempt.lock_path]
        # Those before it on this session were answered before, so that each watches another.
        before = line.latest
        if before is not None and before.session is attempt.session and stands(before):
            neighbour, path = before, before.path
        line.latest = attempt
        # One that was lost meanwhile, and joined again, is behind us.
        there = stands(neighbour) and neighbour.path == path
        self._watch_neighbour(attempt, path if there else "")

    @abstractmethod
    def _watch_neighbour(self, attempt: Attempt, path: str) -> None:
        """Lets an attempt that has just been created wait behind the entry `path`, if that is there.

        An empty `path` stands for an entry that is not.
        """

    def _likely_slot(self, attempt: Attempt) -> int:
        """Returns the slot to create an entry with that most likely need not wait for it."""
        if attempt.kind != SEMAPHORE or attempt.parked or attempt.tries > 1:
            return NO_SLOT
        slot = self._likely_slots.pop(attempt.lock_path, NO_SLOT)
        return slot if 0 <= slot < attempt.capacity else randrange(attempt.capacity)

    def _on_created_in_slot(self, attempt: Attempt, value: Any, error: Any) -> None:
        stat, error = done(value, error)
        if error is None:
            self._on_created(attempt, (value[1], stat), None)
        elif isinstance(error, NodeExistsError):  # the slot is taken: the entry is made without
            attempt.maybe_created = False
        else:
            self._on_created(attempt, None, error)

    def _on_record_read(self, attempt: Attempt, value: Any, error: Any) -> None:
        """Notes the changes of an election; if they could not be read, they are read again."""
        if error is None:
            attempt.record = read_record(*value)
        elif isinstance(error, NoNodeError):
            attempt.record = NO_RECORD

    def _record_znode(self, attempt: Attempt, path: str, stat: Any) -> None:
        attempt.maybe_created = False
        attempt.path = path
        if attempt.kind == SEMAPHORE:
            attempt.slot = attempt.entry.slot
        attempt.czxid = stat.czxid
        self._known_locks.setdefault(attempt.lock_path, False)
        if len(self._known_locks) > MOST_KNOWN_LOCKS:
            del self._known_locks[next(iter(self._known_locks))]

    def _on_listed(self, attempt: Attempt, value: Any, error: Any) -> None:
        attempt.in_flight = False
        if not attempt.path:
            if attempt.error is not None:
                self._fail(attempt, attempt.error)
            elif not attempt.maybe_created:  # the lock's own znode was missing
                if attempt.tries > MOST_TRIES:
                    self._fail(attempt, error or NoNodeError())
                else:
                    self._advance(attempt)
            return  # otherwise on the next connection
        if attempt.state != CREATING:
            self._advance(attempt)
        elif error is None:
            self._decide(attempt, *value)
        elif not isinstance(error, (NoNodeError, *Unanswered)):
            self._refuse(attempt, error)
        else:
            attempt.state = WAITING
            self._advance(attempt)

    def _search(self, attempt: Attempt) -> None:
        """Finds out whether the znode was created, by a read behind a write on the same connection.

        Such a read shows all that was agreed to. Behind a `sync` it might come from a leader that has
        lost its followers.
        """
        attempt.in_flight = True
        session = attempt.doubtful_session
        self._send(attempt, set_data(session.beat_path, b""), ignore_reply, session)
        self._send(attempt, get_children(attempt.lock_path), self._on_searched, session)

    def _on_searched(self, attempt: Attempt, value: Any, error: Any) -> None:
        attempt.in_flight = False
        if isinstance(error, Unanswered):
            return
        names = value[0] if error is None else []
        mine = [entry for entry in ordered_entries(names) if entry.owner == attempt.owner]
        if not mine:
            attempt.maybe_created = False
            self._advance(attempt)
            return
        path = f"{attempt.lock_path}/{mine[-1].name}"
        if mine[-1].ends:  # detached by us, and the reply was lost
            if attempt.state == DELETING:
                attempt.maybe_created, attempt.path = False, path
                self._advance(attempt)
            else:
                self._forget(attempt)
            return
        attempt.in_flight = True
        on_found = partial(self._on_found, path)
        self._send(attempt, get_data(path), on_found, attempt.doubtful_session)

    def _on_found(self, path: str, attempt: Attempt, value: Any, error: Any) -> None:
        attempt.in_flight = False
        if isinstance(error, Unanswered):
            return
        session = None if error is not None else attempt.session_of(value[1].ephemeralOwner)
        if session is not None:
            attempt.session, attempt.moving_to = session, None
            attempt.parked = value[0].startswith(WAITS)
            self._record_znode(attempt, path, value[1])
            if attempt.state == CREATING:
                attempt.state = WAITING  # it may be old by now: its creation is not its token
            elif attempt.state == HELD:  # it was amended, perhaps
                attempt.settled = not attempt.parked
                self._notify_minted(attempt)
        elif error is None:
            # A znode of a session of ours that is dying: not ours any more, and only in the way.
            attempt.doubtful_session.send(delete(path), ignore)
            attempt.maybe_created = False
        self._advance(attempt)
