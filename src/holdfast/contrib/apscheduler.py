"""APScheduler 3: of many schedulers, the one that leads an election fires the jobs.

from holdfast.contrib.apscheduler import LeaderBackgroundScheduler

scheduler = LeaderBackgroundScheduler(url="redis://localhost:6379/0", election="shop-scheduler")
scheduler.add_job(report, "cron", hour=3)
scheduler.start()
"""

from __future__ import annotations

import atexit
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import partial
from threading import Event, Lock, Thread
from typing import Any

from .. import ConfigError, Election, LockError, Locks, Term, connect
from ..refusals import lacks

try:
    from apscheduler.events import EVENT_SCHEDULER_SHUTDOWN, EVENT_SCHEDULER_STARTED
    from apscheduler.job import Job
    from apscheduler.schedulers.asyncio import AsyncIOScheduler
    from apscheduler.schedulers.background import BackgroundScheduler
    from apscheduler.schedulers.blocking import BlockingScheduler
    from apscheduler.util import iscoroutinefunction_partial
except ImportError as missing:
    raise ImportError(lacks(__name__, "APScheduler 3", "apscheduler")) from missing

__all__ = [
    "LeaderAsyncIOScheduler",
    "LeaderBackgroundScheduler",
    "LeaderBlockingScheduler",
    "LeaderScheduler",
    "current_term",
]

log = logging.getLogger(__name__)

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 15.0
"""Seconds until we stand for election again after a failure; twice as long each time."""
LOOK_EVERY = 0.05
"""Seconds between two looks whether jobs still run, when the scheduler has been shut down."""


_term: ContextVar[Term] = ContextVar("holdfast_apscheduler_term")
"""The term in which the job that runs here was fired."""


def current_term() -> Term:
    """Returns the term in which the job that calls this was fired; its token is for what it writes.

    It stays the same while the job runs, also when the scheduler has lost that term, and leads again.
    """
    try:
        return _term.get()
    except LookupError:
        raise ConfigError(
            "current_term() is for jobs that a Leader… scheduler has fired, in this process"
        ) from None


class LeaderScheduler:
    """For a scheduler of APScheduler's, before it: it fires jobs while it leads, else it stands by.

    `url` and `namespace` are those of `connect()`, `election` is the election's name. The scheduler has
    a manager of its own, which it closes when it is shut down and its jobs have ended.
    """

    def __init__(
        self,
        *args: Any,
        url: Any = None,
        election: str = "apscheduler",
        namespace: str = "holdfast",
        value: str | None = None,
        ttl: float = 30.0,
        **options: Any,
    ) -> None:
        super().__init__(*args, **options)
        self._place = url, namespace
        self._candidacy = election, value, ttl
        self._leaving = Event()
        self._terms = Lock()
        """Taken by whoever changes `term`: after a restart the last candidate may still be leaving."""
        self.term: Term | None = None
        """The term in which this scheduler leads now. A job has its own: `current_term()`."""
        self._election(self._connect())  # refused now, rather than at the start; nothing is opened
        self.add_listener(self._arrive, EVENT_SCHEDULER_STARTED)  # type: ignore[attr-defined]
        self.add_listener(self._leave, EVENT_SCHEDULER_SHUTDOWN)  # type: ignore[attr-defined]

    @property
    def leads(self) -> bool:
        """Whether this scheduler leads now, by its own clock."""
        term = self.term
        return term is not None and term.held

    def _process_jobs(self) -> Any:
        """Fires what is due, if we lead; returns the seconds until the next look, if there is one."""
        return super()._process_jobs() if self.leads else None  # type: ignore[misc]

    def _lookup_executor(self, alias: str) -> Any:
        """Returns an executor whose jobs belong to the term in which they are fired."""
        return _InTerm(super()._lookup_executor(alias), self)  # type: ignore[misc]

    def _connect(self) -> Locks:
        url, namespace = self._place
        return connect(url, namespace=namespace)

    def _election(self, locks: Locks) -> Election:
        name, value, ttl = self._candidacy
        return locks.election(name, value, ttl=ttl)

    def _arrive(self, event: object) -> None:
        """Stands for election, in a thread, since the scheduler has started."""
        self._leaving = Event()
        self._locks = self._connect()
        self._at_exit = partial(_end, self._locks, self._leaving)
        atexit.register(self._at_exit)  # a program may end without shutting us down
        self._candidate = Thread(
            target=self._stand,
            args=(self._locks, self._leaving),
            name="holdfast leader",
            daemon=True,
        )
        self._candidate.start()

    def _stand(self, locks: Locks, leaving: Event) -> None:
        election = self._election(locks)
        pause = FIRST_PAUSE
        while not leaving.is_set():
            try:
                term = election.campaign()
            except LockError as error:
                if not leaving.is_set():
                    log.warning("cannot stand for election; trying again in %g s: %s", pause, error)
                    leaving.wait(pause)
                    pause = min(2 * pause, LONGEST_PAUSE)
                continue
            pause = FIRST_PAUSE
            with self._terms:
                self.term = term
            log.info("leading %r, with token %d", term.name, term.token)
            with suppress(AttributeError, RuntimeError):  # it is being shut down
                self.wakeup()  # type: ignore[attr-defined]
            if term.wait_lost() and not leaving.is_set():
                log.warning("lost the lead of %r; standing by for the next term", term.name)
            with self._terms:
                if self.term is term:
                    self.term = None

    def _leave(self, event: object) -> None:
        """Lets the next one lead, as soon as no job runs any more."""
        self._leaving.set()
        closer = Thread(
            target=self._close,
            args=(self._locks, self.term, self._candidate, self._at_exit),
            name="holdfast resign",
            daemon=True,
        )
        closer.start()
        if not isinstance(self, AsyncIOScheduler) and not self._jobs_run():
            closer.join()

    def _close(
        self, locks: Locks, term: Term | None, candidate: Thread, at_exit: Callable[[], None]
    ) -> None:
        while term is not None and term.held and self._jobs_run():
            Event().wait(LOOK_EVERY)
        locks.close()
        atexit.unregister(at_exit)
        candidate.join()

    def _jobs_run(self) -> bool:
        executors = list(self._executors.values())  # type: ignore[attr-defined]
        # A job that ended while it was being submitted stays in there, with a count of 0.
        return any(sum(list(executor._instances.values())) > 0 for executor in executors)


def _end(locks: Locks, leaving: Event) -> None:
    """Resigns, at the end of the program; nothing happens if that was done."""
    leaving.set()
    locks.close()


class _InTerm:
    """An executor of APScheduler's, for the jobs that are fired in one term."""

    def __init__(self, executor: Any, scheduler: LeaderScheduler) -> None:
        self._executor = executor
        self._scheduler = scheduler

    def __getattr__(self, name: str) -> Any:
        return getattr(self._executor, name)

    def submit_job(self, job: Any, run_times: Any) -> Any:
        """Has the job run, unless the term is lost by the time at which it would begin."""
        term = self._scheduler.term
        if term is None:
            raise LockError(f"the lead was lost before {job.name!r} was fired")
        return self._executor.submit_job(_in_term(job, term), run_times)


def _in_term(job: Any, term: Term) -> Any:
    """Returns a copy of the job whose function runs in `term`. (In another process it does not.)"""
    copy = object.__new__(Job)
    for name in Job.__slots__:
        if name != "__weakref__" and hasattr(job, name):
            object.__setattr__(copy, name, getattr(job, name))
    function = job.func
    if iscoroutinefunction_partial(function):

        async def run_coroutine(*args: Any, **options: Any) -> Any:
            with _entered(term):
                return await function(*args, **options)

        copy.func = run_coroutine
    else:

        def run(*args: Any, **options: Any) -> Any:
            with _entered(term):
                return function(*args, **options)

        copy.func = run
    return copy


@contextmanager
def _entered(term: Term) -> Iterator[None]:
    """Lets a job begin, if its term is not over."""
    term.ensure()
    reset = _term.set(term)
    try:
        yield
    finally:
        _term.reset(reset)


class LeaderBackgroundScheduler(LeaderScheduler, BackgroundScheduler):  # type: ignore[misc]
    """APScheduler's `BackgroundScheduler`, of which one of many fires."""


class LeaderBlockingScheduler(LeaderScheduler, BlockingScheduler):  # type: ignore[misc]
    """APScheduler's `BlockingScheduler`, of which one of many fires."""


class LeaderAsyncIOScheduler(LeaderScheduler, AsyncIOScheduler):  # type: ignore[misc]
    """APScheduler's `AsyncIOScheduler`, of which one of many fires."""
