"""`Locks`: what `connect()` returns, and where every lock comes from."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from importlib import import_module
from types import TracebackType
from typing import Any

from .. import checks, forks
from .._runtime.aio import Mutex, enter, finish, here
from ..clock import system_clock
from ..errors import BackendUnavailable, ConfigError, GuaranteeError, LockError
from ..events import Listener, Listeners
from ..guarantees import Guarantees
from ..model import LockState, lock_realm
from ..stores import urls
from ..stores._async.contract import OPEN_LIMIT, Backend
from .election import Candidacy, Election
from .lock import Lock, ReadWriteLock
from .reentrant import ReentrantLock
from .session import Session

Opener = Callable[[], Backend]

_RW_CAPACITY = checks.MAX_CAPACITY
CLOSE_LIMIT = 60.0
"""Seconds that `close` waits for the store. What it could not give back ends by itself."""


def connect(
    url: object = None,
    *,
    namespace: str = "holdfast",
    label: str = "",
    on_event: Listener | None = None,
    **options: Any,
) -> Locks:
    """A manager of locks on the store that `url`, or else `$HOLDFAST_URL`, names.

    In place of a URL it may be a client of redis-py that you have: its server is the store then.

    Without either it is the embedded store in the user's state folder, which serves one machine
    and one user; that is said once by a warning. `namespace` keeps apart those who share a store,
    `label` is shown to people who look at a lock, `on_event` is told what happens to leases.
    Nothing is opened until the first use, or until it is entered by `with`.
    """
    checks.namespace(namespace)
    checks.label(label)
    if on_event is not None and not callable(on_event):
        raise ConfigError("on_event must be callable: it is given one Event")
    fell_back = False
    if url is None:
        url = os.environ.get("HOLDFAST_URL") or None
    if url is None:
        url = _fall_back()
        fell_back = True
    world = __name__.split(".")[-2]
    if not isinstance(url, str) and urls.is_client(url):
        module = import_module(urls.CLIENT.module_in(world))
        shown, guarantees, opener = module.prepare(url, namespace, options)
    else:
        target = urls.parse(url)
        module = import_module(urls.SCHEMES[target.scheme].module_in(world))
        guarantees, opener = module.prepare(target, namespace, options)
        shown = str(target)
    locks = Locks(shown, namespace, guarantees, opener, label, fell_back)
    if on_event is not None:
        locks.on_event(on_event)
    return locks


_warned = False


def _fall_back() -> str:
    global _warned
    from ..stores.sqlite.location import default_path

    path = default_path()
    if not _warned:
        import warnings

        _warned = True
        warnings.warn(
            f"no store was named, so locks are kept in {path}: they serve this machine and this "
            "user only; name a store with connect(url) or $HOLDFAST_URL",
            stacklevel=3,
        )
    from urllib.parse import quote

    return f"sqlite://{quote(path)}"


class Locks:
    """Locks on one store. Threads, or the tasks of one event loop, may share it."""

    def __init__(
        self,
        shown_url: str,
        namespace: str,
        guarantees: Guarantees,
        opener: Opener,
        label: str,
        fell_back: bool,
    ) -> None:
        self.url = shown_url
        """Which store this is, without credentials."""
        self.namespace = namespace
        self.guarantees = guarantees
        self._opener = opener
        self._label = label
        self._fell_back = fell_back
        self._listeners = Listeners()
        self._live: Session | None = None
        self._closed = False
        self._opening = Mutex()
        forks.survive(self)

    def __repr__(self) -> str:
        return f"<Locks {self.url} namespace={self.namespace!r}>"

    # The kinds of lock.

    def lock(
        self,
        name: str,
        *,
        ttl: float = 30.0,
        timeout: float | None = None,
        fair: bool | None = None,
        renew: bool = True,
        purpose: str = "efficiency",
        protects: object = None,
        max_hold: float | None = None,
    ) -> Lock:
        """A mutex. `timeout` is how long `with` and `acquire()` wait: None is for ever.

        `fair=True` insists on first come, first served; `fair=False` lets newcomers take a free
        lock. `renew=False` lets the lease end after `ttl`; `max_hold` ends it after that long
        whatever happens. `purpose="correctness"` needs `protects`, the fence at the resource.
        """
        self._check_purpose(name, purpose, protects)
        return self._make(name, ttl, timeout, fair, renew, max_hold, protects)

    def rlock(
        self,
        name: str,
        *,
        ttl: float = 30.0,
        timeout: float | None = None,
        fair: bool | None = None,
        renew: bool = True,
        purpose: str = "efficiency",
        protects: object = None,
        max_hold: float | None = None,
    ) -> Lock:
        """A mutex that the task or thread which holds it may take again, and releases as often.

        It is the same lease each time, with the same token. `lock(name)` is not part of that: it
        waits until all are released.
        """
        self._check_purpose(name, purpose, protects)
        return self._make(name, ttl, timeout, fair, renew, max_hold, protects, of=ReentrantLock)

    def election(self, name: str, value: str | None = None, *, ttl: float = 30.0) -> Election:
        """One leader at a time. `value` is shown to those who ask who leads."""
        if value is not None:
            checks.label(value)
        return Election(self, Candidacy(self, name, ttl=ttl, text=value))

    def semaphore(
        self,
        name: str,
        *,
        permits: int,
        ttl: float = 30.0,
        timeout: float | None = None,
        fair: bool | None = None,
        renew: bool = True,
        purpose: str = "efficiency",
        protects: object = None,
        max_hold: float | None = None,
    ) -> Lock:
        """A lock that `permits` may hold at once. Their tokens are unique, not in any order.

        So no fence can order all their writes. Those of one slot it can: give each `lease.slot` a
        resource of its own, and `purpose="correctness"`. Refused where a store has no slots.
        """
        self._check_purpose(name, purpose, protects, shared=True)
        return self._make(
            name,
            ttl,
            timeout,
            fair,
            renew,
            max_hold,
            protects,
            kind="semaphore",
            capacity=checks.permits(permits),
        )

    def rwlock(
        self,
        name: str,
        *,
        ttl: float = 30.0,
        timeout: float | None = None,
        fair: bool | None = None,
        renew: bool = True,
        purpose: str = "efficiency",
        protects: object = None,
        max_hold: float | None = None,
    ) -> ReadWriteLock:
        """Many readers or one writer: `.read()` and `.write()` are locks.

        With a fence, a writer's token is remembered there, and a reader's is only compared.
        """
        self._check_purpose(name, purpose, protects)

        def side(weight: int) -> Lock:
            return self._make(
                name,
                ttl,
                timeout,
                fair,
                renew,
                max_hold,
                protects,
                kind="rwlock",
                weight=weight,
                capacity=_RW_CAPACITY,
            )

        return ReadWriteLock(name, side(1), side(_RW_CAPACITY))

    def _make(
        self,
        name: str,
        ttl: float,
        timeout: float | None,
        fair: bool | None,
        renew: bool,
        max_hold: float | None,
        protects: object,
        *,
        of: type[Lock] = Lock,
        kind: str = "lock",
        weight: int = 1,
        capacity: int = 1,
    ) -> Lock:
        if fair is True and not self.guarantees.fair:
            raise GuaranteeError(
                f"{name!r} was asked to be fair, which {self.guarantees.store} cannot promise",
                name=name,
            )
        return of(
            self,
            name,
            ttl=ttl,
            timeout=timeout,
            fair=fair,
            renew=renew,
            max_hold=max_hold,
            protects=protects,
            kind=kind,
            weight=weight,
            capacity=capacity,
        )

    def _check_purpose(
        self, name: str, purpose: str, protects: object, shared: bool = False
    ) -> None:
        checks.flag("purpose", purpose, ("efficiency", "correctness"))
        fence = getattr(protects, "__holdfast_fence__", False) and not isinstance(protects, type)
        if protects is not None and not fence:
            raise ConfigError(f"protects must be a fence, not {type(protects).__name__}", name=name)
        if purpose == "efficiency":
            return
        missing = []
        if "correctness" not in self.guarantees.safe_for:
            missing.append(f"a store that can carry it ({self.guarantees.store} cannot)")
        if self._fell_back:
            missing.append("the URL of the store, said to connect() or in $HOLDFAST_URL")
        if protects is None:
            missing.append("protects=, the fence that rejects stale tokens at the resource")
        if shared and not self.guarantees.slots:
            missing.append(
                "one holder at a time (a semaphore has several, and a fence that has seen the higher "
                f"token would shut out the lower one; {self.guarantees.store} does not say which slot "
                "a holder has, so make a lock for each slot)"
            )
        if missing:
            raise GuaranteeError(
                f"{name!r} cannot be a lock for correctness: it needs {'; and '.join(missing)}",
                name=name,
            )

    # Looking and breaking.

    async def inspect(self, name: str) -> LockState:
        """Who holds this lock and who waits for it, as the store sees it."""
        checks.lock_name(name)
        session = await self._session()
        return await session.backend.inspect(name, session.deadline())

    async def list(self, prefix: str = "") -> Sequence[LockState]:
        """Every lock that somebody holds or waits for, whose name starts with `prefix`."""
        checks.prefix(prefix)
        session = await self._session()
        return await session.backend.list(prefix, session.deadline())

    async def force_release(self, name: str) -> bool:
        """Take the lock away from whoever holds it: True if somebody did. It is audited.

        The holder finds out at its next renewal; until then only a fence stops its writes, for
        which the next token is higher than every one before.
        """
        checks.lock_name(name)
        session = await self._session()
        forced = await session.backend.force_release(name, str(session.label), session.deadline())
        session.tell("forced", name, "", 0, 0.0, f"by {session.label}")
        return forced

    def on_event(self, listener: Listener) -> Callable[[], None]:
        """Call `listener(event)` for what happens to leases from now on; answers how to stop."""
        return self._listeners.add(listener)

    # The session behind it.

    async def _session(self, limit: float = OPEN_LIMIT) -> Session:
        """The session, reached within `limit` seconds if there is none yet."""
        session = self._live
        if session is None or session.closed or session.home is not here():
            session = await self._open(limit)
        return session

    async def _open(self, limit: float) -> Session:
        self._check_open()
        deadline = system_clock().now() + limit
        opening = self._opening
        if not await enter(opening, limit):
            raise BackendUnavailable(f"the store at {self.url} was not reached within {limit:g} s")
        try:
            self._check_open()
            session = self._live
            if session is not None:
                if session.home is here():
                    return session
                raise LockError(
                    "this connection is in use by another event loop; call connect() in each"
                )
            left = deadline - system_clock().now()  # somebody may have tried in vain before us
            backend = self._opener()
            await backend.open(backend.clock.now() + left)
            realm = lock_realm(self.guarantees.store, self.namespace)
            session = Session(backend, self._listeners, self._label, realm)
            self._live = session
            return session
        finally:
            opening.release()

    def _check_open(self) -> None:
        if self._closed:
            raise LockError("this connection is closed; call connect() for a new one")

    def _after_fork(self) -> None:
        """In a forked child, start afresh: what the parent holds and opened stays the parent's."""
        session, self._live = self._live, None
        self._opening = Mutex()
        if session is not None:
            forks.abandon(session)

    async def close(self) -> None:
        """Release what is held, end every wait, and let go of the store. May be repeated."""
        # Before anything is waited for: a callback that uses us now is refused, and not waited for.
        self._closed = True
        async with self._opening:
            session, self._live = self._live, None
            if session is not None:
                # To its end, even if we are cancelled: a keeper must not go on renewing.
                await finish(session.close, grace=CLOSE_LIMIT)

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
