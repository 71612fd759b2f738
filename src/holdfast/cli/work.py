"""A command under a lease: started, watched over, ended, and the lease after it.

`run`, `lead` and `once` get their leases in ways of their own, and let the command run here.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

from .. import BackendUnavailable, ConfigError, GuaranteeError, Lease, LeaseLost, LockError, checks
from ..model import AROUND, SESSION_ID
from . import statuses
from .arguments import UsageError, sort, unknown
from .attempt import Attempt, Interrupted
from .child import Child
from .durations import seconds
from .report import Report, in_words, say
from .spawn import CannotStart
from .supervisor import LEFTOVERS, Supervisor
from .terminal import Terminal, end_like_a_job
from .wakeups import Wakeups, now

if TYPE_CHECKING:
    from .several import SeveralLeases

WORK_OPTIONS = {
    "--ttl": "30s",
    "--grace": "5s",
    "--leftovers": "wait|end|leave",
    "--label": "TEXT",
    "--status-fd": "N",
}
"""The options of every command that runs another, beside those of the store."""


_TOLD = ("HOLDFAST_TOKEN", "HOLDFAST_TOKENS", "HOLDFAST_LOCK_ID", "HOLDFAST_SLOT")
"""The variables that a command around us may have been given, and that ours does not inherit."""


class WorkOptions:
    """The options of a command that runs another, checked as far as that needs no store."""

    def __init__(self, words: list[str], known: dict[str, str], several: bool = False) -> None:
        given = sort(words, known)
        options = given.options
        if not given.operands:
            raise UsageError("which lock? Give it a name before the --")
        if given.command is None:
            raise UsageError("put -- between the options and the command to run")
        if len(given.operands) > 1 and not several:
            raise UsageError(f"one NAME only, and not also {given.operands[1]!r}, before the --")
        if not given.command:
            raise UsageError("there is no command to run after the --")
        self.names = given.operands
        self.name = ", ".join(given.operands)
        self.command = given.command
        self.ttl = checks.ttl(seconds("--ttl", options.get("--ttl", "30s")), "--ttl")
        self.grace = seconds("--grace", options.get("--grace", "5s"))
        self.leftovers = options.get("--leftovers", "wait")
        if self.leftovers not in LEFTOVERS:
            raise unknown("value of --leftovers", self.leftovers, LEFTOVERS)
        self.options = options
        self.label = options.get("--label", "")
        self.at_most: float | None = None
        """Seconds after which the command is ended; None: it may take its time."""
        # Before anything is opened that could have the same number.
        self.report = Report.to(options.get("--status-fd"))


def answer(request: WorkOptions, run: Callable[[Wakeups], int]) -> int:
    """Returns the exit status of `run`, in which the lock is got and the command runs under it.

    It is given what hears signals, and returns the status, or -n if signal n ended the command.
    """
    _occupy_standard_descriptors()
    status = _status(request, run)
    request.report.finish()
    if status >= 0:
        return status
    end_like_a_job(-status)
    return statuses.ended_by(-status)


def _status(request: WorkOptions, run: Callable[[Wakeups], int]) -> int:
    """Returns the exit status, or -n if signal n ended the command or our waiting."""
    report = request.report
    try:
        return run(Wakeups())
    except (ConfigError, GuaranteeError) as error:
        report.event("refused", name=request.name, error=in_words(error))
        report.finish()
        raise
    except BackendUnavailable as error:
        report.event("unreachable", name=request.name, error=in_words(error))
        say(f"the store cannot be used, so the command was not run: {in_words(error)}")
        return statuses.UNREACHABLE
    except LeaseLost as error:
        report.event("lost", name=request.name, reason=error.reason)
        say(f"the command was not run: {error}")
        return statuses.LOST
    except Interrupted as error:
        report.event("interrupted", name=request.name, signal=error.number)
        return -error.number


class Outcome(NamedTuple):
    """The end of a command."""

    status: int
    """The exit status; -n if signal n ended the command."""
    lost: bool = False
    """Whether the lease was lost before the command had ended."""
    freed: bool = False
    """Whether the store has answered the end of the lease."""
    asked_to_end: bool = False
    """Whether a signal has asked us to end while the lease was held."""


def work(
    request: WorkOptions,
    attempt: Attempt,
    wakeups: Wakeups,
    end: Callable[[Any, int], bool] | None = None,
) -> Outcome:
    """Runs the command under the lease that `attempt` has got, and ends the lease after it.

    `end` is told the command's status (-n for signal n), and ends the lease: False if that had ended.
    Raises `LeaseLost` if the lease has ended before the command was started.
    """
    lease, report = attempt.lease, request.report
    assert lease is not None
    report.event(
        "acquired",
        name=lease.name,
        token=lease.token if isinstance(lease, Lease) else None,
        tokens=None if isinstance(lease, Lease) else lease.tokens,
        owner=lease.owner,
        ttl=lease.ttl,
        waited=round(attempt.waited, 3),
    )
    wakeups.hear_stops()
    terminal = Terminal.open()
    try:
        return _watched(request, attempt, wakeups, terminal, end)
    finally:
        if terminal is not None:
            terminal.close()


def _watched(
    request: WorkOptions,
    attempt: Attempt,
    wakeups: Wakeups,
    terminal: Terminal | None,
    end: Callable[[Any, int], bool] | None,
) -> Outcome:
    """Does as `work`, once the lease is told of."""
    lease, report = attempt.lease, request.report
    assert lease is not None
    ignored = () if terminal is None else terminal.default_signals
    finish = end or (lambda lease, status: lease.release())
    lease.ensure()  # we may have stood still since it was confirmed
    try:
        child = Child.start(
            request.command, _environment(lease, request.leftovers), attempt.tethers, ignored
        )
    except CannotStart as error:
        report.event("not_started", error=str(error), status=error.status)
        say(str(error))
        return Outcome(error.status, False, _free(lease, error.status, finish, report) is True)
    supervisor = Supervisor(
        lease,
        child,
        wakeups,
        terminal,
        report,
        request.grace,
        request.leftovers,
        request.at_most,
    )
    supervisor.watch()
    if supervisor.lost is not None or child.status is None:
        status = statuses.NOT_ENDED if supervisor.survived else statuses.LOST
        return Outcome(status, lost=True, asked_to_end=supervisor.asked_to_end)
    # Released only now that the work has ended. If there was nothing left to release although it
    # was not over by our clock, then somebody else may have had the lock beside the command.
    freed = _free(lease, child.status, finish, report)
    if freed is not False or now() >= supervisor.until:
        return Outcome(child.status, False, freed is True)
    reason = "it had ended before the command did"
    report.event("lost", name=lease.name, reason=reason)
    say(f"the lease on {lease.name!r} is lost: {reason}")
    return Outcome(statuses.LOST, lost=True, asked_to_end=supervisor.asked_to_end)


def _free(
    lease: Lease | SeveralLeases,
    status: int,
    finish: Callable[[Any, int], bool],
    report: Report,
) -> bool | None:
    """Ends the lease: False if there was nothing to end any more, None if there was no answer."""
    try:
        freed = finish(lease, status)
    except LockError as error:
        report.event("release_failed", name=lease.name, error=str(error))
        say(f"the lock could not be released; it ends by itself within {lease.ttl:g} s: {error}")
        return None
    if freed:
        report.event("released", name=lease.name)
    return freed


def _environment(lease: Lease | SeveralLeases, leftovers: str) -> dict[str, str]:
    told = {name: value for name, value in os.environ.items() if name not in _TOLD}
    ttl = int(lease.ttl) if lease.ttl == int(lease.ttl) else lease.ttl
    told |= {"HOLDFAST_LOCK": lease.name, "HOLDFAST_OWNER": lease.owner, "HOLDFAST_TTL": str(ttl)}
    if leftovers == "wait":  # for whatever has this; else nobody knows if we do
        told[AROUND] = ",".join([lease.owner[:SESSION_ID], *filter(None, [os.environ.get(AROUND)])])
    if not isinstance(lease, Lease):
        from json import dumps  # slow to import, and only needed here

        # No token stands for all: each is compared with others of its own lock.
        told["HOLDFAST_TOKENS"] = dumps(lease.tokens, ensure_ascii=False)
        told["HOLDFAST_LOCK"] = lease.names
        return told
    told["HOLDFAST_TOKEN"] = str(lease.token)
    told["HOLDFAST_LOCK_ID"] = quote(lease.lock_id, safe="/:#")
    if lease.kind == "semaphore":
        _tell_slot(lease, told)
    return told


def _tell_slot(lease: Lease, told: dict[str, str]) -> None:
    """Adds the slot, which is a lock of its own to a fence; without one no fence can take the token."""
    if lease.slot is None:
        del told["HOLDFAST_LOCK_ID"]
        return
    from ..fences.http import LOCK, fencing_headers

    told["HOLDFAST_SLOT"] = str(lease.slot)
    told["HOLDFAST_LOCK_ID"] = fencing_headers(lease)[LOCK]


def _occupy_standard_descriptors() -> None:
    """Fills those of descriptors 0 to 2 that are closed, so that no file of ours takes their place.

    It would be written to by whoever writes to stderr. The command still finds them closed.
    """
    while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(fd)
