"""Showing the locks of an etcd cluster as they stand."""

from __future__ import annotations

from collections.abc import Sequence

from ...._runtime.aio import Pieces
from ....model import LockState, Participant
from ..keys import StoredEntry, in_order
from ..wire import messages
from .parts import Parts

Entries = list[StoredEntry]
People = list[Participant]


class Inspector:
    """The state of locks, read from the cluster, without entries whose leases have ended."""

    def __init__(self, parts: Parts, token_base: int) -> None:
        _, self._naming, self._retrier, self._leases, _, _ = parts
        self._token_base = token_base

    async def inspect(self, name: str, deadline: float) -> LockState:
        """Returns the state of one lock."""
        start = self._naming.queue(name)
        found = await self._retrier.range(messages.range_of(start, messages.after(start)), deadline)
        entries = self._naming.stored_entries(found.keys)
        (state,) = await self._states({name: entries}, found.revision, deadline)
        return state

    async def list(self, prefix: str, deadline: float) -> Sequence[LockState]:
        """Returns the state of every lock with a holder or a waiter whose name starts with `prefix`."""
        first, last = self._naming.queues(prefix)
        found = await self._retrier.range(messages.range_of(first, last), deadline)
        read: Entries = []
        async for kv in Pieces(found.keys):
            stored = self._naming.stored_entry(kv)
            if stored is not None:
                read.append(stored)
        queues: dict[str, Entries] = {}
        for stored in in_order(read):
            queues.setdefault(stored.name, []).append(stored)
        states = await self._states(queues, found.revision, deadline)
        return [state for state in states if state.holders or state.waiters]

    async def _states(
        self, queues: dict[str, Entries], revision: int, deadline: float
    ) -> Sequence[LockState]:
        remaining: dict[int, float] = {}
        states = []
        async for name in Pieces(sorted(queues)):
            holders: People = []
            waiters: People = []
            kind, capacity = "lock", 1
            async for one in Pieces(queues[name]):
                lease = one.kv.lease
                if lease not in remaining:
                    remaining[lease] = await self._leases.remaining(lease, deadline)
                if remaining[lease] > 0:
                    kind, capacity = one.kind, one.capacity
                    group = holders if one.place.granted else waiters
                    group.append(one.participant(self._token_base, remaining[lease]))
            token = max((holder.token for holder in holders), default=self._token_base + revision)
            states.append(LockState(name, tuple(holders), tuple(waiters), token, kind, capacity))
        return states
