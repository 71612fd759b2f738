"""What is done to a lease while it is held: it is amended, detached, or adopted from its owner.

*Each is a move of its znode to another path, in one step.* The name of an entry says all that decides
which entries may hold the lock, so another weight is another name. The new name has the same sequence
number, and with that the same place in the queue: the lock is not free in between, and nobody is
overtaken. Whoever watches the old path is told, and reads the queue again.

*A detached entry is persistent*, and its name says when it ends, by the servers' clock. Whoever meets
one that has ended deletes it: an attempt that was just created, a waiter at each heartbeat, `inspect`.
They know the time from a write of their own.

*The adopter's token is the zxid of its step*, which comes after all that the giver ever read.

*While a move is under way the path is not known.* If the reply is lost, the znode is searched for by
its owner, as after a creation.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from functools import partial
from typing import Any

from .attempt import (
    CREATING,
    DELETING,
    ENDED,
    HELD,
    MINTING,
    Attempt,
    ResultCallback,
    Ticket,
    relabel,
)
from .changes import Record, with_leader, write_beside
from .failures import request_failed
from .names import NO_SLOT, Entry, parsed, slot_path
from .queue import Queue
from .requests import (
    EPHEMERAL,
    Conflict,
    NoNodeError,
    Unanswered,
    create_beside,
    delete,
    done,
    move,
)

AGAIN = object()
"""The result of a verb that could not be decided now, and is to be called again."""


class Transfers(Queue):
    """The verbs that change a holder's entry."""

    def amend(
        self,
        name: str,
        owner: str,
        weight: int,
        text: str | None,
        record: Record | None,
        on_result: ResultCallback,
    ) -> None:
        """Gives a lease of ours less weight, or a label of another text.

        That text is a change of an election: `record` has the changes so far. The result is whether the
        lease is still held, or `AGAIN`.
        """
        with self.mutex:
            attempt = self._holder_at_rest(name, owner, on_result)
            if attempt is None:
                return
            label = attempt.label if text is None else relabel(attempt.label, text)
            weight = min(weight or attempt.weight, attempt.weight)

            def on_moved(result: Any) -> None:
                if result is True:
                    attempt.weight, attempt.label = weight, label
                on_result(result)

            beside = []
            if record is not None and text is not None:
                change = record.led_by(owner)
                if change is None or change.label.text != text:
                    shown = attempt.shown_label._replace(text=text)
                    changed = with_leader(record, owner, shown, True, attempt.token)
                    beside = [write_beside(self, self.naming.election(name), record, changed)]
            data = b"%d" % attempt.token + label
            to = attempt.entry.renamed(weight=weight)
            self._rename(attempt, to, data, on_moved, beside=beside)

    def detach(self, name: str, owner: str, ends: int, on_result: ResultCallback) -> None:
        """Makes the entry of a lease of ours persistent, until `ends`, and forgets the attempt.

        The result is True, `AGAIN`, or False if we know of no such lease.
        """
        with self.mutex:
            attempt = self._holder_at_rest(name, owner, on_result)
            if attempt is None:
                return
            entry = attempt.entry
            to = entry.renamed(ends=ends)
            data = b"%d" % attempt.token + attempt.label
            beside = self.beside_detached(attempt.lock_path, to)

            def on_moved(result: Any) -> None:
                if result is True and attempt.state == HELD:
                    self._forget(attempt)
                on_result(result)

            self._rename(attempt, to, data, on_moved, flags=0, beside=beside)

    def beside_detached(self, lock_path: str, name: str) -> Sequence[Any]:
        """Returns the writes that belong to the step which creates the detached entry `name`."""
        entry, path = parsed(name), f"{lock_path}/{name}"
        marker = create_beside(self, self.naming.marker(entry), path.encode())
        return [marker, *self._take_slot(lock_path, entry, 0)]

    def _take_slot(self, lock_path: str, entry: Entry, flags: int = EPHEMERAL) -> Sequence[Any]:
        """Returns the writes by which the slot of `entry`, if it has one, ends with another session."""
        if entry.slot == NO_SLOT:
            return []
        path = slot_path(lock_path, entry.slot)
        return [delete(path), create_beside(self, path, entry.owner.encode(), flags)]

    def knows(self, owner: str) -> bool:
        """Returns whether there is an attempt of `owner`."""
        with self.mutex:
            return owner in self._attempts

    def adopt(
        self,
        ticket: Ticket,
        giver: Entry | None,
        record: Record | None,
        on_result: ResultCallback,
    ) -> None:
        """Puts an attempt in the place of the entry `giver`; the result is the grant, or `AGAIN`.

        `giver` is None if the ticket's owner is known to adopt already. `record` has the changes of an
        election.
        """
        with self.mutex:
            known = self._attempts.get(ticket.owner)
            if known is not None:
                self._begin_again(known, ticket, on_result)
            elif giver is not None:
                self._begin(ticket, on_result, giver, record)
            else:
                on_result(AGAIN)

    @abstractmethod
    def _require_open(self) -> None:
        """Raises if we are closed."""

    @abstractmethod
    def find(self, name: str, owner: str) -> Attempt | None:
        """Returns the attempt of `owner` at the lock `name`, if it is one of ours."""

    @abstractmethod
    def _begin(
        self,
        ticket: Ticket,
        on_result: ResultCallback,
        giver: Entry | None = None,
        record: Record | None = None,
    ) -> None:
        """Begins an attempt; if there is a `giver`, it takes that entry's place."""

    @abstractmethod
    def _begin_again(self, attempt: Attempt, ticket: Ticket, on_result: ResultCallback) -> None:
        """Repeats an acquire whose result the caller did not get."""

    # Under the mutex.

    def _holder_at_rest(self, name: str, owner: str, on_result: ResultCallback) -> Attempt | None:
        """Returns our attempt, if it is a holder about which nothing is under way.

        Otherwise the result is `AGAIN`, or False if it is no holder.
        """
        self._require_open()
        attempt = self.find(name, owner)
        if attempt is None or attempt.state not in (HELD, MINTING):
            on_result(False)
            return None
        at_rest = attempt.state == HELD and attempt.settled and not attempt.in_flight
        if at_rest and attempt.path and attempt.session.ready:
            return attempt
        self._advance(attempt)
        on_result(AGAIN)
        return None

    def _rename(
        self,
        attempt: Attempt,
        name: str,
        data: bytes,
        on_result: ResultCallback,
        flags: int = EPHEMERAL,
        beside: Sequence[Any] = (),
    ) -> None:
        """Moves a holder's entry to `name`. The result is True, False if there was none, or `AGAIN`."""
        session, before = attempt.session, attempt.path
        path = f"{attempt.lock_path}/{name}"
        generation = attempt.generation
        session.unwatch(before, attempt)
        attempt.watches_itself = attempt.settled = False
        attempt.path = ""
        attempt.in_flight = attempt.maybe_created = True

        def receive(value: Any, error: Exception | None) -> None:
            with self.mutex:
                stat, error = done(value, error)
                if error is None:
                    self.note_time(stat)
                if attempt.generation == generation and attempt.state != ENDED:
                    self._renamed(attempt, before, path, stat, error)
                if isinstance(error, (Conflict, *Unanswered)):
                    on_result(AGAIN)
                elif error is None or isinstance(error, NoNodeError):
                    on_result(error is None)
                else:
                    on_result(request_failed(attempt.name, error))
                if attempt.state in (HELD, DELETING):
                    self._advance(attempt)

        session.send(move(self, before, data, path, flags, beside), receive)

    def _renamed(
        self, attempt: Attempt, before: str, path: str, stat: Any, error: Exception | None
    ) -> None:
        """Notes where the znode of `attempt` is after a move to `path`, if that is known."""
        attempt.in_flight = False
        if isinstance(error, Unanswered):
            return
        attempt.maybe_created = False
        if isinstance(error, NoNodeError):
            attempt.freed = False  # and it is lost with the next step
            return
        attempt.path = path if error is None else before
        attempt.settled = True
        if error is None:
            attempt.czxid = stat.czxid
        self._notify_minted(attempt)

    def _send_adoption(self, attempt: Attempt, giver: Entry) -> None:
        name = giver.renamed(owner=attempt.owner, ttl=attempt.ttl, ends=0)
        path = f"{attempt.lock_path}/{name}"
        beside = [*self._take_slot(attempt.lock_path, giver)]
        if attempt.record is not None:
            beside.append(self.write_leader(attempt, attempt.record))
        giver_path = f"{attempt.lock_path}/{giver.name}"
        request = move(self, giver_path, attempt.label, path, beside=beside)
        self._send(attempt, request, partial(self._on_adopted, path, self.clock.now()))

    def _on_adopted(
        self, path: str, sent_at: float, attempt: Attempt, value: Any, error: Any
    ) -> None:
        attempt.in_flight = False
        stat, error = done(value, error)
        if isinstance(error, Unanswered):
            return  # it is searched for on the next connection
        attempt.maybe_created = False
        if error is None:
            self.note_time(stat)
            self._record_znode(attempt, path, stat)
        if attempt.state != CREATING:
            self._advance(attempt)
        elif error is None:
            self._hold(attempt, stat.czxid, sent_at)
        elif isinstance(error, (Conflict, NoNodeError)):
            self._forget(attempt)
            self._return_result(attempt, AGAIN)
        else:
            self._fail(attempt, error)
