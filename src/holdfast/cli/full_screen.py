"""The whole terminal for one picture, and the terminal as it was before in every case.

Nothing here waits for a terminal that does not take what is written, because its link hangs: the rest
of a picture is dropped, and the next one is whole again.
"""

from __future__ import annotations

import os
import select
import termios
from contextlib import suppress
from typing import Any

from .drawing import Pen
from .report import write_patiently

_ENTER = "\033[?1049h\033[?25l\033[?7l"
"""Another screen, without a cursor, on which long lines are cut instead of wrapped."""
_LEAVE = "\033[?7h\033[?25h\033[?1049l\033[0m"
_PATIENCE = 0.5


class FullScreen:
    """The terminal at `out` (a descriptor), with the keys that are pressed at descriptor 0."""

    def __init__(self, pen: Pen, out: int) -> None:
        self._pen = pen
        self._out = out
        self._modes: list[Any] | None = None
        self.keys_from = 0 if os.isatty(0) else None
        """The descriptor that keys come from; None if there is no keyboard."""

    def enter(self) -> None:
        """Takes the screen; may be repeated, for a terminal that somebody else had meanwhile."""
        if self.keys_from is not None:
            with suppress(termios.error):  # it has gone away
                modes = termios.tcgetattr(self.keys_from)
                if self._modes is None:
                    self._modes = modes
                modes = [*modes[:6], list(modes[6])]
                modes[0] &= ~termios.IXON  # a Ctrl-S would keep us from giving the screen back
                modes[3] &= ~(termios.ECHO | termios.ICANON)
                modes[6][termios.VMIN], modes[6][termios.VTIME] = 1, 0
                termios.tcsetattr(self.keys_from, termios.TCSANOW, modes)
        with suppress(OSError):
            self._write(_ENTER)

    def leave(self) -> None:
        """Gives the screen back as it was; may be repeated."""
        with suppress(OSError):
            self._write(_LEAVE)
        if self.keys_from is not None and self._modes is not None:
            with suppress(termios.error):
                termios.tcsetattr(self.keys_from, termios.TCSANOW, self._modes)

    def draw(self, lines: list[str]) -> None:
        """Shows these lines, as far as there is room."""
        room = self._pen.size()[1]
        text = "\r\n".join(f"\033[2K{line}" for line in lines[:room])
        self._write(f"\033[?2026h\033[H{text}\033[?2026l")

    def keys(self) -> bytes:
        """Returns the keys that were pressed; nothing if there were none."""
        if self.keys_from is None:
            return b""
        poll = select.poll()
        poll.register(self.keys_from, select.POLLIN)
        if not poll.poll(0):
            return b""
        try:
            typed = os.read(self.keys_from, 1024)
        except OSError:
            typed = b""
        if not typed:
            self.keys_from = None  # the keyboard has gone
        return typed

    def _write(self, text: str) -> None:
        write_patiently(self._out, self._pen.encode(text), _PATIENCE)
