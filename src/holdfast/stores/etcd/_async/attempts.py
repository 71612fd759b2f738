"""The attempts that one manager has under way on an etcd cluster, and what is heard of their keys."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from itertools import count
from threading import RLock

from ....clock import Clock
from ....errors import BackendUnavailable
from ....model import Granted
from ..._async.contract import Ticket
from ..keys import Naming, StoredEntry, Wakeup
from ..wire.messages import Event
from .attempt import GRANTED, NEW, QUEUED, RELEASED, Attempt
from .holder_watch import HolderWatch
from .leases import OWN, Lease, Leases
from .queue import Queue
from .waiter_watch import WaiterWatch
from .watches import Watches

QUEUES = 4096
"""The number of queues from which on those without an attempt are forgotten."""
SWEEP = 256
"""The number of attempts, beyond those that the last sweep left, that calls for another."""


class Attempts:
    """The register of attempts, by owner and by key; and the queues that they are in."""

    def __init__(
        self,
        clock: Clock,
        naming: Naming,
        leases: Leases,
        watches: Watches,
        wakeups: Watches,
        token_base: int,
    ) -> None:
        self._clock = clock
        self._naming = naming
        self._leases = leases
        self._token_base = token_base
        self.ask_about: Callable[[Iterable[str]], None] | None = None
        """A function of the session's, to be called with owners about whom `renew` should be asked."""
        self._session = os.urandom(8).hex()
        self._mutex = RLock()
        self.holder_watch = HolderWatch(
            clock, self._mutex, watches, self._keys_deleted, self._ask_about_holders
        )
        self.waiter_watch = WaiterWatch(
            clock,
            self._mutex,
            watches,
            wakeups,
            naming.wakeup(self._session),
            self.handed_over,
            self._wakeups_started,
        )
        self._attempts: dict[tuple[str, str], Attempt] = {}
        self._by_key: dict[bytes, Attempt] = {}
        self._pending: dict[Attempt, None] = {}
        """Attempts that were released without the store having been told."""
        self._early: dict[Attempt, tuple[Wakeup, int]] = {}
        """Wake-ups that were heard before the reply to the waiter's own request."""
        self._sweep_at = SWEEP
        self._queues: dict[tuple[str, str, int, bool], Queue] = {}
        self._drop_queues_at = QUEUES
        self._numbers = count()
        """The numbers of this manager's keys, each of which is drawn once."""

    # The register.

    def known(self, name: str, owner: str) -> Attempt | None:
        """Returns the attempt of `owner`, if it is under way here."""
        return self._attempts.get((name, owner))

    def ahead(
        self, attempt: Attempt, queue: Sequence[StoredEntry], blocking: int | None
    ) -> Attempt | None:
        """Returns the waiter of this manager that blocks `attempt`, if its key is on the same lease.

        `blocking` is an index in the queue of a mutex; there is none for other locks.
        """
        if blocking is None or blocking < 0 or attempt.capacity > 1:
            return None
        stored = queue[blocking]
        found = self._by_key.get(stored.kv.key)
        if found is None or not found.owns(stored) or found.state != QUEUED:
            return None
        return found if found.lease is attempt.lease else None

    def enrol(self, ticket: Ticket, *, adopted: bool = False) -> Attempt:
        """Returns the attempt of `ticket`; a new one has a key that is not in use.

        `adopted`: it is to adopt a lease.
        """
        terms = ticket.terms
        with self._mutex:
            attempt = self._attempts.get((terms.name, ticket.owner))
            if attempt is None:
                if len(self._attempts) >= self._sweep_at:
                    self._sweep()
                queue = self.queue(terms.name, terms.kind, terms.capacity, adopted)
                attempt = Attempt(ticket, queue, queue.take_key(), self._mutex)
                self._attempts[terms.name, ticket.owner] = attempt
                self._by_key[attempt.key] = attempt
            return attempt

    def enrol_anothers(self, stored: StoredEntry) -> Attempt:
        """Returns an attempt that another manager made, and that we are asked about all the same."""
        with self._mutex:
            queue = self.queue(stored.name, stored.kind, stored.capacity)
            attempt = Attempt.of_another(stored, queue, self._token_base, self._mutex)
            attempt = self._attempts.setdefault((stored.name, stored.entry.owner), attempt)
        if attempt.lease is None:
            self._hang_on_stored(attempt, stored)
        return attempt

    def change_key(self, attempt: Attempt) -> None:
        """Gives a new attempt another key: its own is still there, from one whose lease is ending."""
        if attempt.doubtful:
            # A try for this key may still arrive, and the tombstone has to name that key.
            raise BackendUnavailable(
                f"the place for {attempt.name!r} is still taken by an earlier request, and "
                "a reply was lost; ask again",
                name=attempt.name,
                owner=attempt.owner,
            )
        with self._mutex:
            del self._by_key[attempt.key]
            old = attempt.key
            attempt.take_key(attempt.queue.take_key())
            attempt.queue.give_key(old, reusable=True)
            self._by_key[attempt.key] = attempt

    def reserve_key(self, attempt: Attempt, *, blind: bool) -> bool:
        """Keeps its key from other attempts, for a deletion that may be late.

        `blind`: it has no condition at all; else it is the one that comes with a tombstone. Returns
        False if the key is not its own: another manager's, or already given back.
        """
        with self._mutex:
            own = self._by_key.get(attempt.key) is attempt
            if own:
                attempt.doubt(blind=blind)
            return own

    def forget(self, attempt: Attempt) -> None:
        """Removes an attempt of which nothing is stored any more."""
        self.waiter_watch.drop(attempt)
        self.holder_watch.drop(attempt)
        known = attempt.name, attempt.owner
        with self._mutex:
            self._pending.pop(attempt, None)
            self._early.pop(attempt, None)
            self._give_back(attempt, attempt.end())
            if self._attempts.get(known) is not attempt:
                return  # it was removed before, and its key may be another's by now
            del self._attempts[known]
            if self._by_key.get(attempt.key) is attempt:  # and not another manager's
                del self._by_key[attempt.key]
                # What may still arrive for this key must not meet another attempt.
                attempt.queue.give_key(attempt.key, reusable=attempt.key_is_free)
                if not attempt.queue.in_use:
                    self.holder_watch.unwatch(attempt.queue)

    def ended(self, name: str, owner: str) -> None:
        """Forgets the attempt of `owner`, whose lease another has adopted, and has it told."""
        attempt = self.known(name, owner)
        if attempt is not None:
            self.forget(attempt)
            self._ask_about([attempt])

    def _sweep(self) -> None:
        """Forgets attempts whose leases ran out: nobody releases those."""
        now = self._clock.now()
        for attempt in list(self._attempts.values()):
            lease = attempt.lease
            lapsed = attempt.until <= now and not attempt.released
            if lapsed and lease is not None and lease.expire_if_due(now):
                self.forget(attempt)
        self._sweep_at = len(self._attempts) + SWEEP

    def queue(self, name: str, kind: str, capacity: int, adopted: bool = False) -> Queue:
        """Returns the queue of a lock, as this manager uses it."""
        queue = self._queues.get((name, kind, capacity, adopted))
        if queue is None:
            if len(self._queues) >= self._drop_queues_at:
                self._queues = {key: one for key, one in self._queues.items() if one.in_use}
                # Twice as many, so that a crowd of queues in use is not searched for each new one.
                self._drop_queues_at = max(QUEUES, 2 * len(self._queues))
            queue = Queue(self._naming, name, kind, capacity, self._session, self._numbers, adopted)
            self._queues[name, kind, capacity, adopted] = queue
        return queue

    # Releases that the store has still to be told of.

    def postpone(self, attempt: Attempt) -> None:
        """Keeps a release that failed, to be sent when a lease was kept alive again."""
        with self._mutex:
            self._pending[attempt] = None

    def due(self, lease: Lease) -> list[Attempt]:
        """Returns the attempts to release once `lease` was kept alive.

        Those are all pending releases, and whatever on this lease nobody has renewed in time, though
        the lease itself lives on.
        """
        now = self._clock.now()
        with self._mutex:
            for attempt in [one for one in lease.attempts if one.lapse(now)]:
                self._pending[attempt] = None
            return list(self._pending)

    def still_pending(self, attempts: Iterable[Attempt]) -> list[Attempt]:
        """Returns those of `attempts` of which the store has not been told."""
        with self._mutex:
            return [one for one in attempts if one in self._pending]

    # Transitions that concern more than the attempt itself.

    def enqueued(self, attempt: Attempt, revision: int) -> None:
        """Notes that a write of ours put `attempt` into the queue; it may have been woken already."""
        with self._mutex:
            attempt.enqueued(revision)
            early = self._early.pop(attempt, None)
        if early is not None:
            self.handed_over(*early)

    def granted(
        self,
        attempt: Attempt,
        lease: Lease,
        revision: int,
        since: float,
        slot: int | None = None,
    ) -> Granted | None:
        """Notes that a write of ours made `attempt` the holder; None if it was released meanwhile."""
        token = self._token_base + revision
        self.hang_on(attempt, lease)
        if not attempt.granted(token, revision, since, lease.sent + lease.ttl, slot):
            return None
        self.holder_watch.add(attempt)
        return Granted(token, lease.ttl, False, lease.sent, slot)

    def seen(self, attempt: Attempt, stored: StoredEntry) -> None:
        """Takes over what was read of the entry of `attempt`."""
        waiting = not attempt.token
        if attempt.seen(stored, self._token_base):
            if waiting and attempt.token:
                self.holder_watch.add(attempt)
            self._hang_on_stored(attempt, stored)

    def hang_on(self, attempt: Attempt, lease: Lease) -> None:
        """Puts `attempt` on `lease`; one of its own that it leaves may be used again."""
        self._give_back(attempt, attempt.hang_on(lease))

    def _hang_on_stored(self, attempt: Attempt, stored: StoredEntry) -> None:
        lease = attempt.lease
        if lease is None or lease.id != stored.kv.lease:
            self.hang_on(attempt, self._leases.named(stored.kv.lease, stored.entry.ttl))

    def _give_back(self, attempt: Attempt, left: Lease | None) -> None:
        if left is not None and left.kind == OWN and not attempt.doubtful:
            self._leases.give_back(left)

    # What is heard by watches, from any thread.

    def handed_over(self, wakeup: Wakeup, revision: int) -> None:
        """Notes that a release made one of ours the holder: it was our own, or the wake-up says so."""
        attempt = self._by_key.get(wakeup.key)
        if attempt is None or attempt.owner != wakeup.owner:
            return
        token = self._token_base + revision
        with self._mutex:
            granted = attempt.handed_over(
                token, revision, self._clock.wall(), wakeup.followers, wakeup.slot
            )
            if attempt.state == NEW:
                self._early[attempt] = wakeup, revision
        if granted:
            self.holder_watch.add(attempt)
            ttl = attempt.ticket.ttl
            attempt.ticket.tell(Granted(token, ttl, handed=True, slot=wakeup.slot))

    def _wakeups_started(self, revision: int) -> None:
        with self._mutex:
            attempts = list(self._attempts.values())
        for attempt in attempts:
            if 0 < attempt.created <= revision:
                self.waiter_watch.hint(attempt)

    def _keys_deleted(self, events: Sequence[Event]) -> None:
        for event in events:
            attempt = self._by_key.get(event.key.key)
            if attempt is None or not 0 < attempt.created < event.key.changed:
                continue  # an earlier attempt's
            if attempt.state == GRANTED:
                self._ask_about([attempt])
            elif attempt.state != RELEASED:
                self.waiter_watch.hint(attempt)

    def _ask_about_holders(self, queue: Queue) -> None:
        with self._mutex:
            ours = [self._by_key[key] for key in queue.in_use]
        self._ask_about([attempt for attempt in ours if attempt.token])

    def _ask_about(self, attempts: list[Attempt]) -> None:
        if self.ask_about is not None:
            self.ask_about([attempt.owner for attempt in attempts])
