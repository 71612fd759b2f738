"""Locks as people see them: who holds and who waits, and the release by force with its record."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from .... import admission
from ...._runtime.aio import Pieces, Signal
from ....clock import Clock
from ....errors import LockError
from ....model import LockState, Participant
from ....refusals import token_not_raised
from ..names import NO_SLOT, Entry, Naming, decode_name, ordered_entries

if TYPE_CHECKING:
    from ..attempts import Attempts

SHOWN_AT_ONCE = 500
"""Locks whose queues `list` reads at once."""
HAND_OVER, LOOK_AGAIN = 0.3, 0.02
"""Seconds that a waiter who is admitted has to become a holder before it is shown as a waiter, and
seconds until we look again."""
AUDIT_KEPT, AUDIT_SIZE = 200, 200_000
"""Forced releases that are kept on record, and characters: a znode has a megabyte at the most."""
OWNERS_RECORDED = 100
"""Holders of one lock that are named in such a record."""


class Seen(NamedTuple):
    """A lock as it was read. `handed_over`: one who waits is admitted, and has not said so yet."""

    state: LockState
    handed_over: bool


class Inspection:
    """Reads of the queues of any locks, and what is done to the leases of others."""

    def __init__(
        self,
        attempts: Attempts,
        naming: Naming,
        clock: Clock,
        call: Callable[..., Awaitable[Any]],
    ) -> None:
        self._attempts = attempts
        self._naming = naming
        self._clock = clock
        self._call = call
        self._now = 0
        """The time on the servers' clock when a detached entry was last met: ms since the epoch."""

    async def inspect(self, name: str, deadline: float) -> LockState:
        until = min(self._clock.now() + HAND_OVER, deadline)
        while True:
            entries, zxid = await self.entries(name, deadline)
            (seen,) = await self._read({name: entries}, deadline)
            if not seen.handed_over or self._clock.now() >= until:
                return seen.state if seen.state.holders else seen.state._replace(token=zxid)
            await Signal(self._clock).wait(min(self._clock.now() + LOOK_AGAIN, until))

    async def list(self, prefix: str, deadline: float) -> Sequence[LockState]:
        requests = _requests()
        patience = deadline - self._clock.now()
        _, locks = await self.send_all(
            [requests.sync(self._naming.root), requests.get_children(self._naming.locks)], deadline
        )
        if isinstance(locks, Exception) and not isinstance(locks, requests.NoNodeError):
            raise _failures().reading_refused(self._naming.root, locks)
        children = [] if isinstance(locks, Exception) else locks[0]
        names: list[str] = []
        async for child in Pieces(children):
            name = decode_name(child)
            if name.startswith(prefix):
                names.append(name)
        names.sort()
        found: list[Seen] = []
        for start in range(0, len(names), SHOWN_AT_ONCE):
            deadline = self._clock.now() + patience  # it answers
            batch = names[start : start + SHOWN_AT_ONCE]
            names_of_children = _reads().names_of_children
            reads = [names_of_children(self._naming.lock(name)) async for name in Pieces(batch)]
            queues: dict[str, Sequence[Entry]] = {}
            for name, reply in zip(batch, await self._read_all(reads, deadline), strict=True):
                entries = ordered_entries(_present(name, reply) or ())
                if entries:
                    queues[name] = entries
            queues = await self._living(queues, deadline)
            found += await self._read(queues, deadline)
        until = self._clock.now() + HAND_OVER
        states = []
        for seen in found:
            state = seen.state
            if seen.handed_over and self._clock.now() < until:
                state = await self.inspect(state.name, deadline)
            states.append(state)
        return [state for state in states if state.holders or state.waiters]

    async def end(self, name: str, owner: str, deadline: float) -> tuple[bool, str]:
        """Ends the attempt of `owner`, whose manager is another.

        Returns whether it was a holder, and the kind of the lock.
        """
        entries, _ = await self.entries(name, deadline)
        holders = admission.admitted([entry.place for entry in entries])
        for number, entry in enumerate(entries):
            if entry.owner == owner:
                (reply,) = await self.send_all([self.removal(name, entry)], deadline)
                if entry.ends:
                    await self.drop_marker(entry, deadline)
                return _done(name, reply) and number < holders, entry.kind
        return False, ""

    async def force_release(
        self, name: str, actor: str, deadline: float, above: int
    ) -> tuple[bool, str]:
        """Ends all leases of a lock; returns whether there was one, and the kind of the lock."""
        if above:
            present = (await self._write(name, deadline)).mzxid
            if present < above:
                raise token_not_raised(name, above, present, "the ensemble's zxid")
        entries, _ = await self.entries(name, deadline)
        holders = entries[: admission.admitted([entry.place for entry in entries])]
        if not holders:
            return False, ""
        await self._record_release(name, actor, [entry.owner for entry in holders], deadline)
        deletions = [self.removal(name, entry) for entry in holders]
        # Behind the deletions: their managers learn of it, and find the entries gone.
        recall = _requests().set_data(self._naming.recall, name.encode())
        replies = await self.send_all([*deletions, recall], deadline)
        deleted = [reply for reply in replies[:-1] if _done(name, reply)]
        return bool(deleted), holders[0].kind

    async def send_all(self, requests: Sequence[Any], deadline: float) -> Sequence[Any]:
        """Returns the replies to requests that may be repeated; the error of one is its reply."""
        if not requests:
            return []
        replies: Sequence[Any] = await self._call(
            self._attempts.send_all, requests, deadline=deadline
        )
        return replies

    async def _read_all(self, reads: Sequence[Any], deadline: float) -> Sequence[Any]:
        """Returns the replies to reads, which few requests ask for; the error of one is its reply."""
        replies: list[Any] = []
        for some in await self.send_all(list(_reads().in_few(reads)), deadline):
            if isinstance(some, Exception):
                raise _failures().reading_refused(self._naming.root, some)
            replies += some
        return replies

    def removal(self, name: str, entry: Entry) -> Any:
        """Returns the request to delete an entry, and what belongs to it."""
        from ..attempt_table import removal

        return removal(self._naming.lock(name), entry)

    def _path(self, name: str, entry: Entry) -> str:
        return f"{self._naming.lock(name)}/{entry.name}"

    async def entries(self, name: str, deadline: float) -> tuple[Sequence[Entry], int]:
        """Returns the queue, and a zxid that no past grant exceeds and every later one will."""
        requests = _requests()
        lock = self._naming.lock(name)
        reads = [requests.get_children(lock), requests.get_children(self._naming.locks)]
        _, children, locks = await self.send_all([requests.sync(lock), *reads], deadline)
        found = _present(name, children)
        if found is not None:
            entries = await self.living(name, ordered_entries(found[0]), deadline)
            return entries, found[1].pzxid
        # Nobody is in the queue, and perhaps nobody ever was: when did any lock's znode last come or
        # go?
        found = _present(name, locks)
        return [], 0 if found is None else found[1].pzxid

    async def server_time(self, name: str, deadline: float) -> int:
        """Returns the time on the servers' clock, in ms since the epoch."""
        moment: int = (await self._write(name, deadline)).mtime
        return moment

    async def _write(self, name: str, deadline: float) -> Any:
        """Returns the facts about a write that changes nothing: the servers' time, and their zxid."""
        request = _requests().set_data(self._naming.sessions, b"")
        (reply,) = await self.send_all([request], deadline)
        if isinstance(reply, Exception):
            raise _failures().request_failed(name, reply)
        return reply

    async def living(self, name: str, entries: Sequence[Entry], deadline: float) -> Sequence[Entry]:
        """Returns the queue without detached entries that have ended, and deletes those."""
        return (await self._living({name: entries}, deadline))[name]

    def remaining(self, entry: Entry) -> float:
        """Returns the seconds that a holder has left unless it is renewed, as far as is known."""
        ours = self._attempts.remaining_and_token(entry.owner)
        return entry.remaining(self._now) if ours is None else ours[0]

    async def _living(
        self, queues: dict[str, Sequence[Entry]], deadline: float
    ) -> dict[str, Sequence[Entry]]:
        """Returns the queues without detached entries that have ended, and deletes those."""
        detached = [entry for entries in queues.values() for entry in entries if entry.ends]
        if not detached:
            return queues
        now = await self.server_time("", deadline)
        requests = _requests()
        deletions = []
        for name, entries in queues.items():
            for entry in entries:
                if entry.has_ended(now):
                    deletions.append(self.removal(name, entry))
                    deletions.append(requests.delete(self._naming.marker(entry)))
        await self.send_all(deletions, deadline)
        self._now = now
        return {
            name: [entry for entry in entries if not entry.has_ended(now)]
            for name, entries in queues.items()
        }

    async def drop_marker(self, entry: Entry, deadline: float) -> None:
        """Deletes what tells of a detached entry that is no more; if it fails, others will."""
        with suppress(LockError):
            await self.send_all([_requests().delete(self._naming.marker(entry))], deadline)

    async def read_entry(
        self, name: str, entry: Entry, deadline: float
    ) -> tuple[bytes, Any] | None:
        """Returns the data of an entry, and the facts about it; None if it has gone."""
        (reply,) = await self.send_all([_requests().get_data(self._path(name, entry))], deadline)
        found: tuple[bytes, Any] | None = _present(name, reply)
        return found

    async def _read(self, queues: dict[str, Sequence[Entry]], deadline: float) -> Sequence[Seen]:
        """Returns locks as people see them; an entry that has gone meanwhile is left out."""
        get_data = _requests().get_data
        reads: list[Any] = []
        async for name, entries in Pieces(queues.items()):
            lock = self._naming.lock(name)
            async for entry in Pieces(entries):
                reads.append(get_data(f"{lock}/{entry.name}"))
        replies = iter(await self._read_all(reads, deadline))
        return [
            await self._seen(name, entries, replies)
            async for name, entries in Pieces(queues.items())
        ]

    async def _seen(self, name: str, entries: Sequence[Entry], replies: Iterator[Any]) -> Seen:
        """Returns a lock as people see it; `replies` go on with the data of its entries."""
        from ..attempt import read_data

        admitted = admission.admitted([entry.place for entry in entries])
        holders: list[Participant] = []
        waiters: list[Participant] = []
        handed_over = False
        async for number, entry in Pieces(enumerate(entries)):
            found = _present(name, next(replies))
            if found is None:
                continue
            value, stat = found
            token, label = read_data(value, stat)
            ours = self._attempts.remaining_and_token(entry.owner) if number < admitted else None
            remaining, known_token = ours or (entry.remaining(self._now), 0)
            token = known_token or token
            holds = number < admitted and token > 0
            handed_over = handed_over or (number < admitted and not holds)
            participant = Participant(
                entry.owner,
                label,
                token if holds else 0,
                stat.mtime / 1000,
                remaining,
                entry.weight,
                entry.slot if holds and entry.slot != NO_SLOT else None,
                entry.ttl or None,
            )
            (holders if holds else waiters).append(participant)
        kind, capacity = (entries[0].kind, entries[0].capacity) if entries else ("lock", 1)
        token = max((holder.token for holder in holders), default=0)
        state = LockState(name, tuple(holders), tuple(waiters), token, kind, capacity)
        return Seen(state, handed_over)

    async def _record_release(
        self, name: str, actor: str, owners: Sequence[str], deadline: float
    ) -> None:
        """Records a forced release in the audit znode; tries again if another client writes too."""
        requests = _requests()
        record = {"at": self._clock.wall(), "name": name, "actor": actor, "holders": len(owners)}
        line = json.dumps({**record, "owners": owners[:OWNERS_RECORDED]})
        while True:
            (found,) = await self.send_all([requests.get_data(self._naming.audit)], deadline)
            if isinstance(found, requests.NoNodeError):
                create = requests.create(self._attempts, self._naming.audit, b"")
                (reply,) = await self.send_all([create], deadline)
                if isinstance(reply, Exception) and not isinstance(reply, requests.NodeExistsError):
                    raise _not_recorded(name, reply)
                continue
            if isinstance(found, Exception):
                raise _not_recorded(name, found)
            kept = found[0].decode(errors="replace").splitlines()
            if line in kept:
                return  # the reply to an earlier try was lost
            kept = [*kept[1 - AUDIT_KEPT :], line]
            while sum(map(len, kept)) > AUDIT_SIZE and len(kept) > 1:
                del kept[0]
            text = "\n".join(kept).encode()
            write = requests.set_data(self._naming.audit, text, found[1].version)
            (reply,) = await self.send_all([write], deadline)
            if not isinstance(reply, Exception):
                return
            if not isinstance(reply, requests.BadVersionError):
                raise _not_recorded(name, reply)


def _present(name: str, reply: Any) -> Any:
    """Returns the reply to a request about a znode; None if there is no such znode.

    Raises if ZooKeeper did not let us: then nobody knows.
    """
    if isinstance(reply, _requests().NoNodeError):
        return None
    if isinstance(reply, Exception):
        raise _failures().request_failed(name, reply)
    return reply


def _done(name: str, reply: Any) -> bool:
    """Returns whether an entry was deleted; False if there is no such entry any more."""
    requests = _requests()
    error = requests.done(reply, None)[1] if not isinstance(reply, Exception) else reply
    if error is None or isinstance(error, requests.NoNodeError):
        return error is None
    raise _failures().request_failed(name, error)


def _not_recorded(name: str, error: Exception) -> LockError:
    cause: LockError = _failures().request_failed(name, error)
    return type(cause)(
        f"{name!r} was not released by force, since that cannot be recorded: {cause}", name=name
    )


def _requests() -> Any:
    """Returns the module `requests`, which is not imported before it is needed: it imports kazoo."""
    from .. import requests

    return requests


def _reads() -> Any:
    """Returns the module `reads`, which imports kazoo, too."""
    from .. import reads

    return reads


def _failures() -> Any:
    """Returns the module `failures`, which imports kazoo, too."""
    from .. import failures

    return failures
