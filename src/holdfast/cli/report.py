"""The report of a run, in words for people on stderr, and as JSON lines for `--status-fd`.

Neither may ever harm the command or hold up its supervisor: a reader that has gone away is ignored,
and one that does not read is not waited for. What it has not taken is kept, offered again with the
next event, and at the end for a moment longer.
"""

from __future__ import annotations

import fcntl
import os
import select

from .arguments import UsageError

_PATIENCE = 0.5
"""Seconds that a reader is given for the last words to him."""


def say(text: str) -> None:
    """Tells a person. No control character from a store reaches the terminal, and no secret of a token
    that was given in a wrong place.

    Not by sys.stderr, which is None where there is none.
    """
    if "holdfast_" in text:
        from ..service.security.bearer import redact  # not needed by most

        text = redact(text)
    if not text.isprintable():
        from .drawing import visible

        text = "\n".join(map(visible, text.split("\n")))
    try:
        write_patiently(2, f"holdfast: {text}\n".encode(errors="backslashreplace"), _PATIENCE)
    except OSError:
        return  # nobody listens


def in_words(error: Exception) -> str:
    """Returns the text of an error, in words that a person at a command line can use."""
    text = str(error)
    if "()" in text or "=" in text:
        from .wording import as_typed  # not needed by most

        return as_typed(text)
    return text


class Report:
    """Writes events to a descriptor, or to nowhere."""

    __slots__ = ("_fd", "_unwritten")

    def __init__(self, fd: int | None) -> None:
        self._fd = fd
        self._unwritten = b""

    @classmethod
    def to(cls, number: str | None) -> Report:
        """To the descriptor of that number, which has to be open for writing."""
        if number is None:
            return cls(None)
        advice = (
            f"open it for writing, such as: holdfast run … --status-fd {number:.9} {number:.9}>FILE"
        )
        if not (number.isascii() and number.isdigit()) or len(number) > 9:
            raise UsageError(f"--status-fd needs the number of a descriptor, not {number!r:.40}")
        fd = int(number)
        try:
            mode = fcntl.fcntl(fd, fcntl.F_GETFL) & (os.O_RDONLY | os.O_WRONLY | os.O_RDWR)
        except OSError:
            raise UsageError(f"--status-fd {fd} is not open; {advice}") from None
        if mode == os.O_RDONLY:
            raise UsageError(f"--status-fd {fd} is open for reading only; {advice}")
        if fd > 2:  # the standard ones are the command's as well
            os.set_inheritable(fd, False)
        return cls(fd)

    def event(self, event: str, **details: object) -> None:
        if self._fd is None:
            return
        from json import dumps  # slow to import, and only needed here

        details = {key: value for key, value in details.items() if value is not None}
        self._unwritten += dumps({"event": event, **details}).encode() + b"\n"
        self._flush(0.0)

    def finish(self) -> None:
        self._flush(_PATIENCE)

    def _flush(self, patience: float) -> None:
        if self._fd is not None and self._unwritten:
            try:
                self._unwritten = write_patiently(self._fd, self._unwritten, patience)
            except OSError:
                self._fd = None


def write_patiently(fd: int, data: bytes, patience: float) -> bytes:
    """Writes what can be written without blocking, and returns the rest."""
    poll = select.poll()
    poll.register(fd, select.POLLOUT)
    # A pipe that is ready takes PIPE_BUF bytes at once. It is not made non-blocking instead, as
    # that would hold for everybody who shares it.
    while data and poll.poll(patience * 1000):
        data = data[os.write(fd, data[: select.PIPE_BUF]) :]
    return data
