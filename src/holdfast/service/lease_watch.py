"""The fate of leases, as seen from the verbs that pass through this process: for metrics.

The service knows no leases. But each request is one verb of the backend contract, and their answers
tell: a grant, a wait that began or ended, a renewal, a release. It is soft: what was granted through
another process is not known here, and of a lease that nobody renews or releases any more only its end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple, cast

from .._async.timed_backend import untimed
from ..clock import Clock
from ..entries import Claim
from ..errors import LockError
from ..model import Busy, Gone, Granted, Outcome, Queued, Renewed, Waiting, quick_new
from ..stores._async.contract import Backend, Ticket

MOST = 50_000
"""Owners that are remembered. If there are more, the oldest tenth goes: how long they held or waited is
not counted."""
ENDED_AT_STORE = "the store says that it has ended"


Count = Callable[[str, str, float, str], object]
"""Counts what happened to a lease: its kind, the lock, a duration, a detail: see `holdfast.events`."""
CountCall = Callable[[str, float, BaseException | None], object]
"""Counts a call to the store: its verb, its duration, the error with which it ended."""


class Owner(NamedTuple):
    """A holder or waiter, as this process has seen it."""

    since: float
    """When it was granted, or was first asked for."""
    until: float
    """When it has ended, unless it is renewed."""
    held: bool


class LeaseWatch:
    """The holders and waiters of one namespace; it tells what happens to them.

    Of each verb it is told when it was sent, and when it was answered.
    """

    def __init__(self, clock: Clock, count: Count) -> None:
        self._clock = clock
        self._count = count
        self._owners: dict[tuple[str, str], Owner] = {}
        """By lock and owner; the one that was last granted or asked for comes last."""

    def names(self, held: bool) -> Iterator[str]:
        """Yields the lock of each lease that is held, or of each waiter, now."""
        now = self._clock.now()
        for (name, _), owner in self._owners.items():
            if owner.held is held and owner.until > now:
                yield name

    # What the verbs tell.

    def asked(
        self, ticket: Ticket, answer: Granted | Queued | Busy, sent: float, now: float
    ) -> None:
        name = ticket.terms.name
        key = name, ticket.owner
        known = self._owners.get(key)
        if isinstance(answer, Granted):
            if known is None or not known.held:
                self._granted(key, answer.ttl, known, sent, now)
        elif ticket.queue:
            # A store without a queue is asked again and again for one that waits.
            since = sent if known is None else known.since
            self._remember(key, known, Owner(since, now + ticket.ttl, False))
        else:
            self._count("timed_out", name, now - sent, "busy")

    def failed(self, name: str, owner: str, error: LockError, sent: float, now: float) -> None:
        self._owners.pop((name, owner), None)
        self._count("failed", name, now - sent, str(error))

    def renewed(self, claim: Claim, outcome: Outcome, sent: float, now: float) -> None:
        name, owner, ttl = claim
        key = name, owner
        known = self._owners.get(key)
        if isinstance(outcome, Renewed):
            if known is not None and not known.held:
                self._granted(key, outcome.ttl, known, sent, now)
                return
            late = known is not None and known.until - now < outcome.ttl / 2
            if known is not None:
                self._owners[key] = quick_new(Owner, (known.since, now + outcome.ttl, True))
            self._count("renewed", name, now - sent, "late" if late else "")
        elif isinstance(outcome, Waiting):
            if known is not None:
                self._owners[key] = quick_new(Owner, (known.since, now + ttl, known.held))
        elif isinstance(outcome, Gone) and known is not None:
            del self._owners[key]
            if known.held:
                self._count("lost", name, now - known.since, ENDED_AT_STORE)

    def released(self, name: str, owner: str, freed: bool, now: float) -> None:
        known = self._owners.pop((name, owner), None)
        if known is None:
            return  # granted by another process, or long ago
        spent = now - known.since
        if not known.held:
            self._count("timed_out", name, spent, "gave up")
        elif freed:
            self._count("released", name, spent, "")
        else:
            self._count("lost", name, spent, ENDED_AT_STORE)

    def adopted(
        self, ticket: Ticket, giver: str, answer: Granted | Gone, sent: float, now: float
    ) -> None:
        if isinstance(answer, Granted):
            self.released(ticket.name, giver, True, now)
            self._granted((ticket.name, ticket.owner), answer.ttl, None, sent, now)

    def forced(self, name: str) -> None:
        self._count("forced", name, 0.0, "")

    def _granted(
        self, key: tuple[str, str], ttl: float, known: Owner | None, sent: float, now: float
    ) -> None:
        self._remember(key, known, quick_new(Owner, (now, now + ttl, True)))
        if known is None:
            self._count("acquired", key[0], now - sent, "")
        else:
            self._count("acquired", key[0], now - known.since, "waited")

    def _remember(self, key: tuple[str, str], known: Owner | None, owner: Owner) -> None:
        owners = self._owners
        if known is not None:
            del owners[key]  # it becomes the last
        owners[key] = owner
        if len(owners) > MOST:
            for oldest in list(islice(owners, MOST // 10)):
                del owners[oldest]


class WatchedBackend:
    """A backend whose verbs a `LeaseWatch` sees. Those that are asked most are timed here, too."""

    _timed: Backend
    _backend: Backend
    _watch: LeaseWatch
    _count: CountCall
    _now: Callable[[], float]

    def __init__(
        self,
        timed: Backend,
        backend: Backend,
        watch: LeaseWatch,
        count: CountCall,
    ) -> None:
        """`timed` is the backend as its manager has it, which tells of its calls."""
        own = self.__dict__
        own["_timed"] = timed
        own["_backend"] = backend
        own["_watch"] = watch
        own["_count"] = count
        own["_now"] = backend.clock.now
        for verb in ("acquire_all", "release_all"):  # not for every store
            if hasattr(backend, verb):
                own[verb] = getattr(self, f"_{verb}")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._timed, name)

    def __setattr__(self, name: str, value: object) -> None:
        setattr(self._timed, name, value)  # such as `look`

    def _end(self, verb: str, sent: float, error: BaseException | None = None) -> float:
        """Tells of a call, and returns the time."""
        now = self._now()
        self._count(verb, now - sent, error)
        return now

    async def acquire(self, ticket: Ticket, deadline: float) -> Granted | Queued | Busy:
        sent = self._now()
        try:
            answer = await self._backend.acquire(ticket, deadline)
        except BaseException as error:
            now = self._end("acquire", sent, error)
            if isinstance(error, LockError):
                self._watch.failed(ticket.name, ticket.owner, error, sent, now)
            raise
        self._watch.asked(ticket, answer, sent, self._end("acquire", sent))
        return answer

    async def renew(self, claims: Sequence[Claim], deadline: float) -> Sequence[Outcome]:
        sent = self._now()
        try:
            outcomes = await self._backend.renew(claims, deadline)
        except BaseException as error:
            self._end("renew", sent, error)
            raise
        now = self._end("renew", sent)
        for claim, outcome in zip(claims, outcomes, strict=True):
            self._watch.renewed(claim, outcome, sent, now)
        return outcomes

    async def release(self, name: str, owner: str, deadline: float) -> bool:
        sent = self._now()
        try:
            freed = await self._backend.release(name, owner, deadline)
        except BaseException as error:
            self._end("release", sent, error)
            raise
        self._watch.released(name, owner, freed, self._end("release", sent))
        return freed

    async def _acquire_all(self, tickets: Sequence[Ticket], deadline: float) -> Any:
        sent = self._now()
        try:
            answers = await self._timed.acquire_all(tickets, deadline)  # type: ignore[attr-defined]
        except LockError as error:
            self._watch.failed(tickets[0].name, "", error, sent, self._now())
            raise
        now = self._now()
        if isinstance(answers, Busy):
            self._watch.asked(tickets[0], answers, sent, now)
        else:
            for ticket, answer in zip(tickets, answers, strict=True):
                self._watch.asked(ticket, answer, sent, now)
        return answers

    async def _release_all(self, pairs: Sequence[tuple[str, str]], deadline: float) -> Any:
        answers = await self._timed.release_all(pairs, deadline)  # type: ignore[attr-defined]
        now = self._now()
        for (name, owner), freed in zip(pairs, answers, strict=True):
            self._watch.released(name, owner, freed, now)
        return answers

    async def adopt(self, ticket: Ticket, giver: str, deadline: float) -> Granted | Gone:
        sent = self._now()
        answer = await self._timed.adopt(ticket, giver, deadline)
        self._watch.adopted(ticket, giver, answer, sent, self._now())
        return answer

    async def detach(self, name: str, owner: str, ttl: float, deadline: float) -> bool:
        done = await self._timed.detach(name, owner, ttl, deadline)
        self._watch.released(name, owner, done, self._now())  # nobody renews it any more
        return done

    async def force_release(self, name: str, actor: str, deadline: float, above: int = 0) -> bool:
        done = await self._timed.force_release(name, actor, deadline, above)
        self._watch.forced(name)
        return done


def watched(backend: Backend, watch: LeaseWatch, count: CountCall) -> Backend:
    """Returns the backend as one whose verbs `watch` sees, and whose calls `count` counts."""
    return cast(Backend, WatchedBackend(backend, untimed(backend), watch, count))
