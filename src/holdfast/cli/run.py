"""`holdfast run`: a command under a lock."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import Lease, Lock, Locks, checks
from . import statuses
from .arguments import STORE_OPTIONS, UsageError
from .attempt import Attempt, holders
from .durations import seconds
from .report import say
from .store import open_store
from .wakeups import Wakeups
from .work import WORK_OPTIONS, WorkOptions, answer, work

if TYPE_CHECKING:
    from .. import MultiLock
    from .several import SeveralLeases

OPTIONS = {
    **STORE_OPTIONS,
    **WORK_OPTIONS,
    "-n": "3",
    "--wait": "10s",
    "--no-wait": "",
    "--busy-ok": "",
}


class RunOptions(WorkOptions):
    """The options of `holdfast run`, checked as far as that needs no store."""

    def __init__(self, words: list[str]) -> None:
        super().__init__(words, OPTIONS, several=True)
        options = self.options
        if "--wait" in options and "--no-wait" in options:
            raise UsageError("--wait and --no-wait exclude each other; give one of them")
        self.permits = _permits(options.get("-n"))
        """How many may run it at once; None for a lock that one holds alone."""
        if self.permits is not None and len(self.names) > 1:
            raise UsageError("-n is for one NAME; several are taken whole")
        if len(set(self.names)) > checks.MAX_NAMES:
            raise UsageError(
                f"at most {checks.MAX_NAMES} NAMEs can be taken at once, not {len(set(self.names))}; "
                "take one lock that stands for all"
            )
        self.wait = 0.0 if "--no-wait" in options else None
        """Seconds to wait; None waits for ever."""
        if "--wait" in options:
            self.wait = seconds("--wait", options["--wait"])
        self.busy_ok = "--busy-ok" in options


def _permits(text: str | None) -> int | None:
    if text is None:
        return None
    if not (text.isascii() and text.isdigit()):
        raise UsageError(f"-n needs a whole number, such as -n 3, and not {text!r:.40}")
    number = int(text.lstrip("0")[:20] or "0")
    if not 1 <= number <= checks.MAX_CAPACITY:
        raise UsageError(f"-n must be from 1 to {checks.MAX_CAPACITY}, not {text:.40}")
    return number


def main(words: list[str]) -> int:
    """Runs the command, and returns the exit status."""
    request = RunOptions(words)
    return answer(request, lambda wakeups: _run(request, wakeups))


def _run(request: RunOptions, wakeups: Wakeups) -> int:
    locks = open_store(request.options, request.label)
    attempt = Attempt(locks, request.names[0], lambda: _obtain(request, locks), wakeups)
    attempt.run()
    if attempt.lease is None:
        request.report.event("busy", name=request.name, waited=round(attempt.waited, 3))
        if not request.busy_ok:
            held_by = holders(locks, request.name) if len(request.names) == 1 else ""
            say(f"{request.name!r} is busy{held_by}")
        locks.close()
        return 0 if request.busy_ok else statuses.BUSY
    outcome = work(request, attempt, wakeups)
    if outcome.freed:
        locks.close()
    return outcome.status


def _obtain(request: RunOptions, locks: Locks) -> Lease | SeveralLeases | None:
    """Returns the lease on what was named; None if it was not granted in time."""
    lock: Lock | MultiLock
    if len(request.names) > 1:
        lock = locks.multi(request.names, ttl=request.ttl)
    elif request.permits is None:
        lock = locks.lock(request.name, ttl=request.ttl)
    else:
        lock = locks.semaphore(request.name, permits=request.permits, ttl=request.ttl)
    wait = request.wait
    lease = lock.acquire(timeout=None) if wait is None else lock.try_acquire(timeout=wait)
    if lease is None or isinstance(lease, Lease):
        return lease
    from .several import SeveralLeases  # not needed for one

    return SeveralLeases(lease)
