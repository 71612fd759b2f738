"""Django: locks by its settings, management commands under a lock, and a fence in its transactions.

HOLDFAST = {"url": "redis://localhost:6379/0", "namespace": "shop"}     # settings.py, or HOLDFAST_URL

with locks().lock("invoice:42", purpose="correctness", protects=fence) as lease:
    with atomic(lease, "invoice:42"):
        Invoice.objects.filter(pk=42).update(paid=True)
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from inspect import signature
from threading import Lock as Mutex
from threading import current_thread, main_thread
from types import FrameType
from typing import Any, ClassVar, NoReturn

from .. import (
    BackendUnavailable,
    ConfigError,
    Lease,
    LeaseLost,
    Locks,
    LockTimeout,
    checks,
    connect,
    forks,
)
from ..fences.django import database, install
from ..name_template import NameTemplate
from ..options import LockKeywords, options_of
from ..refusals import lacks

try:
    from django.conf import settings
    from django.core.management.base import BaseCommand, CommandError, CommandParser
    from django.core.signals import setting_changed
    from django.db import transaction
except ImportError as missing:
    raise ImportError(lacks(__name__, "Django", "django")) from missing

__all__ = ["CommandLock", "LockedCommand", "atomic", "database", "install", "locks"]

BUSY, LOST, UNREACHABLE = 75, 76, 69
"""The exit status of a command that did not get its lock, lost it, or could not ask for it: those of
`holdfast run`."""
SETTINGS = ("HOLDFAST", "HOLDFAST_URL")

_ANY = signature(lambda **options: None)
"""The options of a command, which are known only when it is called."""

_manager: Locks | None = None
_mutex = Mutex()


def locks() -> Locks:
    """Returns the manager of this process, of the store that the settings name.

    `HOLDFAST` has the arguments of `connect()`; `HOLDFAST_URL` is enough where that is all. Without
    a URL there it is the store that `$HOLDFAST_URL` names; if there is none it raises `ConfigError`.
    If the manager was closed, the next call returns a new one.
    """
    global _manager
    with _mutex:
        if _manager is None or _manager.closed:
            arguments = _arguments()
            try:
                _manager = connect(**arguments)
            except (ConfigError, TypeError) as error:
                raise ConfigError(f"the setting {_named()} is wrong: {error}") from error
        return _manager


def _arguments() -> dict[str, Any]:
    given = getattr(settings, "HOLDFAST", None)
    url = getattr(settings, "HOLDFAST_URL", None)
    if given is not None and not isinstance(given, dict):
        raise ConfigError(
            "the setting HOLDFAST is a dict of what connect() takes, as in "
            '{"url": "redis://…", "namespace": "shop"}'
        )
    arguments = dict(given or {})
    if url is not None:
        if arguments.get("url") is not None:
            raise ConfigError(
                "the store is named twice, by HOLDFAST and by HOLDFAST_URL; leave one out"
            )
        arguments["url"] = url
    if arguments.get("url") in (None, "") and not os.environ.get("HOLDFAST_URL"):
        raise ConfigError(
            "the settings name no store for the locks: set HOLDFAST_URL, or HOLDFAST, or "
            "$HOLDFAST_URL"
        )
    if arguments.get("url") == "":
        del arguments["url"]
    return arguments


def _named() -> str:
    """Returns the names of the settings that are there."""
    return " or ".join(one for one in SETTINGS if getattr(settings, one, None)) or "$HOLDFAST_URL"


def _forget(*, setting: str, **_: Any) -> None:
    """Lets the next `locks()` begin anew, when a test has changed the settings."""
    global _manager
    if setting in SETTINGS:
        with _mutex:
            former, _manager = _manager, None
        if former is not None:
            former.close()


setting_changed.connect(_forget, dispatch_uid="holdfast")


def _after_fork_in_child() -> None:
    global _mutex
    _mutex = Mutex()  # another thread of the parent may have held it


forks.in_child(_after_fork_in_child)


@contextmanager
def atomic(lease: Lease, resource: str, using: str = "default") -> Iterator[None]:
    """Runs its body in a transaction that begins with the guard of `resource`.

    The lock is one with `protects=` a `SqlFence`. A stale lease raises `StaleToken`, and nothing is
    written. It is the outermost transaction: inside of another `atomic()` it raises `RuntimeError`.
    """
    connection = transaction.get_connection(using)
    if not connection.in_atomic_block and not connection.get_autocommit():
        raise RuntimeError(
            "holdfast's atomic() begins and ends a transaction of its own, and Django's autocommit is "
            "off, so that one is under way: turn it on, or call lease.guard() first in yours"
        )
    with transaction.atomic(using=using, durable=True):
        lease.guard(database(using), resource)
        yield


class CommandLock:
    """For a management command, before its base: it runs under a lock.

    `--lock-wait` says how long it waits for it. It exits with 75 if others hold the lock, with 76 if it
    lost it meanwhile, and with 69 if the store cannot be reached.
    """

    lock = ""
    """The template of the lock's name, whose fields are options of the command. If it is empty, the
    name is `command:` and the command's own name."""

    lock_wait: float | None = 0.0
    """The seconds to wait for the lock where `--lock-wait` is not given; None: for ever."""

    lock_options: ClassVar[LockKeywords] = {}
    """The options of `locks.lock()`."""

    lease: Lease
    """The lease under which the command runs."""

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)  # type: ignore[misc]
        parser.add_argument(
            "--lock-wait",
            type=_seconds,
            default=self.lock_wait,
            metavar="SECONDS",
            help="wait so long for the lock of this command; 'forever' waits for ever (default: "
            f"{'forever' if self.lock_wait is None else self.lock_wait})",
        )

    def run_from_argv(self, argv: list[str]) -> None:
        """Runs the command as a program, which SIGTERM ends in the way that Ctrl-C does."""
        with _terminable():
            super().run_from_argv(argv)  # type: ignore[misc]

    def execute(self, *args: Any, **options: Any) -> Any:
        wait = options.pop("lock_wait", self.lock_wait)
        try:
            name = self._lock_name(options)
            keywords: LockKeywords = {**self.lock_options, "timeout": wait}
            options_of(name, keywords)
            lock = locks().lock(name, **keywords)
        except ConfigError as error:
            raise CommandError(str(error)) from error
        entered = False
        try:
            with lock as lease:
                entered = True
                self.lease = lease
                return super().execute(*args, **options)  # type: ignore[misc]
        except LockTimeout as error:
            if entered:
                raise
            raise CommandError(str(error), returncode=BUSY) from error
        except BackendUnavailable as error:
            if entered:
                raise
            raise CommandError(str(error), returncode=UNREACHABLE) from error
        except LeaseLost as lost:
            if not entered or lost.owner != self.lease.owner:
                raise
            raise CommandError(str(lost), returncode=LOST) from lost

    def _lock_name(self, options: dict[str, Any]) -> str:
        if not self.lock:
            return checks.lock_name("command:" + type(self).__module__.rpartition(".")[2])
        known = {key: value for key, value in options.items() if value is not None}
        return checks.lock_name(NameTemplate(self.lock, _ANY).fill(known))


@contextmanager
def _terminable() -> Iterator[None]:
    """Lets SIGTERM raise `SystemExit` in the body, so that its lock is released; a second one kills.

    Where the program, or its parent, has decided otherwise about SIGTERM, that stays.
    """
    here = current_thread() is main_thread()  # no other one may say what signals do
    if not here or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return

    def end(number: int, frame: FrameType | None) -> NoReturn:
        signal.signal(number, signal.SIG_DFL)
        sys.exit(128 + number)

    signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGTERM) is end:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _seconds(text: str) -> float | None:
    """Returns the seconds that `--lock-wait` names; None: for ever."""
    return None if text == "forever" else checks.timeout(float(text))


class LockedCommand(CommandLock, BaseCommand):  # type: ignore[misc]
    """A management command that runs under a lock."""
