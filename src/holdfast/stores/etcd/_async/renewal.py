"""Renewing holders and waiters of an etcd cluster, many at once."""

from __future__ import annotations

from collections.abc import Sequence

from ....admission import admitted, blocker
from ....entries import Claim
from ....model import GONE, UNKNOWN, Outcome, Renewed, Waiting
from ..keys import StoredEntry
from ..wire import messages
from .acquire import heartbeat_within, longest_hold
from .attempt import Attempt
from .grant import Granter
from .leases import FRESH
from .parts import Parts
from .release import Releaser, heirs, with_granted

AT_ONCE = 100
"""Operations in one transaction; etcd allows 128."""

Members = list[tuple[int, Attempt, Claim]]
"""Attempts to renew, each with the number of its outcome."""


class Reading:
    """A queue as it was read for a renewal, with all that its waiters have in common: there may be
    thousands, and each would otherwise go through the whole queue."""

    __slots__ = ("_positions", "admitted", "entries", "longest_hold", "places", "revision")

    def __init__(self, revision: int, entries: list[StoredEntry]) -> None:
        self.revision = revision
        self.entries = entries
        self.places = [one.place for one in entries]
        self.admitted = admitted(self.places)
        """The number of entries, from the first on, that may hold the lock."""
        self.longest_hold = longest_hold(entries)
        self._positions = {
            (one.kv.key, one.entry.owner): number for number, one in enumerate(entries)
        }

    def position(self, attempt: Attempt) -> int | None:
        """Returns the index of the entry of `attempt`; None if it has none."""
        return self._positions.get((attempt.key, attempt.owner))


Reads = dict[str, Reading]
"""The queues that were read for one renewal, by the lock's name."""


class Renewer:
    """The renewal of the attempts of one manager."""

    def __init__(self, parts: Parts, granter: Granter, releaser: Releaser) -> None:
        self._clock, self._naming, self._retrier, self._leases, self._attempts, _ = parts
        self._granter = granter
        self._releaser = releaser

    async def find(self, name: str, owner: str, deadline: float) -> Attempt | None:
        """Returns the attempt of `owner`, which another manager may have made."""
        attempt = self._attempts.known(name, owner)
        if attempt is not None:
            return attempt
        start = self._naming.queue(name)
        found = await self._retrier.range(messages.range_of(start, messages.after(start)), deadline)
        for stored in self._naming.stored_entries(found.keys):
            if stored.entry.owner == owner:
                return self._attempts.enrol_anothers(stored)
        return None

    async def renew(
        self, claims: Sequence[Claim], deadline: float
    ) -> tuple[list[Outcome], list[Attempt]]:
        """Returns an outcome for each claim, and the attempts that were found to have ended."""
        outcomes: list[Outcome] = [UNKNOWN] * len(claims)
        held: Members = []
        waiting: Members = []
        for number, claim in enumerate(claims):
            attempt = await self.find(claim.name, claim.owner, deadline)
            if attempt is not None and attempt.detached:
                outcomes[number] = await self._look_at_detached(attempt, deadline)
            elif (
                attempt is None or attempt.lease is None or attempt.released or not attempt.created
            ):
                outcomes[number] = GONE
            else:
                (held if attempt.token else waiting).append((number, attempt, claim))
        for lease in dict.fromkeys(attempt.lease for _, attempt, _ in (*held, *waiting)):
            if lease is not None:
                await self._leases.keep_alive(lease, deadline, lease.use / FRESH)
        self._attempts.waiter_watch.follow()
        for start in range(0, len(held), AT_ONCE):
            await self._renew_held(held[start : start + AT_ONCE], outcomes, deadline)
        by_name: dict[str, list[Attempt]] = {}
        for _, attempt, _ in waiting:
            by_name.setdefault(attempt.name, []).append(attempt)
        reads: Reads = {}
        for number, attempt, _ in waiting:
            together = by_name[attempt.name]
            outcomes[number] = await self._renew_waiting(attempt, together, reads, deadline)
        ended = [one for number, one, _ in (*held, *waiting) if outcomes[number] is GONE]
        return outcomes, [attempt for attempt in ended if not attempt.released]

    async def _look_at_detached(self, attempt: Attempt, deadline: float) -> Outcome:
        """Returns how long a detached lease still lasts: nobody keeps it alive."""
        lease, now = attempt.lease, self._clock.now()
        remaining = 0.0 if lease is None else await self._leases.remaining(lease.id, deadline)
        self._attempts.forget(attempt)
        if remaining > 1.0:
            return Renewed(attempt.token, remaining - 1.0, now, attempt.slot)
        return UNKNOWN if remaining else GONE

    async def _renew_held(self, members: Members, outcomes: list[Outcome], deadline: float) -> None:
        """Looks at the keys, too: the leases alone do not tell of a forced release."""
        attempts = [attempt for _, attempt, _ in members]
        as_they_were = [messages.created_at(one.key, one.created) for one in attempts]
        # With a read in it, since a transaction of conditions alone asks no majority.
        any_read = messages.otherwise(messages.read(attempts[0].key))
        reply = await self._retrier.txn(b"".join(as_they_were) + any_read, deadline)
        gone = set() if reply.succeeded else await self._without_keys(attempts, deadline)
        for number, attempt, claim in members:
            lease = attempt.lease
            if lease is None or lease.dead or attempt in gone:
                outcomes[number] = GONE
            else:
                self._attempts.holder_watch.watch(attempt.queue, reply.revision + 1)
                outcomes[number] = await self._granter.confirm(attempt, claim.ttl, deadline)

    async def _without_keys(self, attempts: list[Attempt], deadline: float) -> set[Attempt]:
        """Returns those of `attempts` whose keys are not there any more."""
        request = messages.then(*[messages.read(one.key) for one in attempts])
        reply = await self._retrier.txn(request, deadline)
        there = {(kv.key, kv.created) for kv in messages.held_keys(reply.results)}
        return {one for one in attempts if (one.key, one.created) not in there}

    async def _renew_waiting(
        self, attempt: Attempt, together: list[Attempt], reads: Reads, deadline: float
    ) -> Outcome:
        """Returns how things stand with a waiter whose lease was just kept alive.

        `together` are all waiters of the lock that are renewed now: one read serves them.
        """
        lease = attempt.lease
        if lease is None or lease.dead:
            return GONE
        waiter_watch = self._attempts.waiter_watch
        if waiter_watch.is_quiet(attempt):
            if not attempt.extend(lease.sent + lease.ttl):
                return GONE
            return Waiting(lease.use / 3, lease.sent)
        if attempt.name not in reads:
            for one in together:
                if not waiter_watch.is_quiet(one):
                    waiter_watch.begin_look(one)
            queue = attempt.queue
            found = await self._retrier.range(messages.range_of(queue.start, queue.end), deadline)
            entries = self._naming.stored_entries(found.keys)
            reads[attempt.name] = Reading(found.revision, entries)
        reading = reads[attempt.name]
        entries, mine = reading.entries, reading.position(attempt)
        if mine is None:
            return GONE
        self._attempts.seen(attempt, entries[mine])
        if attempt.token:
            return await self._granter.confirm(attempt, attempt.ttl, deadline)
        if mine < reading.admitted:
            outcome = await self._granter.take(attempt, deadline, entries)
            if attempt.owns(heirs(entries)[0]):
                # Whoever held the lock has died. Those who may share it need not find out one by one.
                rest = with_granted(entries, entries[mine], attempt.slot)
                await self._releaser.hand_on(rest, deadline)
            return outcome
        blocking = blocker(reading.places, mine)
        waiter_watch.watch(attempt, entries, blocking, reading.revision + 1)
        waiter_watch.end_look(attempt)
        if not attempt.extend(lease.sent + lease.ttl):
            return GONE
        return Waiting(heartbeat_within(reading.longest_hold, lease), lease.sent)
