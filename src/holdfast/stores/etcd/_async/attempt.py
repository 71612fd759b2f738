"""One attempt at a lock, as the manager that made it knows it: the owner of all its state.

| state | how it comes about | what is at the store |
|---|---|---|
| new | made for a ticket | nothing; or, if *doubtful*, perhaps a key |
| queued | `enqueued`, `seen` | its key, as a waiter |
| granted | `granted`, `handed_over`, `seen` | its key, as the holder; its token is a revision |
| released | `give_up`, `lapse` | its key, until a release or its lease's end has removed that |

Released is final, and wins over whatever is heard later. All transitions are made under one mutex,
which the attempts of a manager share: several threads, and the wake-ups, work on one attempt at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from threading import RLock

from ..._async.contract import Terms, Ticket
from ..keys import Entry, StoredEntry
from .leases import Lease
from .queue import Queue

NEW, QUEUED, GRANTED, RELEASED = "new", "queued", "granted", "released"


class Attempt:
    """The state of one attempt. Others read it; only its own methods change it."""

    __slots__ = (
        "_mutex",
        "attended",
        "blind",
        "buried",
        "changed",
        "created",
        "detached",
        "doubts",
        "followers",
        "key",
        "label",
        "lease",
        "queue",
        "released",
        "since",
        "slot",
        "stirred",
        "ticket",
        "token",
        "ttl",
        "until",
        "weight",
    )

    def __init__(self, ticket: Ticket, queue: Queue, key: bytes, mutex: RLock) -> None:
        self._mutex = mutex
        self.ticket = ticket
        self.queue = queue
        self.key = key
        self.ttl = ticket.terms.ttl
        """The TTL that was last asked for."""
        self.weight = ticket.terms.weight
        self.label = ticket.terms.label
        """Its weight and its label, which may be amended."""
        self.detached = False
        """True once it is on an etcd lease that nobody keeps alive."""
        self.slot: int | None = None
        """The slot of a holder of a semaphore."""
        self.created = 0
        """The revision that created its key; 0 until that is known."""
        self.changed = 0
        """The revision that last changed its key, as far as is known."""
        self.token = 0
        """The token of its grant; 0 without one."""
        self.followers: Sequence[bytes] = ()
        """The waiters behind it when it was handed the lock, as the wake-up said."""
        self.since = 0.0
        """The time of the grant, in seconds since the epoch."""
        self.lease: Lease | None = None
        """The lease that its key is on."""
        self.until = inf
        """The end, on our own clock, of what the store was last known to say of it."""
        self.doubts = 0
        """The number of requests for its key that may still arrive, since they have no reply."""
        self.blind = False
        """True if one of those deletes the key whoever has it."""
        self.buried = False
        """True if it has a tombstone, by which its other requests are refused."""
        self.released = False
        self.attended = 0
        """The number of callers in this process that wait for it, or renew it as a waiter: they release
        it in the end."""
        self.stirred = -inf
        """The time at which something was last heard that calls for a read of the queue."""

    @classmethod
    def of_another(
        cls, stored: StoredEntry, queue: Queue, token_base: int, mutex: RLock
    ) -> Attempt:
        """Returns an attempt that another manager made, from its entry."""
        kv, entry, name, kind, capacity = stored
        terms = Terms(name, entry.ttl, entry.label, entry.weight, capacity, kind)
        attempt = cls(Ticket(terms, entry.owner, queue=False), queue, kv.key, mutex)
        attempt.seen(stored, token_base)
        return attempt

    @property
    def terms(self) -> Terms:
        return self.ticket.terms

    @property
    def name(self) -> str:
        return self.ticket.terms.name

    @property
    def owner(self) -> str:
        return self.ticket.owner

    @property
    def kind(self) -> str:
        return self.ticket.terms.kind

    @property
    def capacity(self) -> int:
        return self.ticket.terms.capacity

    @property
    def state(self) -> str:
        if self.released:
            return RELEASED
        if self.token:
            return GRANTED
        return QUEUED if self.created else NEW

    @property
    def doubtful(self) -> bool:
        """True if a request for its key may still arrive. Nobody else may have that key then."""
        return self.doubts > 0

    @property
    def key_is_free(self) -> bool:
        """True if nothing that may still arrive could meet another attempt with this key."""
        return not self.detached and (not self.doubtful or (self.buried and not self.blind))

    @property
    def leaves_alone(self) -> bool:
        """True for a waiter of a mutex, of which all is known: when it goes, it lets nobody in."""
        return self.capacity == 1 and self.created > 0 and not self.token and not self.doubtful

    @property
    def may_be_stored(self) -> bool:
        """True if the store may have a key of this attempt."""
        return self.created > 0 or self.doubtful

    def entry(self, state: str, since: float, token: int = 0) -> Entry:
        """Returns the entry to write to its key."""
        return Entry(state, self.owner, self.weight, self.ttl, since, token, self.label)

    def held_as(self) -> tuple[Entry, int]:
        """Returns the entry of a holder as it is known to be, and the revision that left it so."""
        with self._mutex:
            entry = self.entry(GRANTED, self.since, self.token)
            return entry._replace(detached=self.detached, slot=self.slot), self.changed

    def owns(self, stored: StoredEntry) -> bool:
        """Returns True if `stored` is the entry of this attempt."""
        return stored.kv.key == self.key and stored.entry.owner == self.owner

    def matches(self, ticket: Ticket) -> bool:
        """Returns True if `ticket` asks for what this attempt asks for."""
        mine, asked = self.terms, ticket.terms
        return mine is asked or (
            (mine.weight, mine.capacity, mine.kind) == (asked.weight, asked.capacity, asked.kind)
        )

    # The ways to become queued or granted.

    def enqueued(self, revision: int) -> None:
        """Notes that a write of ours created its key, as a waiter."""
        with self._mutex:
            self.created = self.changed = revision

    def granted(
        self, token: int, revision: int, since: float, until: float, slot: int | None = None
    ) -> bool:
        """Notes that a write of ours made it the holder; returns False if it was released meanwhile."""
        with self._mutex:
            self.created = self.created or revision
            self.changed = revision
            self.token = token
            self.slot = slot
            self.since = since
            if not self.released:
                self.until = until
            return not self.released

    def handed_over(
        self,
        token: int,
        revision: int,
        since: float,
        followers: Sequence[bytes],
        slot: int | None = None,
    ) -> bool:
        """Notes that another's release made it the holder; returns False if that is not about it now.

        While it is not known what came of a request, the entry of an earlier try may have been granted
        the lock, ended with its lease, and been made anew: that grant is not this entry's.
        """
        with self._mutex:
            if self.state != QUEUED or revision <= self.created:
                return False
            self.changed = revision
            self.token = token
            self.since = since
            self.followers = followers
            self.slot = slot
            return True

    def seen(self, stored: StoredEntry, token_base: int) -> bool:
        """Takes over what was read of its entry, unless more is known; returns True if it is that."""
        kv = stored.kv
        with self._mutex:
            self.created = kv.created
            if kv.changed < self.changed:
                return False
            if not self.token:
                self.token = stored.token(token_base)
                self.since = stored.entry.since
            self.changed = kv.changed
            self._take_over(stored.entry)
            return True

    def waits_at(self) -> int | None:
        """Returns the revision on which a waiter's own write has to rest; None if it was granted."""
        with self._mutex:
            return None if self.token else self.changed

    # What a granted or queued attempt goes through.

    def rewritten(self, entry: Entry, revision: int) -> None:
        """Notes that a write of ours changed the entry of a holder, or moved it to another lease."""
        with self._mutex:
            self.changed = revision
            self._take_over(entry)

    def _take_over(self, entry: Entry) -> None:
        self.weight = entry.weight
        self.label = entry.label
        self.detached = entry.detached
        self.slot = entry.slot

    def hang_on(self, lease: Lease) -> Lease | None:
        """Notes the lease that its key is on, or is to be; returns the one that it has left.

        While it is being released, too: what it is found on then may be revoked with it.
        """
        with self._mutex:
            if self.lease is lease or (self.released and self.lease is None):
                return None  # or nothing of it is stored any more
            left = self._leave_lease()
            lease.attempts.add(self)
            self.lease = lease
            return left

    def ask_for(self, ttl: float) -> None:
        """Notes the TTL that is wanted from now on."""
        with self._mutex:
            self.ttl = ttl

    def stir(self, now: float) -> None:
        """Notes that something was heard: only a read of the queue that begins later says more."""
        with self._mutex:
            self.stirred = max(self.stirred, now)

    def attend(self, callers: int) -> None:
        """Notes that so many more callers attend to it; -1 that one does not any more."""
        with self._mutex:
            self.attended += callers

    def take_key(self, key: bytes) -> None:
        """Gives a new attempt another key."""
        with self._mutex:
            self.key = key

    def extend(self, until: float) -> bool:
        """Notes how long it lasts now; returns False if it was released meanwhile."""
        with self._mutex:
            if not self.released:
                self.until = until
            return not self.released

    # The ways to be released. Either `extend` or one of these has the last word.

    def give_up(self) -> bool:
        """Releases it, as the engine asked; returns False if it was released before."""
        with self._mutex:
            first = not self.released
            self.released = True
            return first

    def lapse(self, now: float) -> bool:
        """Releases it if nobody has renewed it in time, nor attends to it; returns True if it did."""
        with self._mutex:
            due = not self.released and self.attended <= 0 and self.until <= now
            self.released = self.released or due
            return due

    def end(self) -> Lease | None:
        """Notes that nothing of it is stored; returns the lease that it has left."""
        with self._mutex:
            return self._leave_lease()

    def doubt(self, *, blind: bool = False) -> None:
        """Notes that a request for its key may still arrive; a `blind` one has no condition."""
        with self._mutex:
            self.doubts += 1
            self.blind = self.blind or blind

    def deleted_blindly(self) -> None:
        """Takes one doubt back: the blind deletion was answered, and was sent once."""
        with self._mutex:
            self.doubts -= 1
            self.blind = False

    def bury(self) -> None:
        """Notes that it has a tombstone."""
        with self._mutex:
            self.buried = True

    def _leave_lease(self) -> Lease | None:
        left, self.lease = self.lease, None
        if left is not None:
            left.attempts.discard(self)
        return left
