"""Drawing on a terminal, or plainly into a pipe: colours, signs, bars and columns.

Names cannot have control characters in them, but labels come from other clients, which may be broken
or hostile. `visible` makes them harmless, and everything that came from a store goes through it.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import IO, NamedTuple

BOLD, DIM, RED, GREEN, YELLOW, BLUE = "1", "2", "31", "32", "33", "36"
"""Colours, each with one meaning: names, less important things, what is wrong or about to end, what is
well, what deserves a look, what stands still."""

SIGNS = {"━": "#", "─": "-", "…": "~", "·": "-", "↑": "^", "↓": "v"}
"""Signs that not every output has, with what stands for them there."""
BAR = 8
USUAL_SCALE = 30.0
"""Seconds at which a bar is full where no TTL is known."""


def visible(text: str) -> str:
    """Returns `text` with all that is no visible character written as its code."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else ascii(char)[1:-1].replace("\\x", "\\u00") for char in text
    )


def width(text: str) -> int:
    """Returns the number of columns that a terminal needs for `text`."""
    return len(text) if text.isascii() else sum(map(_columns, text))


@lru_cache(1024)
def _columns(char: str) -> int:
    import unicodedata  # slow to import, and not needed by most

    if unicodedata.combining(char) or unicodedata.category(char) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def clip(text: str, columns: int, side: str = "end") -> str:
    """Returns `text` in at most so many columns, with … for what was left out there."""
    if width(text) <= columns:
        return text
    room = max(columns - 1, 0)
    if side == "start":
        return "…" + _most(text[::-1], room)[::-1]
    if side == "middle":
        head = _most(text, (room + 1) // 2)
        return head + "…" + _most(text[::-1], room - width(head))[::-1]
    return _most(text, room) + "…"


def _most(text: str, columns: int) -> str:
    """Returns as much of the beginning of `text` as there is room for."""
    if text.isascii():
        return text[:columns]
    used = 0
    for place, char in enumerate(text):
        used += _columns(char)
        if used > columns:
            return text[:place]
    return text


class Cell(NamedTuple):
    """A text in a table, and its colour."""

    text: str
    colour: str = ""


class Column(NamedTuple):
    """A column of a table: how it is aligned, and how far it gives way where there is no room."""

    title: str
    right: bool = False
    least: int = 0
    """The columns below which it is not made narrower while another can give way, or be left out; 0 if
    it is never made narrower."""
    side: str = "end"
    """Where its texts are cut: `start`, `middle` or `end`."""
    spare: int = 0
    """The place in the order in which columns are left out where there is no room; 0: never."""


class Pen:
    """The ways of one output: whether it is a terminal, with colours, and how wide."""

    def __init__(self, out: IO[str] | None, signs: Mapping[str, str] = SIGNS) -> None:
        self._out = out
        self._signs = str.maketrans(dict(signs))
        self.terminal = out is not None and out.isatty()
        dumb = os.environ.get("TERM", "") in ("", "dumb")
        self.colour = self.terminal and not os.environ.get("NO_COLOR") and not dumb
        self.full_screen = self.terminal and not dumb
        """Whether the terminal can show a picture in place of lines."""
        self._encoding = getattr(out, "encoding", None) or "ascii"
        try:
            "".join(signs).encode(self._encoding)
            self.unicode = True
        except UnicodeEncodeError:
            self.unicode = False

    @property
    def columns(self) -> int:
        """The columns of the terminal now; 0 where there is none, and nothing is cut."""
        return self.size()[0]

    def size(self) -> tuple[int, int]:
        """Returns the columns and the lines of the terminal; zeros where there is none."""
        if not self.terminal or self._out is None:
            return 0, 0
        try:
            size = os.get_terminal_size(self._out.fileno())
        except OSError:
            return 80, 24
        return size.columns or 80, size.lines or 24

    def paint(self, text: str, colour: str) -> str:
        """Returns `text` in that colour, where there are colours."""
        return f"\033[{colour}m{text}\033[0m" if self.colour and colour and text else text

    def encode(self, text: str) -> bytes:
        """Returns `text` for this output, with what it has no characters for as their codes."""
        if not self.unicode:
            text = text.translate(self._signs)
        return text.encode(self._encoding, "backslashreplace")

    def write(self, text: str) -> None:
        """Writes `text`."""
        if self._out is None:
            return  # it was closed before we started
        self._out.flush()
        self._out.buffer.write(self.encode(text))  # type: ignore[attr-defined]
        self._out.buffer.flush()  # type: ignore[attr-defined]

    def bar(self, share: float, cells: int = BAR) -> str:
        """Returns a bar of which that share is full."""
        full = round(min(max(share, 0.0), 1.0) * cells)
        return "━" * full + "─" * (cells - full)

    def table(
        self, columns: Sequence[Column], rows: Iterable[Sequence[Cell]], room: int | None = None
    ) -> list[str]:
        """Returns the lines of a table with a heading, in the room that the terminal has."""
        lines = [[Cell(column.title, DIM) for column in columns], *rows]
        needs = [sorted(width(row[at].text) for row in lines) for at in range(len(columns))]
        widths = [need[-1] for need in needs]
        room = self.columns if room is None else room
        if room and _excess(widths, room) > 0:
            kept = _fitting(columns, widths, room)
            columns = [columns[at] for at in kept]
            lines = [[row[at] for at in kept] for row in lines]
            widths = _narrowed([needs[at] for at in kept], columns, room)
        return [self._line(row, columns, widths) for row in lines]

    def _line(self, row: Sequence[Cell], columns: Sequence[Column], widths: Sequence[int]) -> str:
        parts = []
        last = len(columns) - 1
        for place, (cell, column, room) in enumerate(zip(row, columns, widths, strict=True)):
            text = cell.text if width(cell.text) <= room else clip(cell.text, room, column.side)
            blank = " " * (room - width(text))
            shown = self.paint(text, cell.colour) if cell.colour else text
            if column.right:
                parts.append(blank + shown)
            else:
                parts.append(shown if place == last else shown + blank)
        return "  ".join(parts).rstrip()


def _excess(widths: Sequence[int], room: int) -> int:
    """Returns the number of columns of the terminal that are missing for columns of such widths."""
    return sum(widths) + 2 * (len(widths) - 1) - room


def _fitting(columns: Sequence[Column], widths: Sequence[int], room: int) -> list[int]:
    """Returns the places of the columns that there is room for, if each is as narrow as it may be."""
    least = [min(w, c.least) if c.least else w for w, c in zip(widths, columns, strict=True)]
    kept = list(range(len(columns)))
    for at in sorted(kept, key=lambda at: columns[at].spare):
        if columns[at].spare and _excess([least[place] for place in kept], room) > 0:
            kept.remove(at)
    return kept


def _narrowed(needs: Sequence[list[int]], columns: Sequence[Column], room: int) -> list[int]:
    """Returns the widths of columns that fit; `needs` has the widths of each one's texts, in order.

    Columns that are cut at their start are made narrower first, then always the one in which that cuts
    the fewest texts, or of several the widest: so one long name does not cut every holder. Columns go
    below their least widths where all have come down to these.
    """
    widths = [need[-1] for need in needs]
    cut = [at for at, column in enumerate(columns) if column.least]

    def willingness(at: int) -> tuple[bool, int, int]:
        untouched = bisect_left(needs[at], widths[at])
        return columns[at].side == "start", untouched, widths[at]

    for _ in range(_excess(widths, room)):
        able = [at for at in cut if widths[at] > columns[at].least]
        if able:
            widths[max(able, key=willingness)] -= 1
        elif able := [at for at in cut if widths[at] > 1]:
            widths[max(able, key=lambda at: widths[at])] -= 1
        else:
            break
    return widths
