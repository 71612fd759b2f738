"""The trace of a run: what happened, line by line, put into words only if somebody prints it."""

from __future__ import annotations

from .loop import VirtualLoop


class Trace:
    """The lines of one run, each with its time and the machine it is about."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self._lines: list[tuple[float, str, str, tuple[object, ...]]] = []

    def add(self, subject: str, text: str, *args: object) -> None:
        """Adds a line about `subject`; `text` is filled with `args` when the trace is printed."""
        self._lines.append((self._loop.now, subject, text, args))

    def lines(self) -> list[str]:
        """Returns the lines, ready to be printed."""
        return [
            f"{at:10.6f}  {subject:<8} {text % args}" for at, subject, text, args in self._lines
        ]
