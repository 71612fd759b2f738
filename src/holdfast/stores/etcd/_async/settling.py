"""Ending the attempts that live on with a lease of an etcd cluster though nobody has them any more.

Those are releases that could not be sent, and what nobody has renewed in time. There may be thousands
of them at once, as when a service loses its clients. So waiters of mutexes, whose going lets nobody in,
leave a hundred at a time.
"""

from __future__ import annotations

from ....errors import LockError
from ..wire import messages
from ..wire.failures import Failure
from ..wire.messages import Transaction
from .attempt import Attempt
from .leases import Lease
from .parts import Parts
from .release import Releaser

AT_ONCE = 100
"""Operations in one transaction; etcd allows 128."""


class Settler:
    """The end of attempts of one manager that nobody has."""

    def __init__(self, parts: Parts, releaser: Releaser) -> None:
        _, self._naming, self._retrier, _, self._attempts, _ = parts
        self._releaser = releaser

    async def settle(self, lease: Lease, deadline: float) -> None:
        """Ends what would live on with `lease`, as far as there is time."""
        due = self._attempts.due(lease)
        waiters = [one for one in due if one.leaves_alone]
        try:
            for start in range(0, len(waiters), AT_ONCE):
                await self._leave_together(waiters[start : start + AT_ONCE], deadline)
            # The rest of them; and those that were found to have been granted the lock.
            for attempt in self._attempts.still_pending(due):
                await self._releaser.release(attempt, deadline)
        except (LockError, Failure):
            return  # next time; there is an end to what one call may take

    async def _leave_together(self, waiters: list[Attempt], deadline: float) -> None:
        """Takes waiters of mutexes out of their queues, in one step, unless they hold the lock by now.

        Each key is deleted if it is as we know it to be. So a request that arrives late, or twice,
        meets no later entry with that key. Those behind them look at their next heartbeat.
        """
        leave = [
            messages.nested(
                messages.changed_at(one.key, one.changed),
                messages.then(messages.delete(one.key)),
                messages.otherwise(messages.read(one.key)),
            )
            for one in waiters
        ]
        reply = await self._retrier.txn(messages.then(*leave), deadline)
        for attempt, result in zip(waiters, reply.results, strict=True):
            assert isinstance(result, Transaction)
            found = () if result.succeeded else messages.held_keys(result.results)
            if not any(attempt.owns(one) for one in self._naming.stored_entries(found)):
                self._attempts.forget(attempt)
