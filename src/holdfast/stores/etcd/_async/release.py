"""Giving a lock of an etcd cluster back, and granting it to the next waiter.

Where nobody was seen to wait, the key is deleted and the queue read in the same step; if there is a
waiter, the lock is granted to it in a second one. Where others were seen to wait, the queue is
read first, and both are one step. That read may be stale: the grant has its own conditions.
"""

from __future__ import annotations

from ....admission import admitted
from ....errors import LockError
from ..keys import GRANTED, StoredEntry, Wakeup, decode_follower, encode_follower
from ..wire import messages
from ..wire.failures import Failure
from ..wire.messages import Transaction
from .attempt import Attempt
from .leases import TOMBSTONES, Lease
from .parts import Parts

TOMBSTONE_TTL = 3600.0
"""Seconds for which a request that was given up is refused if it arrives after all."""
SHORTLY = 0.001
"""Seconds: less than joining a queue takes. A lock that was granted at once, in an empty queue, and
given back so soon is just deleted, which is the cheapest; a waiter that came meanwhile finds it free at
its first look. `etcd_uncontended` is 1.09 times the raw calls with this, and 1.17 without."""
READ_AHEAD = 16
"""The number of entries that a release reads of a contended mutex; the heir is told of the rest."""
HANDED_ON = 8
"""The number of waiters that one release lets in, of those who may share a lock; the rest see that and
follow."""
AT_ONCE = 50
"""Holders released by force in one transaction; etcd allows 128 operations."""

Freed = tuple[bool, list[StoredEntry]]
"""True if the lock was held; and the queue as it is now, if the lock may have to be handed on."""


class Releaser:
    """The release of attempts of one manager."""

    def __init__(self, parts: Parts) -> None:
        self._clock, self._naming, self._retrier, self._leases, self._attempts = parts

    async def release(self, attempt: Attempt, deadline: float) -> bool:
        """Takes `attempt` out of the queue and hands the lock on; returns True if it was held.

        Whatever happens, it is released: if the store cannot be told now, it is told before the lease
        that its key is on is kept alive again.
        """
        first = attempt.give_up()
        try:
            freed, queue = await self._leave_queue(attempt, first, deadline)
        except BaseException:
            self._attempts.postpone(attempt)
            raise
        self._attempts.forget(attempt)
        if queue:
            attempt.queue.saw_waiters()
            await self.hand_on(queue, deadline)
        return freed

    async def settle(self, lease: Lease, deadline: float) -> None:
        """Releases, before `lease` is kept alive, the attempts that nobody has any more."""
        for attempt in self._attempts.due(lease):
            try:
                await self.release(attempt, deadline)
            except (LockError, Failure):
                return  # next time; there is an end to what one call may take

    async def hand_on(self, queue: list[StoredEntry], deadline: float) -> None:
        """Grants the lock to those who may have it now. A waiter that is not reached asks by itself."""
        try:
            for _ in range(HANDED_ON):
                heir = _heir(queue)
                if heir is None:
                    return
                # One at a time: grants of one transaction would share its revision, their token.
                await self._retrier.txn(
                    messages.changed_at(heir.kv.key, heir.kv.changed)
                    + messages.then(*self._grant(heir, _followers(queue, heir))),
                    deadline,
                )
                queue = _with_granted(queue, heir)
        except (LockError, Failure):
            return  # it was given back, and that is what was asked for

    async def force_release(self, name: str, actor: str, deadline: float) -> bool:
        """Deletes the keys of all who hold the lock now; returns True if there were any."""
        start = self._naming.queue(name)
        freed = False
        doomed: set[tuple[str, int]] | None = None
        while True:
            found = await self._retrier.range(
                messages.range_of(start, messages.after(start)), deadline
            )
            queue = self._naming.stored_entries(found.keys)
            holders = [one for one in queue if one.entry.state == GRANTED]
            if doomed is None:
                doomed = {(one.entry.owner, one.kv.created) for one in holders}
            # A waiter that is granted the lock because those have gone is not meant.
            holders = [one for one in holders if (one.entry.owner, one.kv.created) in doomed]
            holders = holders[:AT_ONCE]
            if not holders:
                break
            owners = ",".join(one.entry.owner for one in holders)
            record = f"{self._clock.wall():.3f} {found.revision} {owners} {actor}".encode()
            reply = await self._retrier.txn(
                b"".join(messages.changed_at(one.kv.key, one.kv.changed) for one in holders)
                + messages.then(
                    messages.put_for_ever(self._naming.forced(name), record),
                    *(messages.delete(one.kv.key) for one in holders),
                ),
                deadline,
            )
            freed = freed or reply.succeeded
        await self.hand_on(queue, deadline)
        return freed

    # The ways out of the queue.

    async def _leave_queue(self, attempt: Attempt, first: bool, deadline: float) -> Freed:
        attempts = self._attempts
        if attempts.known(attempt.name, attempt.owner) is not attempt:
            return False, []  # another release of it was quicker
        if attempt.doubtful or not attempt.created:
            if attempts.reserve_key(attempt, blind=False):
                return await self._leave_tombstone(attempt, deadline)
        elif attempt.queue.contended:
            return await self._hand_over(attempt, deadline)
        elif first and self._is_short(attempt) and attempts.reserve_key(attempt, blind=True):
            return await self._delete_blindly(attempt, deadline), []
        return await self._delete(attempt, deadline)

    def _is_short(self, attempt: Attempt) -> bool:
        """Returns True if the lock was granted at once, and so shortly ago that nobody waits."""
        at_once = attempt.token > 0 and attempt.created == attempt.changed
        return at_once and self._attempts.holder_watch.is_recent(attempt, SHORTLY)

    async def _delete(self, attempt: Attempt, deadline: float) -> Freed:
        held = attempt.token > 0
        reply = await self._retrier.txn(
            messages.created_at(attempt.key, attempt.created)
            + messages.then(messages.delete(attempt.key, tell=not held), attempt.queue.read),
            deadline,
            attempt.doubt,
        )
        return self._deleted(attempt, reply, held)

    async def _delete_blindly(self, attempt: Attempt, deadline: float) -> bool:
        """Deletes its key, which is reserved, without a condition."""
        unanswered = 0

        def lost() -> None:
            nonlocal unanswered
            unanswered += 1

        request = messages.delete_one(attempt.key)
        reply = await self._retrier.call(messages.DELETE, request, deadline, lost)
        if not unanswered:
            attempt.deleted_blindly()
        there = messages.parse_deleted(reply) > 0
        return there or (unanswered > 0 and self._clock.now() < attempt.until)

    async def _leave_tombstone(self, attempt: Attempt, deadline: float) -> Freed:
        """Deletes its key, and has a request of this attempt that arrives later refused.

        A second delivery of this very request finds the tombstone, and deletes nothing: once there is
        an answer, another attempt may have the key.
        """
        tombstone = self._naming.tombstone(attempt.owner)
        delete = messages.delete(attempt.key, tell=True)
        while True:
            lease = await self._leases.shared(TOMBSTONES, TOMBSTONE_TTL, deadline)
            try:
                reply = await self._retrier.txn(
                    messages.absent(tombstone)
                    + messages.then(
                        messages.put(tombstone, b"", lease.on), delete, attempt.queue.read
                    )
                    + messages.otherwise(messages.read(attempt.key), attempt.queue.read),
                    deadline,
                )
            except Failure:  # the lease was taken away: a wipe, or a person
                await self._leases.keep_alive(lease, deadline)
                continue
            break
        attempt.bury()
        results = reply.results[1:] if reply.succeeded else reply.results
        return self._deleted(attempt, reply._replace(succeeded=True, results=results), False)

    async def _hand_over(self, attempt: Attempt, deadline: float) -> Freed:
        """Deletes its key and grants the lock to the next waiter, in one step."""
        queue = attempt.queue
        others, followers = self._told_by_wakeup(attempt)
        if not others:
            others = await self._read_others(attempt, deadline)
        heir = _heir(others)
        if heir is None:
            if not others:
                queue.saw_nobody()
            return await self._delete(attempt, deadline)
        followers = followers or _followers(others, heir)
        held = attempt.token > 0
        is_mine = messages.created_at(attempt.key, attempt.created)
        delete = messages.delete(attempt.key, tell=not held)
        try:
            reply = await self._retrier.txn(
                is_mine
                + messages.changed_at(heir.kv.key, heir.kv.changed)
                + messages.then(delete, *self._grant(heir, followers))
                + messages.otherwise(messages.nested(is_mine, messages.then(delete, queue.read))),
                deadline,
                attempt.doubt,
            )
        except Failure:  # the heir's lease is gone
            return await self._delete(attempt, deadline)
        if not reply.succeeded:
            inner = reply.results[0]
            assert isinstance(inner, Transaction)
            return self._deleted(attempt, inner, held)
        freed = held or self._deleted(attempt, reply, held)[0]
        return freed, [] if attempt.capacity == 1 else _with_granted(others, heir)

    def _told_by_wakeup(self, attempt: Attempt) -> tuple[list[StoredEntry], list[bytes]]:
        """Returns the next waiter, and its followers, if a wake-up has named them."""
        first, rest = attempt.followers[:1], list(attempt.followers[1:])
        return self._naming.stored_entries(map(decode_follower, first)), rest

    async def _read_others(self, attempt: Attempt, deadline: float) -> list[StoredEntry]:
        queue = attempt.queue
        most = READ_AHEAD if queue.capacity == 1 else queue.enough and queue.enough + 1
        request = messages.range_of(queue.start, queue.end, most, stale=True)
        found = await self._retrier.range(request, deadline)
        return [one for one in self._naming.stored_entries(found.keys) if not attempt.owns(one)]

    def _deleted(self, attempt: Attempt, reply: Transaction, held: bool) -> Freed:
        """Reads the reply to a deletion."""
        if not reply.succeeded:
            # Already gone. If an earlier try of ours did it, whose reply was lost, it was ours.
            return held and attempt.doubtful and self._clock.now() < attempt.until, []
        deleted, *rest = reply.results
        assert not isinstance(deleted, Transaction)
        before = self._naming.stored_entries(deleted)
        freed = held or any(attempt.owns(one) and one.place.granted for one in before)
        return freed, self._naming.stored_entries(messages.held_keys(rest))

    def _grant(self, heir: StoredEntry, followers: list[bytes]) -> tuple[bytes, bytes]:
        """Returns the operations that make a waiter the holder, and wake its manager."""
        granted = heir.entry.granted(self._clock.wall()).encode()
        key = self._naming.wakeup_for(heir.kv.key)
        wakeup = Wakeup(heir.entry.owner, heir.kv.key, followers).encode()
        return (
            messages.put(heir.kv.key, granted),
            messages.put(key, wakeup, messages.on_lease(heir.kv.lease)),
        )


def _heir(queue: list[StoredEntry]) -> StoredEntry | None:
    """Returns the first entry that may hold the lock and does not."""
    for one in queue[: admitted([one.place for one in queue])]:
        if not one.place.granted:
            return one
    return None


def _followers(queue: list[StoredEntry], heir: StoredEntry) -> list[bytes]:
    """Returns the entries behind `heir`, if there is one holder at a time: only then is the next one
    the next to hold the lock."""
    if heir.capacity != 1:
        return []
    return [encode_follower(one) for one in queue[queue.index(heir) + 1 :]]


def _with_granted(queue: list[StoredEntry], heir: StoredEntry) -> list[StoredEntry]:
    granted = heir._replace(entry=heir.entry.granted(0.0))
    return [granted if one is heir else one for one in queue]
