"""Tasks that hold a lease while they run."""

from __future__ import annotations

import inspect
import logging
from abc import abstractmethod
from typing import Any, ClassVar, NoReturn

from celery import Task
from celery.app.task import Context
from celery.exceptions import Retry

from ... import (
    BackendUnavailable,
    ConfigError,
    Lease,
    LockError,
    LockTimeout,
    OnceLease,
    checks,
)
from ...name_template import NameTemplate, arguments_of
from ...options import LockKeywords, options_of
from .managers import locks_of

log = logging.getLogger(__name__)

WAYS = ("raise", "retry", "skip")
"""The ways to go on when there is no lease for a task."""


class LeasedTask(Task):  # type: ignore[misc]
    """The part that `LockedTask` and `OnceTask` share: `lease`, and what is done without one."""

    abstract = True

    busy = "retry"
    """The way on for a task that gets no lease: `retry` (it is sent again, for later), `skip` (it
    returns None) or `raise` (it fails with `LockTimeout`)."""

    retry_in = 5.0
    """The seconds after which a task that got no lease is sent again. It is no retry of the task's
    own: `max_retries` does not count it."""

    @property
    def lease(self) -> Lease:
        """The lease under which the task runs in this thread."""
        lease = getattr(self.request, "holdfast_lease", None)
        if lease is None:
            raise ConfigError(f"the task {self.name!r} has a lease only while it runs")
        assert isinstance(lease, Lease)
        return lease

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        request = self.request
        if not request.called_directly and not hasattr(request, "holdfast_lease"):
            # From now on the message is being run, and any further call is direct.
            request.holdfast_lease = None
            return self._run_leased(args, kwargs)
        outer = {name: value for name, value in vars(request).items() if name != "holdfast_lease"}
        own = {"args": args, "kwargs": kwargs, "called_directly": True}
        self.request_stack.push(Context(outer | own))
        try:
            return self._run_leased(args, kwargs)
        finally:
            self.pop_request()

    def _run_leased(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        name = self._template().fill(arguments_of(inspect.signature(self.run), args, kwargs))
        checks.lock_name(name)
        lease: Lease | None = None
        entered = False
        try:
            try:
                lease = self._obtain(name)
            except BackendUnavailable as error:
                if self.busy != "retry":
                    raise
                self._send_again(error)
            if lease is None:
                return self._go_on_without(name)
            with lease:
                entered = True
                self.request.holdfast_lease = lease
                try:
                    return self.run(*args, **kwargs)
                finally:
                    self.request.holdfast_lease = None
        finally:
            if lease is not None and not entered:  # a time limit came in between
                self._give_back(lease)

    def _give_back(self, lease: Lease) -> None:
        """Gives back a lease under which nothing was done."""
        try:
            if isinstance(lease, OnceLease):
                lease.give_back()
            else:
                lease.release()
        except LockError as error:
            log.error("the task %s could not give %r back: %s", self.name, lease.name, error)

    def _go_on_without(self, name: str) -> None:
        """Does as `busy` says."""
        if self.busy == "skip":
            log.info("skipped the task %s, since %r is taken", self.name, name)
            return
        error = LockTimeout(
            f"the task {self.name!r} did not get {name!r}, because others hold it or have done "
            "the work; see who with inspect()",
            name=name,
        )
        if self.busy == "raise":
            raise error
        self._send_again(error)

    def _send_again(self, error: LockError) -> NoReturn:
        request = self.request
        if request.called_directly or request.is_eager:
            raise error  # nobody would run it later
        again = self.signature_from_request(
            request, countdown=self.retry_in, retries=request.retries
        )
        again.apply_async()
        raise Retry(exc=error, when=self.retry_in, sig=again)

    @classmethod
    def on_bound(cls, app: Any) -> None:
        """Refuses settings that make no sense, when the application takes the task in."""
        if cls.busy not in WAYS:
            raise ConfigError(f"busy is one of {', '.join(WAYS)}, not {cls.busy!r}")
        checks.timeout(cls.retry_in)
        if "run" in cls.__dict__:  # a task, and not a base for tasks
            cls._template()

    @abstractmethod
    def _obtain(self, name: str) -> Lease | None:
        """Returns the lease; or None if others have it, or have done the work."""

    @classmethod
    @abstractmethod
    def _template(cls) -> NameTemplate:
        """Returns the template of the lease's name."""

    @classmethod
    def _template_of(cls, setting: str) -> NameTemplate:
        text = getattr(cls, setting)
        if not isinstance(text, str) or not text:
            raise ConfigError(
                f"the task {cls.name!r} needs {setting}=, the template of its lock's name, as in "
                f'{setting}="report:{{customer}}"'
            )
        return NameTemplate(text, inspect.signature(cls.run))


class LockedTask(LeasedTask):
    """A task that holds a lock while it runs: no other task does that has the same name for it."""

    abstract = True

    lock = ""
    """The template of the lock's name; its fields are parameters of the task."""

    lock_options: ClassVar[LockKeywords] = {}
    """The options of `locks.lock()`. `timeout` is how long a worker waits for the lock: not at all,
    unless it is given."""

    @classmethod
    def on_bound(cls, app: Any) -> None:
        super().on_bound(app)
        options_of("lock", cls.lock_options)

    @classmethod
    def _template(cls) -> NameTemplate:
        return cls._template_of("lock")

    def _obtain(self, name: str) -> Lease | None:
        options: LockKeywords = {"timeout": 0.0, **self.lock_options}
        try:
            return locks_of(self.app).lock(name, **options).acquire()
        except LockTimeout:
            return None


class OnceTask(LeasedTask):
    """A task that runs once in each period for the same arguments, on all workers together.

    If it fails, or is retried, or its worker dies, it may run again in the same period.
    """

    abstract = True

    busy = "skip"

    once = ""
    """The template of what is done once; its fields are parameters of the task."""

    once_period: float | str = 0.0
    """The period: seconds, or a cron expression."""

    once_options: ClassVar[dict[str, Any]] = {}
    """Further options of `locks.once()`."""

    @classmethod
    def _template(cls) -> NameTemplate:
        return cls._template_of("once")

    def _obtain(self, name: str) -> Lease | None:
        return locks_of(self.app).once(name, self.once_period, **self.once_options)

    @classmethod
    def on_bound(cls, app: Any) -> None:
        super().on_bound(app)
        if "run" in cls.__dict__ and not cls.once_period:
            raise ConfigError(
                f"the task {cls.name!r} needs once_period=, for how long it is not to be done again"
            )
