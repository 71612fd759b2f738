"""The controlling terminal, and which process group may read from it.

The command has a process group of its own, so it would be a background job: Ctrl-C would not reach
it, and reading would stop it. So the terminal is lent to it, and taken back when it stops or ends.

When. At once, if we are a job of our own with nothing redirected, as when a person typed the
command. Otherwise others may be in our group who need the terminal too (the pager in
`holdfast run … | less`, the script that called us): then Ctrl-C reaches the group as a whole, is
forwarded, and the command is lent the terminal when it asks for it, which is when the kernel stops
it for reading (SIGTTIN) or for changing its modes (SIGTTOU). Never while we are in the background
ourselves.

SIGTTOU is ignored here, because a background process that is not deaf to it may not take the
terminal back.
"""

from __future__ import annotations

import os
import signal
from typing import Any, ClassVar


class Terminal:
    """The controlling terminal. `Terminal.open` returns it, or None if there is none."""

    __slots__ = ("_fd", "_group", "_modes", "default_signals", "lent")

    _inherited: ClassVar[Any] = None
    """The handler of SIGTTOU that we were started with, once it is replaced."""

    def __init__(self, fd: int) -> None:
        import termios

        self._fd = fd
        self._group = os.getpgrp()
        try:
            self._modes = termios.tcgetattr(fd)
        except termios.error:
            self._modes = []
        self.lent = False
        """True if the command is to have the terminal when we have it ourselves."""
        self.default_signals: tuple[int, ...] = ()
        before = signal.signal(signal.SIGTTOU, signal.SIG_IGN)
        if Terminal._inherited is None:
            Terminal._inherited = before
        if Terminal._inherited is not signal.SIG_IGN:
            self.default_signals = (signal.SIGTTOU,)

    @classmethod
    def open(cls) -> Terminal | None:
        try:
            return cls(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC))
        except OSError:
            return None

    def close(self) -> None:
        """Closes our descriptor of it."""
        os.close(self._fd)

    def is_for_us_alone(self) -> bool:
        """Returns True if nobody else in our process group needs it, as far as one can tell."""
        return os.getpid() == self._group and all(os.isatty(fd) for fd in (0, 1, 2))

    def is_ours(self) -> bool:
        return self._foreground() == self._group

    def is_with(self, group: int) -> bool:
        return self._foreground() == group

    def lend(self, group: int) -> None:
        """Lends the terminal to the command's group, if it is ours to lend."""
        self.lent = True
        if self.is_ours():
            self._give(group)

    def take_back(self, group: int) -> None:
        """Takes the terminal from the command's group, if that (or nobody) has it."""
        foreground = self._foreground()
        if foreground == group or (foreground is not None and not _exists(foreground)):
            self._give(self._group)

    def restore(self) -> None:
        """Sets the modes as they were, for a command that ended by a signal and could not."""
        import termios

        if self._modes and self.is_ours():
            try:
                termios.tcsetattr(self._fd, termios.TCSANOW, self._modes)
            except termios.error:
                return  # it has gone away

    def _foreground(self) -> int | None:
        try:
            return os.tcgetpgrp(self._fd)
        except OSError:
            return None

    def _give(self, group: int) -> None:
        try:
            os.tcsetpgrp(self._fd, group)
        except OSError:
            return  # it has gone away, or so has the group


def end_like_a_job(number: int) -> None:
    """Ends us by SIGINT too, as the job of a shell on a terminal whose command ended by Ctrl-C.

    An exit status of 130 says the same to those who look at it, but a shell that gets the status
    believes that Ctrl-C was dealt with, and goes on with its script or loop.
    """
    if number == signal.SIGINT and os.isatty(0) and os.getsid(0) != os.getpid():
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)


def _exists(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
