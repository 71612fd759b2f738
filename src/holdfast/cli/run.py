"""`holdfast run`: a command under a lock."""

from __future__ import annotations

import os
import sys
from urllib.parse import quote

from .. import (
    BackendUnavailable,
    ConfigError,
    GuaranteeError,
    Lease,
    LeaseLost,
    LockError,
    Locks,
    connect,
)
from . import statuses
from .arguments import STORE_OPTIONS, HelpWanted, UsageError, sort, unknown
from .attempt import Attempt, Interrupted, holders
from .child import Child
from .durations import seconds
from .report import Report, say
from .spawn import CannotStart
from .supervisor import LEFTOVERS, Supervisor
from .terminal import Terminal, end_like_a_job
from .wakeups import Wakeups, now

SYNOPSIS = "holdfast run NAME [--ttl 30s] [--wait 10s | --no-wait] [--busy-ok] -- COMMAND…"

HELP = f"""\
Usage: {SYNOPSIS}

Runs COMMAND while holding the lock NAME; the lock is released when COMMAND has ended, and
all that it started, daemons too. COMMAND finds HOLDFAST_LOCK, HOLDFAST_TOKEN (the fencing
token), HOLDFAST_OWNER and HOLDFAST_TTL in its environment. If the lease is lost, COMMAND and
all that it started is ended before anybody else can be granted the lock.

Waiting:
  --wait TIME             wait at most so long; without it, for ever
  --no-wait               do not wait
  --busy-ok               when it is not granted, exit with 0 instead of 75

The lease:
  --ttl TIME              how long the lock outlives us if this machine dies (default: 30s);
                          it is renewed while COMMAND runs
  --grace TIME            from SIGTERM to SIGKILL when the lease is lost (default: 5s), at
                          most what is left of the lease
  --leftovers WHAT        processes that run on when COMMAND itself has ended: wait for them
                          (default), end them, or leave them, without the lock
  --label TEXT            shown to those who look at who holds the lock

The store:
  --url URL               such as sqlite:///var/lib/app/locks.db; otherwise $HOLDFAST_URL,
                          otherwise a file of this machine and user
  --namespace NAMESPACE   keeps apart those who share a store (default: holdfast)

  --status-fd N           write what happens to this descriptor, a JSON object per line
  -h, --help              this text

TIME is a number and ms, s, m, h or d. Exit status: COMMAND's own (128+n if signal n ended
it); 75 busy; 76 the lease was lost, and COMMAND was ended; 77 the lease was lost, and COMMAND
could not be ended; 69 the store is unreachable; 126 COMMAND cannot be run; 127 COMMAND was
not found; 2 usage.
"""

OPTIONS = {
    **STORE_OPTIONS,
    "--ttl": "30s",
    "--wait": "10s",
    "--no-wait": "",
    "--busy-ok": "",
    "--grace": "5s",
    "--leftovers": "wait|end|leave",
    "--label": "TEXT",
    "--status-fd": "N",
}


class RunOptions:
    """The options of `holdfast run`, checked as far as that needs no store."""

    def __init__(self, words: list[str]) -> None:
        given = sort(words, OPTIONS)
        options = given.options
        if not given.operands:
            raise UsageError("which lock? Give it a name before the --")
        if given.command is None:
            raise UsageError("put -- between the options and the command to run")
        if len(given.operands) > 1:
            raise UsageError(f"one NAME only, and not also {given.operands[1]!r}, before the --")
        if not given.command:
            raise UsageError("there is no command to run after the --")
        if "--wait" in options and "--no-wait" in options:
            raise UsageError("--wait and --no-wait exclude each other; give one of them")
        self.name = given.operands[0]
        self.command = given.command
        self.ttl = seconds("--ttl", options.get("--ttl", "30s"))
        self.grace = seconds("--grace", options.get("--grace", "5s"))
        self.leftovers = options.get("--leftovers", "wait")
        if self.leftovers not in LEFTOVERS:
            raise unknown("value of --leftovers", self.leftovers, LEFTOVERS)
        self.wait = 0.0 if "--no-wait" in options else None
        """Seconds to wait; None waits for ever."""
        if "--wait" in options:
            self.wait = seconds("--wait", options["--wait"])
        self.busy_ok = "--busy-ok" in options
        self.url = options.get("--url")
        self.namespace = options.get("--namespace", "holdfast")
        self.label = options.get("--label", "")
        # Before anything is opened that could have the same number.
        self.report = Report.to(options.get("--status-fd"))


def main(words: list[str]) -> int:
    """Runs the command, and returns the exit status."""
    try:
        request = RunOptions(words)
    except HelpWanted:
        sys.stdout.write(HELP)
        return 0
    except UsageError as error:
        return _misused(error)
    status = _answer(request, request.report)
    request.report.finish()
    if status >= 0:
        return status
    end_like_a_job(-status)
    return statuses.ended_by(-status)


def _answer(request: RunOptions, report: Report) -> int:
    """The exit status, or -n if signal n ended the command or our waiting."""
    try:
        return _run(request, report)
    except (ConfigError, GuaranteeError) as error:
        report.event("refused", name=request.name, error=str(error))
        return _misused(error)
    except BackendUnavailable as error:
        report.event("unreachable", name=request.name, error=str(error))
        say(f"the store is unreachable, so the command was not run: {error}")
        return statuses.UNREACHABLE
    except LeaseLost as error:
        report.event("lost", name=request.name, reason=error.reason)
        say(f"the command was not run: {error}")
        return statuses.LOST
    except Interrupted as error:
        report.event("interrupted", name=request.name, signal=error.number)
        return -error.number


def _misused(error: Exception) -> int:
    say(f"{error}\nUsage: {SYNOPSIS}\nSee: holdfast run --help")
    return statuses.USAGE


def _run(request: RunOptions, report: Report) -> int:
    _occupy_standard_descriptors()
    wakeups = Wakeups()
    locks = _connect(request)
    lock = locks.lock(request.name, ttl=request.ttl)
    attempt = Attempt(locks, lock, request.wait, wakeups)
    attempt.run()
    lease = attempt.lease
    waited = round(attempt.waited, 3)
    if lease is None:
        report.event("busy", name=request.name, waited=waited)
        if not request.busy_ok:
            say(f"{request.name!r} is busy{holders(locks, request.name)}")
        locks.close()
        return 0 if request.busy_ok else statuses.BUSY
    report.event(
        "acquired",
        name=lease.name,
        token=lease.token,
        owner=lease.owner,
        ttl=lease.ttl,
        waited=waited,
    )
    wakeups.hear_stops()
    terminal = Terminal.open()
    ignored = () if terminal is None else terminal.default_signals
    try:
        child = Child.start(request.command, _environment(lease), attempt.tether, ignored)
    except CannotStart as error:
        report.event("not_started", error=str(error), status=error.status)
        say(str(error))
        _release(lease, locks, report)
        return error.status
    supervisor = Supervisor(
        lease, child, wakeups, terminal, report, request.grace, request.leftovers
    )
    supervisor.watch()
    if supervisor.lost is not None or child.status is None:
        return statuses.NOT_ENDED if supervisor.survived else statuses.LOST
    # Released only now that the work has ended. If there was nothing left to release although it
    # was not over by our clock, then somebody else may have had the lock beside the command.
    if _release(lease, locks, report) or now() >= supervisor.until:
        return child.status
    reason = "it had ended before the command did"
    report.event("lost", name=lease.name, reason=reason)
    say(f"the lease on {lease.name!r} is lost: {reason}")
    return statuses.LOST


def _connect(request: RunOptions) -> Locks:
    if request.url is None and not os.environ.get("HOLDFAST_URL"):
        import warnings

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it is said here, in one line
            locks = connect(namespace=request.namespace, label=request.label)
        say(
            f"the locks in {locks.url} serve this machine and user only; name another store "
            "with --url or $HOLDFAST_URL"
        )
        return locks
    locks = connect(request.url, namespace=request.namespace, label=request.label)
    if locks.url.startswith("memory:"):
        say("locks in memory:// exclude nobody outside this very command")
    return locks


def _environment(lease: Lease) -> dict[str, str]:
    ttl = int(lease.ttl) if lease.ttl == int(lease.ttl) else lease.ttl
    return {
        **os.environ,
        "HOLDFAST_LOCK": lease.name,
        "HOLDFAST_LOCK_ID": quote(lease.lock_id, safe="/:#"),
        "HOLDFAST_TOKEN": str(lease.token),
        "HOLDFAST_OWNER": lease.owner,
        "HOLDFAST_TTL": str(ttl),
    }


def _release(lease: Lease, locks: Locks, report: Report) -> bool:
    """False if there was nothing to release any more."""
    try:
        freed = lease.release()
    except LockError as error:
        report.event("release_failed", name=lease.name, error=str(error))
        say(f"the lock could not be released; it ends by itself within {lease.ttl:g} s: {error}")
        return True
    if freed:
        report.event("released", name=lease.name)
    locks.close()
    return freed


def _occupy_standard_descriptors() -> None:
    """Fills those of descriptors 0 to 2 that are closed, so that no file of ours takes their place.

    It would be written to by whoever writes to stderr. The command still finds them closed.
    """
    while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(fd)
