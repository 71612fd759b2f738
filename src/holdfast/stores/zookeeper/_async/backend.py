"""`zookeeper://h1:2181,h2:2181,h3:2181/chroot`: the adapter to a ZooKeeper ensemble.

`attempts` works by itself, in the threads of its connections; a verb here calls it, and waits for the
result until its deadline. Requests that were not answered by then go on.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from .... import admission, checks
from ...._runtime.aio import Signal
from ....clock import system_clock
from ....entries import Claim
from ....errors import BackendUnavailable, LockError
from ....guarantees import Guarantees
from ....model import Busy, Granted, LockState, Outcome, Participant, Queued
from ..._async.contract import Backend, Ticket
from ...timing import TIMING_OPTIONS, Timing, timing_of
from ...urls import Target, merge_options
from .. import guarantees
from ..address import Address, address_of, require_kazoo
from ..names import Entry, Naming, decode_name, ordered_entries

TICK = 2.0
"""Seconds: ZooKeeper's tickTime, unless it was configured otherwise."""
SHOWN_AT_ONCE = 200
"""Locks whose queues `list` reads at once."""
CLOSE_LIMIT = 1.0
"""Seconds that `close` waits until the ensemble has closed our sessions."""
AUDIT_KEPT, AUDIT_SIZE = 200, 200_000
"""Forced releases that are kept on record, and characters: a znode has a megabyte at the most."""
OWNERS_RECORDED = 100
"""Holders of one lock that are named in such a record."""


def prepare(
    target: Target, namespace: str, options: dict[str, Any]
) -> tuple[Guarantees, Callable[[], Backend]]:
    """Checks everything that can be checked without opening; returns a function that opens."""
    known = {**TIMING_OPTIONS, "tick": TICK, "sasl": None}
    settings = merge_options(target, options, known)
    timing = timing_of(settings)
    tick = checks.ttl(settings["tick"], "tick")
    require_kazoo()
    address = address_of(target, settings["sasl"])
    naming = Naming(address.chroot, namespace)
    return guarantees.ZOOKEEPER, lambda: ZooKeeperBackend(address, naming, timing, tick)


class ZooKeeperBackend:
    """The backend of one manager."""

    guarantees = guarantees.ZOOKEEPER

    def __init__(
        self,
        address: Address,
        naming: Naming,
        timing: Timing,
        tick: float,
    ) -> None:
        from ..attempts import Attempts  # kazoo takes a tenth of a second to import

        self._address = address
        self._naming = naming
        self.clock = system_clock()
        self.heartbeat, self.claim_window = timing
        self._attempts = Attempts(address, naming, self.clock, timing.claim_window, tick)
        self._pid = os.getpid()

    @property
    def look(self) -> Callable[[Iterable[str]], None] | None:
        return self._attempts.on_doubt

    @look.setter
    def look(self, look: Callable[[Iterable[str]], None]) -> None:
        self._attempts.on_doubt = look

    async def open(self, deadline: float) -> None:
        try:
            await self._call(self._attempts.open, deadline=deadline)
        except BaseException:
            self._attempts.close(_ignore)  # the caller has no time left to wait for that
            raise

    async def acquire(self, ticket: Ticket, deadline: float) -> Granted | Queued | Busy:
        result: Granted | Queued | Busy = await self._call(
            self._attempts.acquire, ticket, deadline=deadline
        )
        return result

    async def renew(self, claims: Sequence[Claim], deadline: float) -> Sequence[Outcome]:
        outcomes: Sequence[Outcome] = await self._call(
            self._attempts.renew, claims, deadline=deadline
        )
        return outcomes

    async def release(self, name: str, owner: str, deadline: float) -> bool:
        freed: bool | None = await self._call(
            self._attempts.release, name, owner, deadline=deadline
        )
        if freed is not None:
            return freed
        # An attempt of another manager; but a caller that knows the owner may end its lease.
        entries, _ = await self._entries(name, deadline)
        holders = admission.admitted([entry.place for entry in entries])
        for number, entry in enumerate(entries):
            if entry.owner == owner:
                request = _requests().delete(self._path(name, entry))
                (reply,) = await self._send_all([request], deadline)
                return _present(name, reply) is not None and number < holders
        return False

    async def wait(self, ticket: Ticket, until: float | None) -> Granted | None:
        return await ticket.wait(self.clock, until)

    async def inspect(self, name: str, deadline: float) -> LockState:
        entries, zxid = await self._entries(name, deadline)
        (state,) = await self._states({name: entries}, deadline)
        return state if state.holders else state._replace(token=zxid)

    async def list(self, prefix: str, deadline: float) -> Sequence[LockState]:
        requests = _requests()
        _, locks = await self._send_all(
            [requests.sync(self._naming.root), requests.get_children(self._naming.locks)], deadline
        )
        if isinstance(locks, Exception) and not isinstance(locks, requests.NoNodeError):
            raise _reading_refused(self._naming.root, locks)
        children = [] if isinstance(locks, Exception) else locks[0]
        names = sorted(name for name in map(decode_name, children) if name.startswith(prefix))
        states: list[LockState] = []
        for start in range(0, len(names), SHOWN_AT_ONCE):
            batch = names[start : start + SHOWN_AT_ONCE]
            reads = [requests.get_children(self._naming.lock(name)) for name in batch]
            queues: dict[str, Sequence[Entry]] = {}
            for name, reply in zip(batch, await self._send_all(reads, deadline), strict=True):
                found = _present(name, reply)
                entries = ordered_entries(found[0]) if found is not None else []
                if entries:
                    queues[name] = entries
            states += await self._states(queues, deadline)
        return [state for state in states if state.holders or state.waiters]

    async def force_release(self, name: str, actor: str, deadline: float) -> bool:
        entries, _ = await self._entries(name, deadline)
        holders = entries[: admission.admitted([entry.place for entry in entries])]
        if not holders:
            return False
        await self._record_release(name, actor, [entry.owner for entry in holders], deadline)
        deletions = [_requests().delete(self._path(name, entry)) for entry in holders]
        replies = await self._send_all(deletions, deadline)
        deleted = [reply for reply in replies if _present(name, reply) is not None]
        return bool(deleted)

    async def tether(self, name: str, owner: str, deadline: float) -> int | None:
        return None

    async def close(self) -> None:
        if os.getpid() == self._pid:
            # What has not been closed by then ends by itself.
            await self._result(self._attempts.close, deadline=self.clock.now() + CLOSE_LIMIT)

    async def _call(self, verb: Callable[..., None], *args: Any, deadline: float) -> Any:
        """Calls a verb of `attempts` and returns its result; raises if there is none by `deadline`."""
        if os.getpid() != self._pid:
            raise BackendUnavailable(
                "this connection to ZooKeeper belongs to the process that has forked this one; call "
                "connect() here"
            )
        results = await self._result(verb, *args, deadline=deadline)
        if not results:
            failure = self._attempts.failure()
            self._attempts.try_other_servers()
            raise BackendUnavailable(
                f"ZooKeeper at {self._address} did not answer in time{failure and f' ({failure})'}; "
                "what was asked of it may still happen"
            )
        if isinstance(results[0], Exception):
            raise results[0]
        return results[0]

    async def _result(
        self, verb: Callable[..., None], *args: Any, deadline: float
    ) -> Sequence[Any]:
        """Returns the result of a verb of `attempts`; nothing if there is none by `deadline`."""
        signal = Signal(self.clock)
        results: list[Any] = []

        def on_result(result: Any) -> None:
            results.append(result)
            signal.set()

        verb(*args, on_result)
        while not results and await signal.wait(deadline):
            pass
        return results

    async def _send_all(self, requests: Sequence[Any], deadline: float) -> Sequence[Any]:
        """Returns the replies to requests that may be repeated; the error of one is its reply."""
        if not requests:
            return []
        session = self._attempts.any_session()
        replies: Sequence[Any] = await self._call(session.send_all, requests, deadline=deadline)
        if session.error is not None:
            raise session.error
        return replies

    def _path(self, name: str, entry: Entry) -> str:
        return f"{self._naming.lock(name)}/{entry.name}"

    async def _entries(self, name: str, deadline: float) -> tuple[Sequence[Entry], int]:
        """Returns the queue, and a zxid that no past grant exceeds and every later one will."""
        requests = _requests()
        lock = self._naming.lock(name)
        reads = [requests.get_children(lock), requests.get_children(self._naming.locks)]
        _, children, locks = await self._send_all([requests.sync(lock), *reads], deadline)
        found = _present(name, children)
        if found is not None:
            return ordered_entries(found[0]), found[1].pzxid
        # Nobody is in the queue, and perhaps nobody ever was: when did any lock's znode last come or
        # go?
        found = _present(name, locks)
        return [], 0 if found is None else found[1].pzxid

    async def _states(
        self, queues: dict[str, Sequence[Entry]], deadline: float
    ) -> Sequence[LockState]:
        """Returns locks as people see them; an entry that has gone meanwhile is left out."""
        requests = _requests()
        pairs = [(name, entry) for name, entries in queues.items() for entry in entries]
        reads = [requests.get_data(self._path(name, entry)) for name, entry in pairs]
        replies = await self._send_all(reads, deadline)
        data = {
            (name, entry.name): reply
            for (name, entry), reply in zip(pairs, replies, strict=True)
            if _present(name, reply) is not None
        }
        return [self._state(name, entries, data) for name, entries in queues.items()]

    def _state(
        self, name: str, entries: Sequence[Entry], data: dict[tuple[str, str], Any]
    ) -> LockState:
        from ..attempt import read_data

        admitted = admission.admitted([entry.place for entry in entries])
        holders: list[Participant] = []
        waiters: list[Participant] = []
        for number, entry in enumerate(entries):
            found = data.get((name, entry.name))
            if found is None:
                continue
            value, stat = found
            holds = number < admitted
            token, label = read_data(value, stat)
            ours = self._attempts.remaining_and_token(entry.owner) if holds else None
            remaining, known_token = ours or (entry.ttl, 0)
            participant = Participant(
                entry.owner,
                label,
                (known_token or token) if holds else 0,
                stat.mtime / 1000,
                remaining,
                entry.weight,
            )
            (holders if holds else waiters).append(participant)
        kind, capacity = (entries[0].kind, entries[0].capacity) if entries else ("lock", 1)
        token = max((holder.token for holder in holders), default=0)
        return LockState(name, tuple(holders), tuple(waiters), token, kind, capacity)

    async def _record_release(
        self, name: str, actor: str, owners: Sequence[str], deadline: float
    ) -> None:
        """Records a forced release in the audit znode; tries again if another client writes too."""
        requests = _requests()
        record = {"at": self.clock.wall(), "name": name, "actor": actor, "holders": len(owners)}
        line = json.dumps({**record, "owners": owners[:OWNERS_RECORDED]})
        while True:
            (found,) = await self._send_all([requests.get_data(self._naming.audit)], deadline)
            if isinstance(found, requests.NoNodeError):
                client = self._attempts.any_session().client
                create = requests.create(client, self._naming.audit, b"")
                (reply,) = await self._send_all([create], deadline)
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
            (reply,) = await self._send_all([write], deadline)
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
        raise _request_failed(name, reply)
    return reply


def _request_failed(name: str, error: Exception) -> LockError:
    from ..failures import request_failed

    return request_failed(name, error)


def _reading_refused(root: str, error: Exception) -> LockError:
    from ..failures import reading_refused

    return reading_refused(root, error)


def _not_recorded(name: str, error: Exception) -> LockError:
    cause = _request_failed(name, error)
    return type(cause)(
        f"{name!r} was not released by force, since that cannot be recorded: {cause}", name=name
    )


def _requests() -> Any:
    """Returns the module `requests`, which is not imported before it is needed: it imports kazoo."""
    from .. import requests

    return requests


def _ignore(result: Any) -> None:
    """Ignores a result that nobody waits for."""
