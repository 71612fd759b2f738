"""Renewing holders and waiters of an etcd cluster, many at once."""

from __future__ import annotations

from collections.abc import Sequence

from ....admission import blocker
from ....entries import Claim
from ....model import GONE, UNKNOWN, Outcome, Renewed, Waiting
from ..wire import messages
from .acquire import heartbeat_within
from .attempt import Attempt
from .grant import Granter
from .leases import FRESH
from .lookups import Lookups
from .parts import Parts
from .reading import Reading
from .release import Releaser, heirs, with_granted
from .settling import AT_ONCE

Members = list[tuple[int, Attempt, Claim]]
"""Attempts to renew, each with the number of its outcome."""


class Renewer:
    """The renewal of the attempts of one manager."""

    def __init__(self, parts: Parts, granter: Granter, releaser: Releaser) -> None:
        self._clock, self._naming, self._retrier, self._leases, self._attempts, _ = parts
        self._granter = granter
        self._releaser = releaser
        self._lookups = Lookups(self._clock, self._naming, self._retrier)

    async def find(self, name: str, owner: str, deadline: float) -> Attempt | None:
        """Returns the attempt of `owner`, which another manager may have made."""
        attempt = self._attempts.known(name, owner)
        if attempt is not None:
            return attempt
        stored = await self._lookups.find(name, owner, deadline)
        return None if stored is None else self._attempts.enrol_anothers(stored)

    async def renew(
        self, claims: Sequence[Claim], deadline: float
    ) -> tuple[list[Outcome], list[Attempt]]:
        """Returns an outcome for each claim, and the attempts that were found to have ended."""
        outcomes: list[Outcome] = [UNKNOWN] * len(claims)
        ours: Members = []
        unknown: list[tuple[int, Claim]] = []
        # All at once: whoever ends while others are renewed was ours, and is not looked for.
        for number, claim in enumerate(claims):
            attempt = self._attempts.known(claim.name, claim.owner)
            if attempt is None:
                unknown.append((number, claim))
            else:
                ours.append((number, attempt, claim))
        ended = await self._renew(ours, outcomes, deadline)
        others: Members = []
        pairs = [(claim.name, claim.owner) for _, claim in unknown]
        found = await self._lookups.find_all(pairs, deadline) if pairs else []
        for (number, claim), stored in zip(unknown, found, strict=True):
            if stored is None:
                outcomes[number] = GONE
            else:
                others.append((number, self._attempts.enrol_anothers(stored), claim))
        if others:
            ended += await self._renew(others, outcomes, deadline)
        return outcomes, ended

    async def _renew(
        self, members: Members, outcomes: list[Outcome], deadline: float
    ) -> list[Attempt]:
        """Notes the outcomes of `members`; returns the attempts that were found to have ended."""
        held: Members = []
        waiting: Members = []
        for number, attempt, claim in members:
            if attempt.detached:
                outcomes[number] = await self._look_at_detached(attempt, deadline)
            elif attempt.lease is None or attempt.released or not attempt.created:
                outcomes[number] = GONE
            else:
                (held if attempt.token else waiting).append((number, attempt, claim))
        try:
            for _, attempt, _ in waiting:  # which may be late, but does not lapse meanwhile
                attempt.attend(1)
            await self._renew_all(held, waiting, outcomes, deadline)
        finally:
            for _, attempt, _ in waiting:
                attempt.attend(-1)
        ended = [one for number, one, _ in (*held, *waiting) if outcomes[number] is GONE]
        return [attempt for attempt in ended if not attempt.released]

    async def _renew_all(
        self, held: Members, waiting: Members, outcomes: list[Outcome], deadline: float
    ) -> None:
        arrived = self._clock.now()
        leases = dict.fromkeys(attempt.lease for _, attempt, _ in (*held, *waiting))
        for lease in leases:
            if lease is not None:
                await self._leases.keep_alive(lease, deadline, lease.use / FRESH)
        self._attempts.waiter_watch.follow()
        for start in range(0, len(held), AT_ONCE):
            await self._renew_held(held[start : start + AT_ONCE], outcomes, deadline)
        for number, attempt, _ in waiting:
            outcomes[number] = await self._renew_waiting(attempt, arrived, deadline)
        for lease in leases:
            if lease is not None:  # last: nobody is renewed later because of those who are not
                await self._leases.settle(lease, deadline)

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

    async def _renew_waiting(self, attempt: Attempt, arrived: float, deadline: float) -> Outcome:
        """Returns how things stand with a waiter whose lease was just kept alive."""
        lease = attempt.lease
        if lease is None or lease.dead:
            return GONE
        waiter_watch = self._attempts.waiter_watch
        if waiter_watch.is_quiet(attempt):
            if not attempt.extend(lease.sent + lease.ttl):
                return GONE
            return Waiting(lease.use / 3, lease.sent)
        reading = await self._read(attempt, arrived, deadline)
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
        ahead = self._attempts.ahead(attempt, entries, blocking)
        waiter_watch.watch(attempt, entries, blocking, reading.revision + 1, ahead)
        waiter_watch.looked(attempt, reading.began)
        if not attempt.extend(lease.sent + lease.ttl):
            return GONE
        # They were seen when the queue was read, and not when the lease was kept alive.
        hold = max(0.0, reading.began - lease.sent) + reading.longest_hold
        return Waiting(heartbeat_within(hold, lease), lease.sent)

    async def _read(self, attempt: Attempt, arrived: float, deadline: float) -> Reading:
        """Returns the queue of a waiter, as it was after all that the waiter has heard of.

        It asks since `arrived`.
        """
        queue = attempt.queue

        async def read() -> Reading:
            reading, began = queue.reading, self._clock.now()
            if reading is None or not reading.serves(attempt, arrived, began):
                request = messages.range_of(queue.start, queue.end)
                found = await self._retrier.range(request, deadline)
                entries = self._naming.stored_entries(found.keys)
                reading = queue.reading = Reading(began, found.revision, entries)
            return reading

        return await self._retrier.in_turn(queue.looking, deadline, read)
