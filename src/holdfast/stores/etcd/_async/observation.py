"""Observing elections of an etcd cluster, any number of them on one watch stream.

The changes are read from their notes (see `change_log`). A watch of the election's queue only says when
to read: something became a leader, or has gone.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from threading import RLock

from ....model import Change, Observation
from ....settlement import ELECTION
from ..._async.contract import OBSERVED_FOR, Ticket
from ..keys import GRANTED, StoredEntry, decode
from ..wire import messages
from ..wire.failures import Failure
from ..wire.messages import Event, KeyValue
from .parts import Parts
from .release import Releaser
from .watches import Watch, Watches


class Observer:
    """The observed elections of one manager."""

    def __init__(self, parts: Parts, releaser: Releaser, watches: Watches) -> None:
        self._clock, self._naming, self._retrier, self._leases, self._attempts, self._log = parts
        self._releaser = releaser
        self._watches = watches
        self._mutex = RLock()
        self._until: dict[Ticket, float] = {}
        """Until when each ticket is to be woken, the first to end first."""
        self._tickets: dict[str, set[Ticket]] = {}
        self._watched: dict[str, Watch] = {}

    async def observe(self, ticket: Ticket, after: int, deadline: float) -> Observation:
        """Returns the changes with a number above `after`, and has `ticket` woken by the next one."""
        self._register(ticket)  # first, so that no change comes unnoticed after the read
        self._watches.follow()
        name = ticket.name
        first = self._naming.notes(name)
        last = messages.after(first)
        wanted = (
            messages.read_newer(first, last, after) if after else messages.read_latest(first, last)
        )
        look = messages.then(
            wanted, messages.read_latest(first, last), *self._attempts.queue(name, ELECTION, 1).read
        )
        while True:
            reply = await self._retrier.txn(look, deadline)
            newer, latest, *queue = (messages.held_keys([result]) for result in reply.results)
            candidates = [
                one
                for one in self._naming.stored_entries(kv for found in queue for kv in found)
                if one.kind == ELECTION
            ]
            last_change = self._log.change(latest[0]) if latest else None
            if await self._settle(name, candidates, last_change, deadline):
                continue
            self._watch(ticket, reply.revision + 1)
            changes = [one for one in map(self._log.change, newer) if one is not None]
            leader = next(filter(_leads, candidates), None)
            if leader is None:
                return Observation(tuple(changes), 0.0)
            if last_change is None or last_change.owner != leader.entry.owner:
                # It has led for so long that its note is gone.
                changes = [one for one in (self._log.present(leader),) if one.number > after]
            remaining = await self._leases.remaining(leader.kv.lease, deadline)
            return Observation(tuple(changes), remaining)

    def unobserve(self, ticket: Ticket) -> None:
        """Stops to wake `ticket`."""
        with self._mutex:
            self._until.pop(ticket, None)
            tickets = self._tickets.get(ticket.name)
            if tickets is None or ticket not in tickets:
                return  # also if it was interrupted before it was known
            tickets.discard(ticket)
            if not tickets:
                del self._tickets[ticket.name]
                watch = self._watched.pop(ticket.name, None)
                if watch is not None:
                    self._watches.drop(watch)

    async def _settle(
        self, name: str, candidates: list[StoredEntry], last: Change | None, deadline: float
    ) -> bool:
        """Does what is due after a leader whose lease has ended; returns True if anything was."""
        if last is None or not last.owner or any(map(_leads, candidates)):
            return False
        if candidates:
            await self._releaser.hand_on(candidates, deadline)
        else:
            await self._note_end(name, last, deadline)
        return True

    async def _note_end(self, name: str, change: Change, deadline: float) -> None:
        first = self._naming.queue_of_kind(self._naming.queue(name), ELECTION, 1)
        notes = await self._log.lease(ELECTION, deadline)
        assert notes is not None
        key = self._naming.note(name, change.owner, "ended")
        try:
            await self._retrier.txn(
                messages.absent(first, messages.after(first))
                + messages.absent(key)
                + messages.then(self._log.nobody(notes, name, change.owner, change.token)),
                deadline,
            )
        except Failure:
            await self._leases.find_ended((notes,), deadline)

    # Wake-ups.

    def _register(self, ticket: Ticket) -> None:
        now = self._clock.now()
        with self._mutex:
            self._until.pop(ticket, None)
            while self._until:
                first = next(iter(self._until))
                if self._until[first] > now:
                    break
                self.unobserve(first)
            self._until[ticket] = now + OBSERVED_FOR
            self._tickets.setdefault(ticket.name, set()).add(ticket)

    def _watch(self, ticket: Ticket, revision: int) -> None:
        name = ticket.name
        with self._mutex:
            if name not in self._watched and name in self._tickets:
                start = self._naming.queue(name)
                self._watched[name] = self._watches.add(
                    start,
                    messages.after(start),
                    revision,
                    partial(self._heard, name),
                    partial(self._started, name),
                )

    def _heard(self, name: str, events: Sequence[Event]) -> None:
        if any(event.deleted or _grants(event.key) for event in events):
            self._tell(name)

    def _started(self, name: str, revision: int) -> None:
        self._tell(name)

    def _tell(self, name: str) -> None:
        with self._mutex:
            tickets = list(self._tickets.get(name, ()))
        for ticket in tickets:
            ticket.tell()


def _leads(stored: StoredEntry) -> bool:
    return stored.entry.state == GRANTED


def _grants(kv: KeyValue) -> bool:
    entry = decode(kv.value)
    return entry is not None and entry.state == GRANTED
