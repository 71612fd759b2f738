"""`zookeeper://h1:2181,h2:2181,h3:2181/chroot`: the adapter to a ZooKeeper ensemble.

The store works by itself, in the threads of its connections; a verb here asks it, and waits for the
answer until its time is over. What was not answered by then goes on: see `zookeeper.store`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from .... import admission as lineup
from .... import checks
from ...._runtime.aio import Signal, Worker
from ....clock import system_clock
from ....entries import Claim
from ....errors import BackendUnavailable
from ....guarantees import Guarantees
from ....model import Busy, Granted, LockState, Outcome, Participant, Queued
from ..._async.contract import Backend, Ticket
from ...timing import TIMING_OPTIONS, Timing, timing_of
from ...urls import Target, merge_options
from .. import guarantees
from ..address import Address, address_of, require_kazoo
from ..names import Entry, Naming, in_line, read

TICK = 2.0
"""Seconds: ZooKeeper's tickTime, unless it was configured otherwise."""
SHOWN_AT_ONCE = 200
AUDIT_KEPT = 200


def prepare(
    target: Target, namespace: str, options: dict[str, Any]
) -> tuple[Guarantees, Callable[[], Backend]]:
    """Check everything that can be checked without opening; answers how to open."""
    known = {**TIMING_OPTIONS, "tick": TICK, "sasl": None}
    settings = merge_options(target, options, known)
    timing = timing_of(settings)
    tick = checks.ttl(settings["tick"], "tick")
    require_kazoo()
    address = address_of(target, settings["sasl"])
    naming = Naming(address.chroot, namespace)
    return guarantees.ZOOKEEPER, lambda: ZooKeeperBackend(address, naming, timing, tick)


class ZooKeeperBackend:
    guarantees = guarantees.ZOOKEEPER

    def __init__(
        self,
        address: Address,
        naming: Naming,
        timing: Timing,
        tick: float,
    ) -> None:
        from ..store import Store  # kazoo takes a tenth of a second to import

        self._address = address
        self._naming = naming
        self.clock = system_clock()
        self.heartbeat, self.claim_window = timing
        self._store = Store(address, naming, self.clock, timing.claim_window, tick)
        self._worker = Worker("holdfast-zookeeper")

    @property
    def look(self) -> Callable[[Iterable[str]], None] | None:
        return self._store.look

    @look.setter
    def look(self, look: Callable[[Iterable[str]], None]) -> None:
        self._store.look = look

    async def open(self, deadline: float) -> None:
        try:
            await self._asked(self._store.open, deadline=deadline)
        except BaseException:
            await self.close()
            raise

    async def acquire(self, ticket: Ticket, deadline: float) -> Granted | Queued | Busy:
        answer: Granted | Queued | Busy = await self._asked(
            self._store.acquire, ticket, deadline=deadline
        )
        return answer

    async def renew(self, claims: Sequence[Claim], deadline: float) -> Sequence[Outcome]:
        outcomes: Sequence[Outcome] = await self._asked(
            self._store.renew, claims, deadline=deadline
        )
        return outcomes

    async def release(self, name: str, owner: str, deadline: float) -> bool:
        freed: bool | None = await self._asked(self._store.release, name, owner, deadline=deadline)
        if freed is not None:
            return freed
        # Not asked for by us; but whoever knows the owner may end its lease.
        line, _ = await self._line(name, deadline)
        free = lineup.admitted([entry.place for entry in line])
        for number, entry in enumerate(line):
            if entry.owner == owner:
                (answer,) = await self._all([_requests().delete(self._path(name, entry))], deadline)
                return number < free and not isinstance(answer, Exception)
        return False

    async def wait(self, ticket: Ticket, until: float | None) -> Granted | None:
        return await ticket.wait(self.clock, until)

    async def inspect(self, name: str, deadline: float) -> LockState:
        line, zxid = await self._line(name, deadline)
        (state,) = await self._states({name: line}, deadline)
        return state if state.holders else state._replace(token=zxid)

    async def list(self, prefix: str, deadline: float) -> Sequence[LockState]:
        requests = _requests()
        asked = [requests.sync(self._naming.root), requests.get_children(self._naming.locks)]
        _, locks = await self._all(asked, deadline)
        written = [] if isinstance(locks, Exception) else locks[0]
        names = sorted(name for name in map(read, written) if name.startswith(prefix))
        states: list[LockState] = []
        for start in range(0, len(names), SHOWN_AT_ONCE):
            some = names[start : start + SHOWN_AT_ONCE]
            asked = [requests.get_children(self._naming.lock(name)) for name in some]
            lines: dict[str, Sequence[Entry]] = {}
            for name, children in zip(some, await self._all(asked, deadline), strict=True):
                line = [] if isinstance(children, Exception) else in_line(children[0])
                if line:
                    lines[name] = line
            states += await self._states(lines, deadline)
        return [state for state in states if state.holders or state.waiters]

    async def force_release(self, name: str, actor: str, deadline: float) -> bool:
        line, _ = await self._line(name, deadline)
        holders = line[: lineup.admitted([entry.place for entry in line])]
        if not holders:
            return False
        await self._note(name, actor, [entry.owner for entry in holders], deadline)
        asked = [_requests().delete(self._path(name, entry)) for entry in holders]
        answers = await self._all(asked, deadline)
        return any(not isinstance(answer, Exception) for answer in answers)

    async def tether(self, name: str, owner: str, deadline: float) -> int | None:
        return None

    async def close(self) -> None:
        for link in self._store.close():
            await self._worker.call(link.end)
        self._worker.close()

    # Their parts.

    async def _asked(self, verb: Callable[..., None], *args: Any, deadline: float) -> Any:
        """Ask the store, and wait for what it tells, but not longer than `deadline`."""
        signal = Signal(self.clock)
        told: list[Any] = []

        def done(result: Any) -> None:
            told.append(result)
            signal.set()

        verb(*args, done)
        while not told:
            if not await signal.wait(deadline):
                self._store.overdue()
                raise BackendUnavailable(
                    f"ZooKeeper at {self._address} did not answer in time; what was asked of it may "
                    "still happen"
                )
        if isinstance(told[0], Exception):
            raise told[0]
        return told[0]

    async def _all(self, requests: Sequence[Any], deadline: float) -> Sequence[Any]:
        """The answers to requests that may be repeated; an error of one is its answer."""
        if not requests:
            return []
        link = self._store.any_link()
        told = await self._asked(lambda done: link.send_all(requests, done), deadline=deadline)
        answers: Sequence[Any] = told
        if link.trouble is not None:
            raise link.trouble
        return answers

    def _path(self, name: str, entry: Entry) -> str:
        return f"{self._naming.lock(name)}/{entry.name}"

    async def _line(self, name: str, deadline: float) -> tuple[Sequence[Entry], int]:
        """Who is in the queue, and a zxid that no past grant exceeds and every later one will."""
        requests = _requests()
        lock = self._naming.lock(name)
        asked = [requests.sync(lock), requests.get_children(lock)]
        _, children, above = await self._all(
            [*asked, requests.get_children(self._naming.locks)], deadline
        )
        if not isinstance(children, Exception):
            return in_line(children[0]), children[1].pzxid
        # Nobody is in it, and perhaps nobody ever was: when did any lock's node last come or go?
        return [], 0 if isinstance(above, Exception) else above[1].pzxid

    async def _states(
        self, lines: dict[str, Sequence[Entry]], deadline: float
    ) -> Sequence[LockState]:
        """Locks as people see them; an entry that has gone meanwhile is left out."""
        requests = _requests()
        pairs = [(name, entry) for name, line in lines.items() for entry in line]
        asked = [requests.get_data(self._path(name, entry)) for name, entry in pairs]
        answers = await self._all(asked, deadline)
        data = {
            (name, entry.name): answer
            for (name, entry), answer in zip(pairs, answers, strict=True)
            if not isinstance(answer, Exception)
        }
        return [self._state(name, line, data) for name, line in lines.items()]

    def _state(
        self, name: str, line: Sequence[Entry], data: dict[tuple[str, str], Any]
    ) -> LockState:
        from ..node import read_data

        free = lineup.admitted([entry.place for entry in line])
        holders: list[Participant] = []
        waiters: list[Participant] = []
        for number, entry in enumerate(line):
            found = data.get((name, entry.name))
            if found is None:
                continue
            value, stat = found
            holds = number < free
            token, label = read_data(value, stat)
            left, known = (self._store.holds(entry.owner) if holds else None) or (entry.ttl, 0)
            participant = Participant(
                entry.owner,
                label,
                (known or token) if holds else 0,
                stat.mtime / 1000,
                left,
                entry.weight,
            )
            (holders if holds else waiters).append(participant)
        kind, capacity = (line[0].kind, line[0].capacity) if line else ("lock", 1)
        token = max((holder.token for holder in holders), default=0)
        return LockState(name, tuple(holders), tuple(waiters), token, kind, capacity)

    async def _note(self, name: str, actor: str, owners: Sequence[str], deadline: float) -> None:
        """Into the record of what was released by force; tried again if somebody else writes too."""
        requests = _requests()
        line = json.dumps({"at": self.clock.wall(), "name": name, "actor": actor, "owners": owners})
        while True:
            (found,) = await self._all([requests.get_data(self._naming.audit)], deadline)
            if isinstance(found, requests.NoNodeError):
                client = self._store.any_link().client
                await self._all([requests.create(client, self._naming.audit, b"")], deadline)
                continue
            if isinstance(found, Exception):
                raise BackendUnavailable(
                    f"{name!r} was not released by force: that cannot be recorded "
                    f"({type(found).__name__})",
                    name=name,
                )
            kept = found[0].decode().splitlines()[1 - AUDIT_KEPT :]
            text = "\n".join([*kept, line]).encode()
            write = requests.set_data(self._naming.audit, text, found[1].version)
            (answer,) = await self._all([write], deadline)
            if not isinstance(answer, requests.BadVersionError):
                return


def _requests() -> Any:
    from .. import client

    return client
