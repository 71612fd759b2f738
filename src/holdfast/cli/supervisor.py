"""The command under its lease: at the lease's end, nothing of the command runs any more.

The rules.

- A healthy lease is renewed at a third of its TTL, so two thirds of it are always left. When less
  than one third is left, two renewals have failed; that third is the time to end the command in. A
  renewal that succeeds after that comes too late: the command has been told to stop.
- If the store says that the lease is gone (somebody broke it), the same begins at once, and
  what remained of the lease still is its limit: others were promised no more than that.
- *Ending* is SIGTERM, then SIGCONT so that a stopped one hears it, then SIGKILL after the grace, or a
  margin before the lease's end if that is sooner, to the command and all that comes from it. It has
  ended when nothing of it is left. If something is left a while after SIGKILL (it runs as another
  user, or hangs in the kernel), we do not say that the command was ended, and exit with another
  status.
- Whether a lease is over is asked of the lease, whose clock runs on while we are frozen. Whoever
  finds it over on waking up kills at once; there is nothing left to be graceful in.
- *Leftovers* are what runs on when the command itself has ended. It started them under the lock, so
  they have it too, and we wait for them, unless we were told to end or to leave them. Signals are
  not passed on to them; one that asks to end ends them.

What stands still. A command that somebody stopped from elsewhere keeps its lease; he will continue
it. One that was stopped at the terminal (Ctrl-Z, or by reading it in the background) takes us and our
job with it, so that the shell notices; once continued, we look at the lease before it goes on.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence
from typing import TYPE_CHECKING

from .. import Lease, LeaseLost, LockError
from . import statuses
from .background import BackgroundCall
from .child import Child
from .processes import Process
from .report import Report, say
from .terminal import Terminal
from .wakeups import ENDING, FORWARDED, LONGEST_SLEEP, Wakeups, now

if TYPE_CHECKING:
    from .several import SeveralLeases

_FOR_TERMINAL = (signal.SIGTTIN, signal.SIGTTOU)
_ASKING = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT)
"""Signals that ask us to end: they end leftovers, and no other term begins after them."""
_LOOK_AGAIN = 0.1
"""Seconds until we look for those who were adopted meanwhile, and are to hear that they shall end."""
_KILL_AGAIN = 0.02
"""Seconds until we look again whether those who were killed have gone."""
_REAP = 5.0
"""Seconds in which everybody should have gone, once we kill."""
_LINGER = 1.0
"""Seconds after the command's end in which leftovers may end without a word about them."""
_REFRESH = 0.5
_SHOWN = 5
"""So many processes are named in a line."""

LEFTOVERS = ("wait", "end", "leave")
"""The choices of what becomes of processes that run on when the command itself has ended."""


class Supervisor:
    def __init__(
        self,
        lease: Lease | SeveralLeases,
        child: Child,
        wakeups: Wakeups,
        terminal: Terminal | None,
        report: Report,
        grace: float,
        leftovers: str = "wait",
        at_most: float | None = None,
    ) -> None:
        self._lease = lease
        self._child = child
        self._wakeups = wakeups
        self._terminal = terminal
        self._report = report
        self._grace = grace
        self._leftovers = leftovers
        self._ends_at = None if at_most is None else now() + at_most
        """The time at which the command has run for long enough, if there is one."""
        self._exited: float | None = None
        """The time at which we saw that the command itself had ended."""
        self._told_of_leftovers = self._ended_leftovers = False
        self._third = lease.ttl / 3
        self._margin = min(0.25, lease.ttl / 10)
        self._due = 0.0
        """The latest time at which we meant to look again."""
        self._held_back = False
        """True while the command is kept stopped until its lease is renewed."""
        self.until = now() + lease.remaining()
        """The lease's end as we last saw it, on our clock."""
        self.lost: str | None = None
        """The reason why the lease ended before the command did, if it has."""
        self.survived = False
        """True if something of the command could not be ended when it had to."""
        self.asked_to_end = False
        """True if a signal has asked us to end, whatever the command made of it."""

    def watch(self) -> None:
        """Waits until the command has ended, or has been ended because of its lease."""
        try:
            self._report.event("started", pid=self._child.pid)
            self._lease.on_lost(lambda lease: self._wakeups.nudge())
            if self._terminal is not None and self._terminal.is_for_us_alone():
                self._terminal.lend(self._child.pid)
            while self._goes_on():
                pass
        except BaseException:
            self._end()  # whatever went wrong here, it must not run on unsupervised
            raise
        finally:
            self._note_exit()

    def _goes_on(self) -> bool:
        child = self._child
        stopped = child.poll()
        looked = now()
        left = self._look()
        if left < self._third and looked > self._due:
            # We stood still, with the keeper, or the machine slept: nobody has failed to renew.
            self._refresh()
            left = self._look()
        ended = self._has_ended()
        if left <= 0 or (not ended and left < self._third):
            self._lose()
            return False
        if ended:
            return False
        if stopped is not None:
            self._stopped(stopped)
            return True
        if self._held_back:  # by a renewal that took longer than we waited for it
            self._continue()
        nap = min(left - self._third, LONGEST_SLEEP)
        if self._ends_at is not None:
            if looked >= self._ends_at:
                self._end_for_time()
                return True
            nap = min(nap, self._ends_at - looked)
        self._due = looked + nap + self._margin
        for number in self._hear(nap):
            if number == signal.SIGCONT:
                self._continue()
            elif self._exited is None:
                if number in FORWARDED or number == signal.SIGTSTP:
                    child.tell(number)
            elif number in _ASKING:
                self._end()
        return True

    def _end_for_time(self) -> None:
        """Ends a command that has run for longer than it may."""
        self._ends_at = None
        self._report.event("too_long", name=self._lease.name)
        say("the command has run for longer than it may (--at-most), so it is ended")
        self._end()

    def _has_ended(self) -> bool:
        """Returns True if the command has ended, and its leftovers as well, or they do not matter."""
        if self._child.status is None:
            return False
        self._note_exit()
        if self._leftovers == "leave" or not self._child.lives():
            return True
        if self._leftovers == "end" or (self.asked_to_end and not self._ended_leftovers):
            self._leftovers = "wait"  # for those that cannot be ended
            self._ended_leftovers = True
            self._end()
            return not self._child.lives()
        self._tell_of_leftovers()
        return False

    def _note_exit(self) -> None:
        """Deals with the end of the command itself, once."""
        status = self._child.status
        if self._exited is not None:
            return
        if self._terminal is not None:
            self._terminal.take_back(self._child.pid)
            if status is not None and status < 0:
                self._terminal.restore()
        if status is not None:
            self._exited = now()
            if status < 0:
                self._report.event("exited", status=statuses.ended_by(-status), signal=-status)
            else:
                self._report.event("exited", status=status)

    def _tell_of_leftovers(self) -> None:
        if self._told_of_leftovers or self._exited is None or now() < self._exited + _LINGER:
            return
        self._told_of_leftovers = True
        left = self._child.left()
        self._report.event("leftovers", name=self._lease.name, pids=[one.pid for one in left])
        say(
            f"the command has ended, but the lock {self._lease.name!r} is held until what it left "
            f"running has ended too: {_listed(left)}. "
            "To end or to leave it instead, see --leftovers in: holdfast run --help"
        )

    def _look(self) -> float:
        left = self._lease.remaining()
        if left > 0:
            self.until = now() + left
        return left

    # Losing the lease.

    def _lose(self) -> None:
        try:
            self._lease.ensure()
            self.lost = "the store does not answer its renewals"
        except LeaseLost as loss:
            self.lost = loss.reason or str(loss)
        left = max(0.0, self.until - now())
        self._report.event("lost", name=self._lease.name, reason=self.lost, left=round(left, 3))
        self._end()
        outcome = "" if self.survived else ", so the command was ended"
        say(f"the lease on {self._lease.name!r} is lost{outcome}: {self.lost}")

    def _end(self) -> None:
        """Ends the command and all that comes from it, within what is left of the lease."""
        child = self._child
        started = now()
        while child.lives() and now() < (kill_at := self._kill_at(started)):
            child.ask_to_end()
            self._nap(min(kill_at - now(), _LOOK_AGAIN))
        give_up = now() + _REAP
        while child.lives() and now() < give_up:
            if not child.kill():
                self._nap(_KILL_AGAIN)
        self.survived = child.lives()
        if self.survived:
            left = child.left()
            self._report.event("not_ended", name=self._lease.name, pids=[one.pid for one in left])
            say(f"not all of the command could be ended; it may still run: {_listed(left)}")

    def _kill_at(self, started: float) -> float:
        """Returns the time by which those who were asked to end have to have ended."""
        if self.lost is None:
            self._look()
        return min(started + self._grace, self.until - self._margin)

    def _nap(self, seconds: float) -> None:
        """Waits until a signal comes, such as that of a child's end. Others are not passed on."""
        self._hear(seconds, ENDING)

    def _hear(self, seconds: float, asking: Sequence[int] = _ASKING) -> Sequence[int]:
        """Returns the signals that came, after at most so long; notes those that ask us to end."""
        heard = self._wakeups.wait(seconds)
        if any(number in asking for number in heard):
            self.asked_to_end = True
        return heard

    # Standing still.

    def _stopped(self, number: int) -> None:
        """Deals with a command that this signal has stopped."""
        terminal = self._terminal
        if terminal is None:
            return
        lent = terminal.is_with(self._child.pid)
        if number in _FOR_TERMINAL and (lent or terminal.is_ours()):
            # It may have asked before it was lent the terminal, and been stopped after.
            terminal.lend(self._child.pid)
            self._child.tell(signal.SIGCONT)
            return
        if number == signal.SIGSTOP and not lent:
            return
        terminal.take_back(self._child.pid)
        # The lease shall have all of its TTL, and the keeper shall not be about to renew: a process
        # that is stopped in the middle of a step on the embedded store holds up everybody else.
        self._refresh()
        # The rest of our job is stopped too, unless it had the terminal and so heard it anyway. By
        # which signal tells the shell, or a wrapper around us, what we are waiting for.
        wanted = number in _FOR_TERMINAL
        stopped = self._wakeups.stop(
            signal.SIGTTIN if wanted else signal.SIGTSTP, everybody=lent or wanted
        )
        if not stopped and wanted:
            say("the command needs the terminal, which this job cannot have; it stays stopped")
            return
        self._continue()

    def _continue(self) -> None:
        """Lets the command go on, if its lease is still good after we stood still."""
        self._refresh()
        self._held_back = self._look() < self._third
        if self._held_back:
            return
        if self._terminal is not None and self._terminal.lent:
            self._terminal.lend(self._child.pid)
        self._child.wake()

    def _refresh(self) -> None:
        """Renews now, unless the store takes too long: the command must not wait for it."""
        if self._lease.held:
            renewal = BackgroundCall(self._renew, self._wakeups.nudge)
            self._wakeups.wait_for(renewal.ended, min(_REFRESH, self._lease.remaining() / 2))

    def _renew(self) -> None:
        try:
            self._lease.renew()
        except LockError:
            return  # the lease knows


def _listed(processes: list[Process]) -> str:
    shown = [str(process) for process in processes[:_SHOWN]]
    if len(processes) > _SHOWN:
        shown.append(f"and {len(processes) - _SHOWN} more")
    return ", ".join(shown) or "a process that /proc does not show"
