"""`Locks`: the manager that `connect()` returns, and that makes every lock."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Unpack, overload

from .. import checks
from ..errors import ConfigError
from ..events import CallListener, Listener
from ..model import LockState
from ..options import (
    FenceMark,
    LockKeywords,
    LockOptions,
    options_of,
    refuse_incorrect,
    refuse_unfair,
)
from .decorator import Decorator, LeaseDecorator
from .lease import Lease
from .lock import Lock, ReadWriteLock
from .opening import Opening
from .reentrant import ReentrantHold, ReentrantLock
from .request import Request
from .session import Session

# What not every program uses is imported when it is used: a shell starts `holdfast run` very often.
if TYPE_CHECKING:
    from ..findings import Finding
    from ..guarantees import Guarantees
    from ..wait_graph import Deadlock
    from ..watching import Sighting
    from .election import Election
    from .multi import MultiLock
    from .once import OnceLease

_RW_CAPACITY = checks.MAX_CAPACITY


class Locks:
    """Locks on one store. Threads, or the tasks of one event loop, may share it."""

    def __init__(
        self, opening: Opening, namespace: str, unnamed: bool, place: tuple[Any, dict[str, Any]]
    ) -> None:
        self.url = opening.url
        """The store's URL, without credentials."""
        self.namespace = namespace
        self._opening = opening
        self._unnamed = unnamed
        """The user named no store, and the embedded one was taken."""
        self._place = place
        """The URL or client and the options that were given, which may have credentials in them."""

    @property
    def guarantees(self) -> Guarantees:
        """The promises of the store. A lock service is asked for them when it is first reached."""
        return self._opening.guarantees

    @property
    def closed(self) -> bool:
        """Whether `close()` was called. What is closed stays closed; call `connect()` for a new one."""
        return self._opening.closed

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
        - `max_hold=None`: seconds after which the lease ends whatever happens;
        - `lock_delay=0.0`: seconds for which the lock stays closed after a lease that ended without a
          release, for resources that cannot check a fence.
        """
        return Lock(self._opening, self._request(name, options))

    def rlock(self, name: str, **options: Unpack[LockKeywords]) -> Lock:
        """Returns a mutex that the task or thread which holds it may take again.

        It is the same lease each time, with the same token, and is released as often. `lock(name)`
        is not part of that: it waits until all are released. Options as for `lock`.
        """
        request = self._request(name, options, hold_type=ReentrantHold)
        return ReentrantLock(self._opening, request)

    def multi(self, names: Iterable[str], **options: Unpack[LockKeywords]) -> MultiLock:
        """Returns a lock that holds several mutexes as one: all of them or none, whatever their order.

        Its lease has `leases` and `tokens`, by name. If one of them is lost, the whole is. `timeout`
        is for all of them. Options as for `lock`.
        """
        from .multi import MultiLock
        from .multi_hold import PartHold

        requests = [
            self._request(name, options, hold_type=PartHold) for name in checks.lock_names(names)
        ]
        return MultiLock(self._opening, requests)

    @overload
    def locked(
        self, name: str, *, lease_as: None = None, **options: Unpack[LockKeywords]
    ) -> Decorator: ...

    @overload
    def locked(
        self, name: str, *, lease_as: str, **options: Unpack[LockKeywords]
    ) -> LeaseDecorator: ...

    def locked(
        self, name: str, *, lease_as: str | None = None, **options: Unpack[LockKeywords]
    ) -> Decorator | LeaseDecorator:
        """Returns a decorator: each call of the function holds the mutex that its arguments name.

        `name` is a template such as `"report:{customer_id}"`, whose fields are parameters of the
        function. `lease_as` names the parameter, if any, by which the function gets its lease; callers
        leave that one out. Options as for `lock`.
        """
        checks.template(name)
        self._request(name, options)  # refused now, rather than at the first call

        def make(filled: str) -> Lock:
            return self.lock(filled, **options)

        if lease_as is None:
            return Decorator(name, make)
        return LeaseDecorator(name, make, checks.parameter("lease_as", lease_as))

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
        from .election import Election, Term

        if value is not None:
            checks.label(value)
        options: LockKeywords = {"ttl": ttl, "purpose": purpose, "protects": protects}
        request = self._request(name, options, kind="election", label_text=value, lease_type=Term)
        return Election(self._opening, request)

    async def once(
        self,
        name: str,
        period: float | str,
        *,
        timezone: str = "UTC",
        ttl: float = 30.0,
        at_least: float = 0.0,
        at_most: float | None = None,
        purpose: Literal["efficiency", "correctness"] = "efficiency",
        protects: FenceMark | None = None,
    ) -> OnceLease | None:
        """Returns a lease the first time in each period, on all machines together; None after that.

        `period` is in seconds from the grant, or a cron expression (`"0 3 * * *"`, in `timezone`): then
        the period ends at the next time that it names, and a run that was missed is made up for by the
        next call. The store's clock counts: call somewhat after that time. Work inside `with lease:`,
        and the slot is kept until the end of the period; if the work raises, or its process dies,
        somebody else may try.

        - `at_least`: seconds for which the slot is kept even if the work fails;
        - `at_most`: seconds after which the lease ends, and the slot is given back, whatever happens;
        - `ttl`, `purpose`, `protects`: as for `lock`.
        """
        from .once import OnceHold, OnceLease, Period, once

        length = Period(period, timezone)
        if at_most is not None:
            checks.ttl(at_most, "at_most")
        options: LockKeywords = {
            "ttl": ttl,
            "purpose": purpose,
            "protects": protects,
            "max_hold": at_most,
        }
        request = self._request(
            name, options, kind="once", hold_type=OnceHold, lease_type=OnceLease
        )
        length.refuse_too_long(name, self.guarantees)
        at_least = length.checked(checks.at_least(at_least))
        return await once(self._opening, request, length, at_least)

    async def adopt(self, exported: str, **options: Unpack[LockKeywords]) -> Lease:
        """Takes over the lease that `lease.export()` gave away; raises `LeaseLost` if it has ended.

        It is ours from now on, with a higher token than the giver's, and was never free in between.
        Options as for `lock`; without them it keeps its TTL and its `lock_delay`.
        """
        from ..exported import decode
        from .adopting import adopt
        from .election import Term

        export = decode(exported)
        if self._opening.provisional:
            await self._opening.session()  # which says whose locks these are
        if export.realm != self._opening.realm:
            raise ConfigError(
                f"the lease on {export.name!r} was exported from {export.realm}, and this manager is "
                f"of {self._opening.realm}; adopt it with a manager of the same store and namespace",
                name=export.name,
            )
        own: LockKeywords = {"ttl": export.ttl, "lock_delay": export.lock_delay}
        request = self._request(
            export.name,
            own | options,
            kind=export.kind,
            weight=export.weight,
            capacity=export.capacity,
            label_text=export.text or None,
            lease_type=Term if export.kind == "election" else Lease,
        )
        return await adopt(self._opening, request, export)

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

    def watch(
        self, prefix: str = "", *, every: float | None = None
    ) -> AsyncGenerator[Sighting, None]:
        """Yields what happens to all locks whose names start with `prefix`, first how they stand.

        It looks at the store `every` so many seconds (at each heartbeat, unless it is given): what
        began and ended between two looks is not seen. While the store cannot be reached, also at the
        start, that is told, once, and then what was missed. Raises `LockError` when the manager is
        closed.
        """
        from .watch import watch

        return watch(self, prefix, every)

    async def deadlocks(self) -> Sequence[Deadlock]:
        """Returns those who wait for each other in a circle, among all locks of the namespace.

        Each manager counts as one, with its label. The store is read twice, so that none is told which
        was only seen because locks were read one after another.
        """
        from ..wait_graph import deadlocks_in, in_both

        fair = self.guarantees.fair
        first = await self.list()
        if not deadlocks_in(first, fair):
            return []
        return deadlocks_in(in_both(first, await self.list()), fair)

    async def force_release(self, name: str, *, token_above: int = 0) -> bool:
        """Takes the lock away from its holders: True if there was one. It is audited.

        `token_above`: what a fence has seen, where the store has lost its memory. Every later token is
        higher, also if there was no holder; a store that cannot raise its tokens that far refuses with
        `GuaranteeError`, and has done nothing.

        A holder is told at once where `guarantees.recall` says so, else at its next renewal; until
        then only a fence stops its writes, for which the next token is higher than every one before.
        """
        checks.lock_name(name)
        above = checks.token_above(token_above)

        async def force(session: Session, deadline: float) -> bool:
            label = str(session.label)
            forced = await session.backend.force_release(name, label, deadline, above)
            session.tell("forced", name, "", 0, 0.0, f"by {label}")
            return forced

        return await self._opening.ask(f"made to free {name!r}", name, force)

    async def doctor(self, timeout: float = 10.0) -> Sequence[Finding]:
        """Returns what stands well and what does not with the store, as `holdfast.doctor()` does.

        It has connections of its own, and the store has `timeout` seconds to answer.
        """
        from .doctor import examine_beside

        url, options = self._place
        seconds = checks.ttl(timeout, "timeout")
        return await examine_beside(url, self.namespace, options, seconds)

    def on_event(self, listener: Listener) -> Callable[[], None]:
        """Calls `listener(event)` for what happens to leases from now on; returns how to stop."""
        return self._opening.listeners.add(listener)

    def on_call(self, listener: CallListener) -> Callable[[], None]:
        """Calls `listener(call)` for each call to the store from now on; returns how to stop."""
        return self._opening.on_call(listener)

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
