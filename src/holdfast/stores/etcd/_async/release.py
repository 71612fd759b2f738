"""How a lock of an etcd cluster is given back, and to whom it goes.

Where nobody was seen to wait, the key is deleted and the line looked at in the same step; if somebody
does wait, the lock is granted to the first in a second one. Where others were seen to wait, the line is
looked at first, and both are one step. That look may be stale: the grant has its own conditions. A lock
that was held so shortly that hardly anybody can have come meanwhile is just deleted, which is the
cheapest: who did come looks for itself, soon.
"""

from __future__ import annotations

from ....admission import admitted
from ....errors import LockError
from ..keys import Standing, behind, in_bytes, ring
from ..wire import messages
from ..wire.failures import Failure
from ..wire.messages import Transaction
from .attempt import Attempt
from .attempts import Roll
from .leases import GRAVES

GRAVE_TTL = 3600.0
"""Seconds for which a request that was given up is refused if it arrives after all."""
SHORTLY = 0.001
"""Seconds: less than joining a line takes."""
SEEN_AHEAD = 16
"""So many are read from a line at once; who is granted the lock is told of those behind it."""
TAIL = 0.5
"""Seconds for which the last of those is taken to be still waiting, by whoever joins again."""
HANDED_ON = 8
"""Of those who may share a lock, the one who goes lets in so many; the rest see that and follow."""


class Leaving:
    def __init__(self, roll: Roll) -> None:
        self._roll = roll
        self._calls = roll.calls
        self._clock = roll.clock

    async def leave(self, attempt: Attempt, deadline: float) -> bool:
        """Out of the line, and the lock to the next; True if it was held.

        Whatever happens, it is over: if the store cannot be told now, it is told before the lease
        that its key hangs on is kept alive again.
        """
        first = self._roll.leases.begin_leaving(attempt)
        try:
            freed, line = await self._out(attempt, first, deadline)
        except BaseException:
            if first:
                self._roll.leases.still_owed(attempt)
            raise
        if first:
            # Only now may another attempt have its key.
            self._roll.forget(attempt)
        if line:
            self._roll.want(attempt.line)
            await self.hand_on(line, deadline)
        return freed

    async def _out(
        self, attempt: Attempt, first: bool, deadline: float
    ) -> tuple[bool, list[Standing]]:
        """Whether it was held, and who is in line now and may have to be told."""
        if attempt.doubtful or not attempt.created:
            return await self._bury(attempt, deadline)
        if attempt.line.wanted:
            return await self._hand_over(attempt, deadline)
        if first and attempt.token and self._clock.now() < attempt.answered + SHORTLY:
            return await self._drop(attempt, deadline), []
        return await self._go(attempt, deadline)

    async def hand_on(self, line: list[Standing], deadline: float) -> None:
        """Grant the lock to whoever may have it now. Who is not reached from here asks by itself."""
        try:
            for _ in range(HANDED_ON):
                heir = _heir(line)
                if heir is None:
                    return
                # One at a time: grants of one transaction would share its revision, their token.
                await self._calls.txn(
                    messages.changed_at(heir.kv.key, heir.kv.changed)
                    + messages.then(*self._grant(heir, _behind(line, heir))),
                    deadline,
                )
                line = _with_granted(line, heir)
        except (LockError, Failure):
            return  # it was given back, and that is what was asked for

    async def _go(self, attempt: Attempt, deadline: float) -> tuple[bool, list[Standing]]:
        held = attempt.token > 0
        answer = await self._calls.txn(
            messages.created_at(attempt.key, attempt.created)
            + messages.then(messages.delete(attempt.key, tell=not held), attempt.line.look),
            deadline,
            attempt.doubt,
        )
        return self._gone(attempt, answer, held)

    async def _drop(self, attempt: Attempt, deadline: float) -> bool:
        """Nobody but us writes to this key; and if a try of this ends without an answer, nor do we."""
        request = attempt.slot.deletion
        answer = await self._calls.call(messages.DELETE, request, deadline, attempt.burn)
        there = messages.said_yes(answer) or messages.parse_deleted(answer) > 0
        return there or (attempt.burned and self._clock.now() < attempt.until)

    async def _bury(self, attempt: Attempt, deadline: float) -> tuple[bool, list[Standing]]:
        """A request of it may still be under way: if that arrives after this, it is refused."""
        attempt.burn()  # what deletes its key here has no condition
        grave = await self._roll.leases.shared(GRAVES, GRAVE_TTL, deadline)
        tomb = messages.put(self._roll.naming.left(attempt.owner), b"", grave.on)
        answer = await self._calls.txn(
            messages.then(tomb, messages.delete(attempt.key, tell=True), attempt.line.look),
            deadline,
        )
        attempt.doubtful = False
        return self._gone(attempt, answer._replace(results=answer.results[1:]), False)

    async def _hand_over(self, attempt: Attempt, deadline: float) -> tuple[bool, list[Standing]]:
        line = attempt.line
        # Of those whom the bell named the first counts here; the others are told to it as they are.
        others = self._roll.line_of(map(behind, attempt.behind[:1]))
        follow = list(attempt.behind[1:])
        if not others:
            most = SEEN_AHEAD if attempt.capacity == 1 else line.enough and line.enough + 1
            request = messages.range_of(line.start, line.end, most, stale=True)
            found = await self._calls.range(request, deadline)
            others = [one for one in self._roll.line_of(found.keys) if not attempt.is_at(one)]
            follow = []
        heir = _heir(others)
        if heir is None:
            if not others:
                self._roll.unwant(line)
            return await self._go(attempt, deadline)
        follow = follow or _behind(others, heir)
        held = attempt.token > 0
        mine = messages.created_at(attempt.key, attempt.created)
        out = messages.delete(attempt.key, tell=not held)
        answer = await self._calls.txn(
            mine
            + messages.changed_at(heir.kv.key, heir.kv.changed)
            + messages.then(out, *self._grant(heir, follow))
            + messages.otherwise(messages.nested(mine, messages.then(out, line.look))),
            deadline,
            attempt.doubt,
            brief=held,
        )
        if not answer.succeeded:
            inner = answer.results[0]
            assert isinstance(inner, Transaction)
            return self._gone(attempt, inner, held)
        if follow:
            last = behind(follow[-1])
            line.tail = messages.changed_at(last.key, last.changed), self._clock.now() + TAIL
        freed = held or self._gone(attempt, answer, held)[0]
        return freed, [] if attempt.capacity == 1 else _with_granted(others, heir)

    def _gone(
        self, attempt: Attempt, answer: Transaction, held: bool
    ) -> tuple[bool, list[Standing]]:
        """What the answer to a deletion says: whether it was held, and who is in line now."""
        if not answer.succeeded:
            # Already gone. If an earlier try of ours did it, whose answer was lost, it was ours.
            return held and attempt.doubtful and self._clock.now() < attempt.until, []
        deleted, *rest = answer.results
        assert not isinstance(deleted, Transaction)
        before = self._roll.line_of(deleted)
        freed = held or any(attempt.is_at(one) and one.place.granted for one in before)
        return freed, self._roll.line_of(messages.held_keys(rest))

    def _grant(self, heir: Standing, follow: list[bytes]) -> tuple[bytes, bytes]:
        """Make it the holder, and ring the bell of its manager: it, and who stands behind it."""
        granted = heir.entry.granted(self._clock.wall()).encode()
        bell = self._roll.naming.bell_of(heir.kv.key)
        return (
            messages.put(heir.kv.key, granted),
            messages.put(bell, ring(heir, follow), messages.on_lease(heir.kv.lease)),
        )


def _behind(line: list[Standing], heir: Standing) -> list[bytes]:
    """Only where there is one holder does the next in line stay the next in line."""
    return [in_bytes(one) for one in line[line.index(heir) + 1 :]] if heir.capacity == 1 else []


def _heir(line: list[Standing]) -> Standing | None:
    """The first in line who may hold the lock and does not."""
    for one in line[: admitted([one.place for one in line])]:
        if not one.place.granted:
            return one
    return None


def _with_granted(line: list[Standing], heir: Standing) -> list[Standing]:
    granted = heir._replace(entry=heir.entry.granted(0.0))
    return [granted if one is heir else one for one in line]
