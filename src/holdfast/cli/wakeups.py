"""Signals and other threads, heard in one place: a pipe that the main thread waits on.

No handler here ever raises or does anything, so no signal can break into the middle of a step on
the store; each is a byte in the pipe, and is acted upon when the main thread comes to read it.
What was ignored when we started (`nohup`, a shell's background jobs) stays ignored, for the command
as well.
"""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import FrameType

ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
"""Signals that end us while there is no command yet."""
FORWARDED = (*ENDING, signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH)
"""Signals that the command gets as they come."""

LONGEST_SLEEP = 1.0
"""A sleep stands still while the machine is suspended; leases do not. So look."""
_BOOTTIME: int | None = getattr(time, "CLOCK_BOOTTIME", None)
_TOLD = 1.0
"""Seconds in which somebody who goes on after a stop has surely been told of it."""


def now() -> float:
    """Returns the seconds on the clock that leases are counted on."""
    return time.monotonic() if _BOOTTIME is None else time.clock_gettime(_BOOTTIME)


class Wakeups:
    """The pipe and its handlers, made once, in the main thread, and there until the process ends."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)
        self._heard: list[int] = []
        self.watched: dict[int, int] = {}
        """The other descriptors that end a wait, each with the events of poll that do."""
        self.ready: dict[int, int] = {}
        """The descriptors that ended the last wait, each with the events that came."""
        signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        self.hear(*FORWARDED, signal.SIGCONT, signal.SIGCHLD)

    def hear(self, *numbers: int) -> None:
        for number in numbers:
            if signal.getsignal(number) is not signal.SIG_IGN or number == signal.SIGCHLD:
                signal.signal(number, _nothing)

    def hear_stops(self) -> None:
        """Hears Ctrl-Z, from before the command starts: from then on it must never stop us alone."""
        self.hear(signal.SIGTSTP)

    def leave_stops(self) -> None:
        """Lets Ctrl-Z stop us again, once no command of ours runs any more."""
        if signal.getsignal(signal.SIGTSTP) is _nothing:
            signal.signal(signal.SIGTSTP, signal.SIG_DFL)

    def nudge(self) -> None:
        """Wakes the main thread, from another one."""
        try:
            os.write(self._write, b"\0")
        except BlockingIOError:
            return  # it has enough to wake up for

    def wait(self, seconds: float) -> Sequence[int]:
        """Returns the signals that came, after at most so long, and sooner if nudged."""
        if not self._heard:
            self._listen(seconds)
        heard, self._heard = self._heard, []
        return heard

    def wait_for(self, happened: Callable[[], bool], seconds: float) -> bool:
        """Returns True if it happened in that time. Signals that come meanwhile are kept for `wait`."""
        give_up = now() + seconds
        while not happened():
            left = give_up - now()
            if left <= 0:
                return False
            self._listen(left)
        return True

    def stop(self, number: int, everybody: bool) -> bool:
        """Stops this process (or everybody in its group) by that signal, until it is continued.

        Returns False if the kernel did not stop us, since nobody in our session could continue us.
        """
        before = signal.getsignal(number)
        if before is signal.SIG_IGN:
            return False
        if everybody:
            signal.signal(number, signal.SIG_IGN)
            os.kill(0, number)
        continued = self._was_continued(0.0)  # by somebody quick, so do not stop now
        if not continued:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
            # Another thread may be the one that is told, and may take its time.
            continued = self._was_continued(_TOLD)
        signal.signal(number, before)
        return continued

    def _was_continued(self, seconds: float) -> bool:
        self._listen(0.0)
        self.wait_for(lambda: signal.SIGCONT in self._heard, seconds)
        others = [number for number in self._heard if number != signal.SIGCONT]
        continued = len(others) < len(self._heard)
        self._heard = others
        return continued

    def _listen(self, seconds: float) -> None:
        poll = select.poll()
        poll.register(self._read, select.POLLIN)
        for fd, events in self.watched.items():
            poll.register(fd, events)
        found = dict(poll.poll(min(max(seconds, 0.0), LONGEST_SLEEP) * 1000))
        self.ready = {fd: found[fd] for fd in self.watched if fd in found}
        # Whatever poll says: interrupted after its time was up, it says that there was nothing.
        with suppress(BlockingIOError):
            self._heard.extend(number for number in os.read(self._read, 4096) if number)


def _nothing(number: int, frame: FrameType | None) -> None:
    pass
