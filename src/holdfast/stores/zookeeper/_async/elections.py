"""Elections: what is due at one, its changes, and its observers. The rules are in `changes`."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ....clock import Clock
from ....entries import CHANGES_KEPT_FOR
from ....errors import LockError
from ....model import Observation
from ..._async.contract import OBSERVED_FOR, Ticket
from ..names import Entry, Naming, decode_name, ordered_entries
from .inspection import Inspection

if TYPE_CHECKING:
    from ..attempts import Attempts
    from ..changes import Record

SWEEP_EVERY = 3600.0
"""Seconds between two looks of a manager for records of elections that are long over."""
SWEPT_AT_ONCE = 200


class Elections:
    """The records of elections, and their observers."""

    def __init__(
        self,
        attempts: Attempts,
        inspection: Inspection,
        naming: Naming,
        clock: Clock,
        call: Callable[..., Awaitable[Any]],
    ) -> None:
        self._attempts = attempts
        self._inspection = inspection
        self._naming = naming
        self._clock = clock
        self._call = call
        self._swept_at = float("-inf")

    async def read(self, name: str, deadline: float) -> Record:
        """Returns the record of an election, which is created if there is none."""
        from .. import requests
        from ..changes import read_record

        path = self._naming.election(name)
        while True:
            reads = [requests.sync(path), requests.get_data(path)]
            _, reply = await self._inspection.send_all(reads, deadline)
            if not isinstance(reply, requests.NoNodeError):
                return read_record(*self._checked(name, reply))
            await self._create(name, deadline)

    async def settle(self, name: str, deadline: float) -> None:
        """Writes down that nobody leads, if that is so. If it fails, whoever comes next does it."""
        with suppress(LockError):
            while True:
                record = await self.read(name, deadline)
                entries, _ = await self._inspection.entries(name, deadline)
                if await self._is_settled(name, record, entries, deadline):
                    break
            await self._sweep(deadline)

    async def observe(self, ticket: Ticket, after: int, deadline: float) -> Observation:
        from .. import requests
        from ..changes import read_record

        name = ticket.name
        path, lock = self._naming.election(name), self._naming.lock(name)
        while True:
            found, queue = await self._read(ticket, path, [requests.get_children(lock)], deadline)
            if isinstance(found, requests.NoNodeError):
                await self._create(name, deadline)
                continue
            record = read_record(*self._checked(name, found))
            names = [] if isinstance(queue, requests.NoNodeError) else self._checked(name, queue)[0]
            entries = await self._inspection.living(name, ordered_entries(names), deadline)
            if not await self._is_settled(name, record, entries, deadline):
                continue
            if not entries:
                break
            (head,) = await self._read(ticket, f"{lock}/{entries[0].name}", [], deadline)
            if not isinstance(head, requests.NoNodeError):
                self._checked(name, head)
                break
        await self._sweep(deadline)
        changes = [change for change in record.changes if change.number > after]
        leads = entries and record.led_by(entries[0].owner) is not None
        remaining = self._inspection.remaining(entries[0]) if leads else 0.0
        return Observation(tuple(changes if after else changes[-1:]), remaining)

    async def unobserve(self, ticket: Ticket) -> None:
        self._attempts.observers.forget(ticket.owner)

    async def _read(
        self, ticket: Ticket, path: str, beside: Sequence[Any], deadline: float
    ) -> Sequence[Any]:
        """Returns the replies to a read that is watched for `ticket`, and to those `beside` it."""
        read = self._attempts.observers.read
        replies: Sequence[Any] = await self._call(
            read, ticket, OBSERVED_FOR, path, beside, deadline=deadline
        )
        return replies

    async def _is_settled(
        self, name: str, record: Record, entries: Sequence[Entry], deadline: float
    ) -> bool:
        """Returns True if nothing is due at the election; otherwise does it, or finds it done."""
        from .. import requests
        from ..changes import with_nobody

        if entries or not record.changes or not record.changes[-1].owner:
            return True
        data = with_nobody(record)
        request = requests.set_data(self._naming.election(name), data, record.version)
        (reply,) = await self._inspection.send_all([request], deadline)
        if not isinstance(reply, (requests.BadVersionError, requests.NoNodeError)):
            self._checked(name, reply)
        return False

    async def _create(self, name: str, deadline: float) -> None:
        """Creates a record in which nothing is noted, unless there is one."""
        from .. import requests

        paths = (self._naming.elections, self._naming.election(name))
        creations = [requests.create(self._attempts, path, b"") for path in paths]
        _, reply = await self._inspection.send_all(creations, deadline)
        if not isinstance(reply, requests.NodeExistsError):
            self._checked(name, reply)

    def _checked(self, name: str, reply: Any) -> Any:
        """Returns the reply; raises if it is an error."""
        if isinstance(reply, Exception):
            from ..failures import request_failed

            raise request_failed(name, reply)
        return reply

    async def _sweep(self, deadline: float) -> None:
        """Deletes records of elections whose last change is long ago, and at which nobody is."""
        if self._clock.now() < self._swept_at + SWEEP_EVERY:
            return
        self._swept_at = self._clock.now()
        with suppress(LockError):
            await self.sweep(deadline)

    async def sweep(self, deadline: float) -> None:
        from .. import requests

        send_all = self._inspection.send_all
        (found,) = await send_all([requests.get_children(self._naming.elections)], deadline)
        if isinstance(found, Exception) or not found[0]:
            return
        children = random.sample(found[0], min(SWEPT_AT_ONCE, len(found[0])))
        names = [decode_name(child) for child in children]
        records = [requests.get_children(self._naming.election(name)) for name in names]
        locks = [requests.get_children(self._naming.lock(name)) for name in names]
        replies = await send_all([*records, *locks], deadline)
        oldest = await self._inspection.server_time("", deadline) - CHANGES_KEPT_FOR * 1000
        deletions = []
        for name, record, lock in zip(names, replies, replies[len(names) :], strict=False):
            empty = isinstance(lock, requests.NoNodeError) or (
                not isinstance(lock, Exception) and not lock[0]
            )
            if empty and not isinstance(record, Exception) and record[1].mtime < oldest:
                deletions.append(requests.delete(self._naming.election(name), record[1].version))
        await send_all(deletions, deadline)
