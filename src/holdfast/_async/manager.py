"""`Locks`: the manager that `connect()` returns, and that makes every lock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Literal, Unpack

from .. import checks
from ..events import Listener
from ..model import LockState
from ..options import (
    FenceMark,
    LockKeywords,
    LockOptions,
    options_of,
    refuse_incorrect,
    refuse_unfair,
)
from .election import Election, Term
from .lock import Lock, ReadWriteLock
from .opening import Opening
from .reentrant import ReentrantHold, ReentrantLock
from .request import Request
from .session import Session

_RW_CAPACITY = checks.MAX_CAPACITY


class Locks:
    """Locks on one store. Threads, or the tasks of one event loop, may share it."""

    def __init__(self, opening: Opening, namespace: str, unnamed: bool) -> None:
        self.url = opening.url
        """The store's URL, without credentials."""
        self.namespace = namespace
        self.guarantees = opening.guarantees
        self._opening = opening
        self._unnamed = unnamed
        """The user named no store, and the embedded one was taken."""

    def __repr__(self) -> str:
        return f"<Locks {self.url} namespace={self.namespace!r}>"

    # The kinds of lock.

    def lock(self, name: str, **options: Unpack[LockKeywords]) -> Lock:
        """Returns a mutex. All kinds of lock have these options:

        - `ttl=30.0`: seconds for which the store keeps a lease after it was last renewed;
        - `timeout=None`: how long `with` and `acquire()` wait; None is for ever;
        - `fair=None`: `True` insists on first come, first served; `False` lets newcomers take a
          free lock;
        - `renew=True`: `False` lets the lease end after `ttl`;
        - `purpose="efficiency"`: `"correctness"` needs `protects` and a store that can carry it;
        - `protects=None`: the fence at the resource;
        - `max_hold=None`: seconds after which the lease ends whatever happens.
        """
        return Lock(self._opening, self._request(name, options))

    def rlock(self, name: str, **options: Unpack[LockKeywords]) -> Lock:
        """Returns a mutex that the task or thread which holds it may take again.

        It is the same lease each time, with the same token, and is released as often. `lock(name)`
        is not part of that: it waits until all are released. Options as for `lock`.
        """
        request = self._request(name, options, hold_type=ReentrantHold)
        return ReentrantLock(self._opening, request)

    def election(
        self,
        name: str,
        value: str | None = None,
        *,
        ttl: float = 30.0,
        purpose: Literal["efficiency", "correctness"] = "efficiency",
        protects: FenceMark | None = None,
    ) -> Election:
        """Returns an election: one leader at a time, whose `value` everybody may see.

        `purpose` and `protects` as for `lock`: a leader's term has a token and a `guard`, too.
        """
        if value is not None:
            checks.label(value)
        options: LockKeywords = {"ttl": ttl, "purpose": purpose, "protects": protects}
        request = self._request(name, options, label_text=value, lease_type=Term)
        return Election(self._opening, request)

    def semaphore(self, name: str, *, permits: int, **options: Unpack[LockKeywords]) -> Lock:
        """Returns a lock that `permits` may hold at once. Their tokens are unique, not in any order.

        So no fence can order all their writes. Those of one slot it can: give each `lease.slot` a
        resource of its own, and `purpose="correctness"`. Refused where a store has no slots.
        Options as for `lock`.
        """
        capacity = checks.permits(permits)
        request = self._request(name, options, kind="semaphore", capacity=capacity)
        return Lock(self._opening, request)

    def rwlock(self, name: str, **options: Unpack[LockKeywords]) -> ReadWriteLock:
        """Returns a lock for many readers or one writer: `.read()` and `.write()` are locks.

        With a fence, both are remembered there: no writer from before a reader writes under it. Options
        as for `lock`.
        """

        def side(weight: int) -> Lock:
            request = self._request(
                name, options, kind="rwlock", weight=weight, capacity=_RW_CAPACITY
            )
            return Lock(self._opening, request)

        return ReadWriteLock(name, side(1), side(_RW_CAPACITY))

    def _request(
        self, name: str, keywords: LockKeywords, *, kind: str = "lock", **rest: Any
    ) -> Request:
        checks.lock_name(name)
        options: LockOptions = options_of(name, keywords)
        refuse_incorrect(name, options, self.guarantees, self._unnamed, kind == "semaphore")
        refuse_unfair(name, options, self.guarantees)
        return Request(name, options, kind=kind, **rest)

    # Looking and breaking.

    async def inspect(self, name: str) -> LockState:
        """Returns who holds this lock and who waits for it, as the store sees it."""
        checks.lock_name(name)
        return await self._opening.ask(
            f"asked about {name!r}",
            name,
            lambda session, deadline: session.backend.inspect(name, deadline),
        )

    async def list(self, prefix: str = "") -> Sequence[LockState]:
        """Returns every lock that is held or waited for and whose name starts with `prefix`."""
        checks.prefix(prefix)
        return await self._opening.ask(
            "asked for its locks",
            None,
            lambda session, deadline: session.backend.list(prefix, deadline),
        )

    async def force_release(self, name: str) -> bool:
        """Takes the lock away from its holders: True if there was one. It is audited.

        A holder finds out at its next renewal; until then only a fence stops its writes, for which
        the next token is higher than every one before.
        """
        checks.lock_name(name)

        async def force(session: Session, deadline: float) -> bool:
            label = str(session.label)
            forced = await session.backend.force_release(name, label, deadline)
            session.tell("forced", name, "", 0, 0.0, f"by {label}")
            return forced

        return await self._opening.ask(f"made to free {name!r}", name, force)

    def on_event(self, listener: Listener) -> Callable[[], None]:
        """Calls `listener(event)` for what happens to leases from now on; returns how to stop."""
        return self._opening.listeners.add(listener)

    # The session behind it.

    @property
    def _live(self) -> Session | None:
        return self._opening.live

    async def _session(self) -> Session:
        return await self._opening.session()

    async def close(self) -> None:
        """Releases what is held, ends every wait, and lets go of the store. May be repeated."""
        await self._opening.close()

    async def __aenter__(self) -> Locks:
        await self._session()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()
