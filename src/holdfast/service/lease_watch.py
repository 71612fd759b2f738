"""The fate of leases, as seen from the verbs that pass through this process: for metrics.

The service knows no leases. But each request is one verb of the backend contract, and their answers
tell: a grant, a wait that began or ended, a renewal, a release. It is soft: what was granted through
another process is not known here, and of a lease that nobody renews or releases any more only its end.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

from .._async.timed_backend import untimed
from ..clock import Clock
from ..entries import Claim
from ..errors import LockError
from ..events import Call, Event
from ..model import Busy, Gone, Granted, Outcome, Queued, Renewed, Waiting, quick_new
from ..stores._async.contract import Backend, Ticket

MOST = 50_000
"""Owners that are remembered. The oldest go first: how long they held or waited is not counted."""
ENDED_AT_STORE = "the store says that it has ended"


class Owner:
    """A holder or waiter, as this process has seen it."""

    __slots__ = ("held", "name", "since", "until")

    def __init__(self, name: str, since: float, until: float, held: bool) -> None:
        self.name = name
        self.since = since
        """When it was granted, or was first asked for."""
        self.until = until
        """When it has ended, unless it is renewed."""
        self.held = held


class LeaseWatch:
    """The holders and waiters of one namespace; it tells what happens to them.

    Of each verb it is told when it was sent, and when it was answered.
    """

    def __init__(self, clock: Clock, tell: Callable[[Event], object]) -> None:
        self._clock = clock
        self._tell = tell
        self._owners: OrderedDict[tuple[str, str], Owner] = OrderedDict()
        """By lock and owner."""

    def names(self, held: bool) -> Iterator[str]:
        """Yields the lock of each lease that is held, or of each waiter, now."""
        now = self._clock.now()
        for owner in self._owners.values():
            if owner.held is held and owner.until > now:
                yield owner.name

    # What the verbs tell.

    def asked(
        self, ticket: Ticket, answer: Granted | Queued | Busy, sent: float, now: float
    ) -> None:
        name, owner = ticket.terms.name, ticket.owner
        known = self._owners.get((name, owner))
        if isinstance(answer, Granted):
            if known is None or not known.held:
                self._granted(name, owner, answer.token, answer.ttl, known, sent, now)
        elif ticket.queue:
            # A store without a queue is asked again and again for one that waits.
            since = sent if known is None else known.since
            self._remember(name, owner, Owner(name, since, now + ticket.ttl, False))
        else:
            self._say("timed_out", name, owner, 0, now - sent, "busy")

    def failed(self, name: str, owner: str, error: LockError, sent: float, now: float) -> None:
        self._owners.pop((name, owner), None)
        self._say("failed", name, owner, 0, now - sent, str(error))

    def renewed(self, claim: Claim, outcome: Outcome, sent: float, now: float) -> None:
        name, owner, ttl = claim
        known = self._owners.get((name, owner))
        if isinstance(outcome, Renewed):
            if known is not None and not known.held:
                self._granted(name, owner, outcome.token, outcome.ttl, known, sent, now)
                return
            late = known is not None and known.until - now < outcome.ttl / 2
            if known is not None:
                known.until = now + outcome.ttl
            self._say("renewed", name, owner, outcome.token, now - sent, "late" if late else "")
        elif isinstance(outcome, Waiting):
            if known is not None:
                known.until = now + ttl
        elif isinstance(outcome, Gone) and known is not None:
            del self._owners[name, owner]
            if known.held:
                self._say("lost", name, owner, 0, now - known.since, ENDED_AT_STORE)

    def released(self, name: str, owner: str, freed: bool, now: float) -> None:
        known = self._owners.pop((name, owner), None)
        if known is None:
            return  # granted by another process, or long ago
        spent = now - known.since
        if not known.held:
            self._say("timed_out", name, owner, 0, spent, "gave up")
        elif freed:
            self._say("released", name, owner, 0, spent)
        else:
            self._say("lost", name, owner, 0, spent, ENDED_AT_STORE)

    def adopted(
        self, ticket: Ticket, giver: str, answer: Granted | Gone, sent: float, now: float
    ) -> None:
        if isinstance(answer, Granted):
            self.released(ticket.name, giver, True, now)
            self._granted(ticket.name, ticket.owner, answer.token, answer.ttl, None, sent, now)

    def forced(self, name: str, actor: str) -> None:
        self._say("forced", name, "", 0, 0.0, f"by {actor}")

    # What is told.

    def _granted(
        self,
        name: str,
        owner: str,
        token: int,
        ttl: float,
        known: Owner | None,
        sent: float,
        now: float,
    ) -> None:
        self._remember(name, owner, Owner(name, now, now + ttl, True))
        if known is None:
            self._say("acquired", name, owner, token, now - sent)
        else:
            self._say("acquired", name, owner, token, now - known.since, "waited")

    def _remember(self, name: str, owner: str, known: Owner) -> None:
        self._owners[name, owner] = known
        self._owners.move_to_end((name, owner))
        if len(self._owners) > MOST:
            self._owners.popitem(last=False)

    def _say(
        self, kind: str, name: str, owner: str, token: int, duration: float, detail: str = ""
    ) -> None:
        at = self._clock.wall()
        self._tell(quick_new(Event, (kind, name, owner, token, duration, at, detail)))


class WatchedBackend:
    """A backend whose verbs a `LeaseWatch` sees. Those that are asked most are timed here, too."""

    _timed: Backend
    _backend: Backend
    _watch: LeaseWatch
    _called: Callable[[Call], object]
    _now: Callable[[], float]

    def __init__(
        self,
        timed: Backend,
        backend: Backend,
        watch: LeaseWatch,
        called: Callable[[Call], object],
    ) -> None:
        """`timed` is the backend as its manager has it, which tells of its calls."""
        own = self.__dict__
        own["_timed"] = timed
        own["_backend"] = backend
        own["_watch"] = watch
        own["_called"] = called
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
        self._called(quick_new(Call, (verb, now - sent, 0.0, error)))
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
        self._watch.forced(name, actor)
        return done


def watched(backend: Backend, watch: LeaseWatch, called: Callable[[Call], object]) -> Backend:
    """Returns the backend as one whose verbs `watch` sees, and whose calls are told to `called`."""
    return cast(Backend, WatchedBackend(backend, untimed(backend), watch, called))
