"""`holdfast once`: a command at most once in each period, on all machines together."""

from __future__ import annotations

import os
from typing import Any

from .. import Lease, Locks, OnceLease, checks
from . import statuses
from .arguments import STORE_OPTIONS, UsageError
from .attempt import Attempt, holders
from .durations import seconds
from .report import say
from .store import open_store
from .wakeups import Wakeups
from .work import WORK_OPTIONS, WorkOptions, answer, work

OPTIONS = {
    **STORE_OPTIONS,
    **WORK_OPTIONS,
    "--every": "1d",
    "--cron": "'0 3 * * *'",
    "--timezone": "Europe/Berlin",
    "--at-least": "1m",
    "--at-most": "1h",
    "--busy-ok": "",
}


class OnceOptions(WorkOptions):
    """The options of `holdfast once`, checked as far as that needs no store."""

    def __init__(self, words: list[str]) -> None:
        super().__init__(words, OPTIONS)
        options = self.options
        if ("--every" in options) == ("--cron" in options):
            raise UsageError("how often? Give --every 1d or --cron '0 3 * * *', and not both")
        if "--timezone" in options and "--cron" not in options:
            raise UsageError("--timezone is for --cron; --every counts from the last run")
        self.period: float | str = options.get("--cron", "")
        if "--every" in options:
            self.period = checks.ttl(seconds("--every", options["--every"]), "--every")
        more: dict[str, Any] = {}
        if "--timezone" in options:
            more["timezone"] = options["--timezone"]
        if "--at-least" in options:
            more["at_least"] = seconds("--at-least", options["--at-least"])
            if isinstance(self.period, float) and more["at_least"] > self.period:
                raise UsageError(
                    "--at-least is longer than --every, after which others may try anyway"
                )
        if "--at-most" in options:
            self.at_most = seconds("--at-most", options["--at-most"])
            if not self.at_most:
                raise UsageError("--at-most must be more than 0s")
        self.more = more
        """The further arguments of `locks.once`."""
        self.busy_ok = "--busy-ok" in options


def main(words: list[str]) -> int:
    """Runs the command if it is its turn, and returns the exit status."""
    request = OnceOptions(words)
    return answer(request, lambda wakeups: _once(request, wakeups))


def _once(request: OnceOptions, wakeups: Wakeups) -> int:
    locks = open_store(request.options, request.label)
    attempt = Attempt(
        locks,
        request.name,
        lambda: locks.once(request.name, request.period, ttl=request.ttl, **request.more),
        wakeups,
    )
    attempt.run()
    if attempt.lease is None:
        request.report.event("busy", name=request.name)
        if os.isatty(2):  # cron would send it by mail, from every machine but one
            say(f"{request.name!r} was done in this period, or is being done{_by(locks, request)}")
        locks.close()
        return 0 if request.busy_ok else statuses.BUSY
    outcome = work(request, attempt, wakeups, _end)
    if outcome.freed:
        locks.close()
    return outcome.status


def _by(locks: Locks, request: OnceOptions) -> str:
    return holders(locks, request.name).replace("held by", "by")


def _end(lease: Lease, status: int) -> bool:
    """Keeps the slot if the command has done its work, and gives it back if it failed."""
    assert isinstance(lease, OnceLease)
    return lease.release() if status == 0 else lease.give_back()
