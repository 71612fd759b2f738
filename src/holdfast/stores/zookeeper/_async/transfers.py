"""Leases that are amended, detached and adopted: the verbs, as far as they have to be tried again.

The steps themselves are in `transfers` of the store; see there.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from math import ceil
from typing import TYPE_CHECKING, Any

from .... import admission
from ...._runtime.aio import Signal
from ....clock import Clock
from ....errors import BackendUnavailable, LockError
from ....model import GONE, Gone, Granted
from ....refusals import in_use_as
from ..._async.contract import Ticket
from ..names import Entry, Naming, parsed
from .elections import Elections
from .inspection import HAND_OVER, LOOK_AGAIN, Inspection

if TYPE_CHECKING:
    from ..attempts import Attempts

SWEEP_EVERY = 60.0
"""Seconds between two looks of a manager for detached entries that have ended."""
SWEPT_AT_ONCE = 200
"""The number of them that one look deletes; where it finds as many, the next detaching looks again."""


class Transfers:
    """The verbs that change who has a lease, and what it is."""

    def __init__(
        self,
        attempts: Attempts,
        inspection: Inspection,
        elections: Elections,
        naming: Naming,
        clock: Clock,
        call: Callable[..., Awaitable[Any]],
    ) -> None:
        self._attempts = attempts
        self._inspection = inspection
        self._elections = elections
        self._naming = naming
        self._clock = clock
        self._call = call
        self._swept_at = float("-inf")

    async def amend(
        self, name: str, owner: str, deadline: float, weight: int, text: str | None
    ) -> bool:
        amend = self._attempts.amend
        while True:
            record = None
            if text is not None and self._attempts.kind_of(name, owner) == "election":
                record = await self._elections.read(name, deadline)
            result = await self._call(amend, name, owner, weight, text, record, deadline=deadline)
            if isinstance(result, bool):
                return result
            await self._pause(name, deadline)

    async def detach(self, name: str, owner: str, ttl: float, deadline: float) -> bool:
        tried: set[int] = set()
        while True:
            ends = await self._inspection.server_time(name, deadline) + ceil(ttl * 1000)
            result = await self._call(self._attempts.detach, name, owner, ends, deadline=deadline)
            if result is False:
                result = await self._detach_unknown(name, owner, ends, tried, deadline)
            tried.add(ends)
            if isinstance(result, bool):
                break
            await self._create_parent(name, deadline)
            await self._pause(name, deadline)
        with suppress(LockError):  # somebody else will
            await self.sweep(deadline)
        return result

    async def _detach_unknown(
        self, name: str, owner: str, ends: int, tried: set[int], deadline: float
    ) -> Any:
        """Detaches an entry that is none of our attempts: not any more, or not of this manager.

        `tried` are the ends that earlier tries of the same call would have given it.
        """
        from .. import requests
        from ..attempt import read_data

        found = await self._find_holder(name, owner, deadline)
        if found is None:
            return False
        entry, data, stat = found
        if entry.ends in tried:
            return True
        token, _ = read_data(data, stat)
        if not token:
            return None  # it is about to become a holder
        to = entry.renamed(ends=ends)
        label = data[data.find(b"\n") :]
        lock_path = self._naming.lock(name)
        request = requests.move(
            self._attempts,
            f"{lock_path}/{entry.name}",
            b"%d" % token + label,
            f"{lock_path}/{to}",
            0,
            self._attempts.beside_detached(lock_path, to),
        )
        (reply,) = await self._inspection.send_all([request], deadline)
        _, error = requests.done(reply, None)
        if error is None:
            return True
        if isinstance(error, (requests.Conflict, requests.NoNodeError)):
            return None
        from ..failures import request_failed

        raise request_failed(name, error)

    async def adopt(self, ticket: Ticket, giver: str, deadline: float) -> Granted | Gone:
        until = min(self._clock.now() + HAND_OVER, deadline)
        while True:
            result = await self._adopt_once(ticket, giver, deadline)
            if isinstance(result, (Granted, Gone)):
                return result
            if result is None and self._clock.now() >= until:
                return GONE  # the giver was admitted, and did not take the lock
            await self._pause(ticket.name, deadline)

    async def _adopt_once(self, ticket: Ticket, giver: str, deadline: float) -> Any:
        from ..attempt import read_data

        name = ticket.name
        entry: Entry | None = None
        if not self._attempts.knows(ticket.owner):
            found = await self._find_holder(name, giver, deadline)
            if found is None:
                return GONE
            entry, data, stat = found
            present, wanted = (entry.kind, entry.capacity), (ticket.kind, ticket.capacity)
            if present != wanted or entry.weight != ticket.weight:
                raise in_use_as(name, ticket.owner, present, wanted)
            if not read_data(data, stat)[0]:
                return None
        record = None
        if ticket.kind == "election":
            record = await self._elections.read(name, deadline)
        result = await self._call(self._attempts.adopt, ticket, entry, record, deadline=deadline)
        if isinstance(result, Granted) and entry is not None and entry.ends:
            await self._inspection.drop_marker(entry, deadline)
        return result

    async def _find_holder(
        self, name: str, owner: str, deadline: float
    ) -> tuple[Entry, bytes, Any] | None:
        """Returns the entry of `owner`, if it is admitted, its data, and the facts about it."""
        entries, _ = await self._inspection.entries(name, deadline)
        holders = entries[: admission.admitted([entry.place for entry in entries])]
        for entry in holders:
            if entry.owner == owner:
                found = await self._inspection.read_entry(name, entry, deadline)
                return None if found is None else (entry, *found)
        return None

    async def _create_parent(self, name: str, deadline: float) -> None:
        """Creates the znode below which detached entries are noted, unless it is there."""
        from .. import requests

        request = requests.create(self._attempts, self._naming.detached, b"")
        (reply,) = await self._inspection.send_all([request], deadline)
        if isinstance(reply, Exception) and not isinstance(reply, requests.NodeExistsError):
            from ..failures import request_failed

            raise request_failed(name, reply)

    async def sweep(self, deadline: float) -> None:
        """Deletes detached entries that have ended, of any lock; not more often than is needed."""
        from .. import requests
        from ..attempt_table import removal

        if self._clock.now() < self._swept_at + SWEEP_EVERY:
            return
        self._swept_at = self._clock.now()
        send_all = self._inspection.send_all
        (reply,) = await send_all([requests.get_children(self._naming.detached)], deadline)
        if isinstance(reply, Exception) or not reply[0]:
            return
        now = await self._inspection.server_time("", deadline)
        ended = [child for child in reply[0] if 0 < _end_of(child) <= now][:SWEPT_AT_ONCE]
        markers = [f"{self._naming.detached}/{child}" for child in ended]
        replies = await send_all([requests.get_data(marker) for marker in markers], deadline)
        removals = []
        for found in replies:
            if not isinstance(found, Exception):
                lock_path, _, child = found[0].decode().rpartition("/")
                removals.append(removal(lock_path, parsed(child)))
        done = await send_all([*removals, *map(requests.delete, markers)], deadline)
        if len(ended) == SWEPT_AT_ONCE and not any(isinstance(one, Exception) for one in done):
            self._swept_at = float("-inf")  # there may be more, and they can be deleted

    async def _pause(self, name: str, deadline: float) -> None:
        """Waits for a moment before the next try; raises if there is no time for one."""
        now = self._clock.now()
        if now >= deadline:
            raise BackendUnavailable(
                f"ZooKeeper did not settle in time what was asked for {name!r}; it may still happen",
                name=name,
            )
        await Signal(self._clock).wait(min(now + LOOK_AGAIN, deadline))


def _end_of(child: str) -> int:
    """Returns the end that the name of a marker says; 0 if it is a foreign znode."""
    text = child.partition(",")[0]
    return int(text) if text.isascii() and text.isdecimal() else 0
