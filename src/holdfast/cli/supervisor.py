"""The command under its lease: at the lease's end, nothing of the command runs any more.

The rules.

- A healthy lease is renewed at a third of its TTL, so two thirds of it are always left. When less
  than one third is left, two renewals have failed; that third is the time to end the command in. A
  renewal that succeeds after that comes too late: the command has been told to stop.
- If the store says that the lease is gone (somebody broke it), the same begins at once, and
  what remained of the lease still is its limit: others were promised no more than that.
- *Ending* is SIGTERM to the whole process group, then SIGCONT so that a stopped one hears it, then
  SIGKILL after the grace, or a margin before the lease's end if that is sooner. It has ended when
  nobody is left in the group: children that outlive the command are ended as well.
- Whether a lease is over is asked of the lease, whose clock runs on while we are frozen. Whoever
  finds it over on waking up kills at once; there is nothing left to be graceful in.
- A command that ended by itself while the lease was held is left alone, with whatever it left
  running in its group: that is the user's.

What stands still. A command that somebody stopped from elsewhere keeps its lease; he will continue
it. One that was stopped at the terminal (Ctrl-Z, or by reading it in the background) takes us and our
job with it, so that the shell notices; once continued, we look at the lease before it goes on.
"""

from __future__ import annotations

import signal

from .. import Lease, LeaseLost, LockError
from . import statuses
from .background import BackgroundCall
from .child import Child
from .report import Report, say
from .terminal import Terminal
from .wakeups import FORWARDED, LONGEST_SLEEP, Wakeups, now

_FOR_TERMINAL = (signal.SIGTTIN, signal.SIGTTOU)
_POLL_GROUP = 0.02
"""No signal tells that the last of a group has ended, once our own child has."""
_REAP = 1.0
"""Seconds after SIGKILL in which a group should have gone. Beyond, its dead await somebody else."""
_REFRESH = 0.5


class Supervisor:
    def __init__(
        self,
        lease: Lease,
        child: Child,
        wakeups: Wakeups,
        terminal: Terminal | None,
        report: Report,
        grace: float,
    ) -> None:
        self._lease = lease
        self._child = child
        self._wakeups = wakeups
        self._terminal = terminal
        self._report = report
        self._grace = grace
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
            status = self._child.status
            if self._terminal is not None:
                self._terminal.take_back(self._child.pid)
                if status is not None and status < 0:
                    self._terminal.restore()
        if status is not None and status < 0:
            self._report.event("exited", status=statuses.ended_by(-status), signal=-status)
        elif status is not None:
            self._report.event("exited", status=status)

    def _goes_on(self) -> bool:
        child = self._child
        stopped = child.poll()
        looked = now()
        left = self._look()
        if left < self._third and looked > self._due:
            # We stood still, with the keeper, or the machine slept: nobody has failed to renew.
            self._refresh()
            left = self._look()
        if left <= 0 or (child.status is None and left < self._third):
            self._lose()
            return False
        if child.status is not None:
            return False
        if stopped is not None:
            self._stopped(stopped)
            return True
        if self._held_back:  # by a renewal that took longer than we waited for it
            self._continue()
        nap = min(left - self._third, LONGEST_SLEEP)
        self._due = looked + nap + self._margin
        for number in self._wakeups.wait(nap):
            if number == signal.SIGCONT:
                self._continue()
            elif number in FORWARDED or number == signal.SIGTSTP:
                child.tell(number)
        return True

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
        say(f"the lease on {self._lease.name!r} is lost, so the command was ended: {self.lost}")

    def _end(self) -> None:
        """Ends the whole group, within what is left of the lease."""
        child = self._child
        started = now()
        kill_at = min(started + self._grace, self.until - self._margin)
        if kill_at > started:
            child.tell(signal.SIGTERM)
            child.tell(signal.SIGCONT)
            while self._lives() and now() < kill_at:
                self._nap(kill_at)
        give_up = now() + _REAP
        while self._lives() and now() < give_up:
            if not child.tell(signal.SIGKILL) and child.status is None:
                say("not allowed to end the command, which runs as another user")
                return
            self._nap(give_up)

    def _lives(self) -> bool:
        self._child.poll()
        return self._child.group_lives()

    def _nap(self, until: float) -> None:
        """Waits until a signal comes, such as that of the child's end. Others are dropped."""
        left = until - now()
        self._wakeups.wait(left if self._child.status is None else min(left, _POLL_GROUP))

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
        # The rest of our job is stopped too, unless it had the terminal and so heard it anyway.
        stopped = self._wakeups.stop(everybody=lent or number in _FOR_TERMINAL)
        if not stopped and number in _FOR_TERMINAL:
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
        self._child.tell(signal.SIGCONT)

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
