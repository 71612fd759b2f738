"""`holdfast lead`: a command while we lead; we stand by otherwise.

The command is started at the beginning of each term, and ended when the term ends before it. Then we
stand by again, for the next term. It is over when the command has ended by itself, or when we are
told to end.
"""

from __future__ import annotations

from .. import BackendUnavailable, Lease, LeaseLost, Locks, Term, checks
from . import statuses
from .arguments import STORE_OPTIONS
from .attempt import Attempt, Interrupted
from .background import BackgroundCall
from .report import in_words, say
from .store import open_store
from .wakeups import ENDING, Wakeups, now
from .work import WORK_OPTIONS, WorkOptions, answer, work

OPTIONS = {**STORE_OPTIONS, **WORK_OPTIONS, "--value": "TEXT"}

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 15.0
"""Seconds until a store that could not be reached is asked again; twice as long each time. So it is
where terms are lost before their command began, one after the other."""


def main(words: list[str]) -> int:
    """Stands by, runs the command in each term, and returns the exit status."""
    request = WorkOptions(words, OPTIONS)
    return answer(request, lambda wakeups: _lead(request, wakeups))


def _lead(request: WorkOptions, wakeups: Wakeups) -> int:
    pause = FIRST_PAUSE
    value = request.options.get("--value", "")
    if value:
        checks.printable("the text of --value", value, checks.MAX_LABEL)
    while True:
        locks = open_store(request.options, request.label)
        shown = request.options.get("--value", request.label)
        election = locks.election(request.name, shown or None, ttl=request.ttl)
        attempt = Attempt(locks, request.name, election.campaign, wakeups)
        try:
            attempt.run()
            outcome = work(request, attempt, wakeups, _resign)
        except LeaseLost as error:
            request.report.event("lost", name=request.name, reason=error.reason)
            say(f"the command was not run: {error}")
            _stand_by(request, locks, wakeups)
            _wait(wakeups, pause - FIRST_PAUSE)  # not at the first time
            pause = min(2 * pause, LONGEST_PAUSE)
            continue
        except BackendUnavailable as error:
            reason = in_words(error)
            request.report.event("unreachable", name=request.name, error=reason)
            say(f"the store cannot be used; asking again in {pause:g} s: {reason}")
            _wait(wakeups, pause)
            pause = min(2 * pause, LONGEST_PAUSE)
            continue
        pause = FIRST_PAUSE
        if outcome.freed:
            locks.close()
        if not outcome.lost or outcome.status != statuses.LOST or outcome.asked_to_end:
            return outcome.status
        _stand_by(request, locks, wakeups)


def _stand_by(request: WorkOptions, locks: Locks, wakeups: Wakeups) -> None:
    """Leaves a term that was lost."""
    wakeups.leave_stops()
    BackgroundCall(locks.close, wakeups.nudge)  # whatever it is that does not answer
    say(f"standing by for the next term of {request.name!r}")


def _resign(lease: Lease, status: int) -> bool:
    assert isinstance(lease, Term)
    return lease.resign()


def _wait(wakeups: Wakeups, seconds: float) -> None:
    """Waits, unless a signal comes that ends us."""
    until = now() + seconds
    while (left := until - now()) > 0:
        for number in wakeups.wait(left):
            if number in ENDING:
                raise Interrupted(number)
