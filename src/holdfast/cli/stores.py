"""`holdfast stores`: the promises of every kind of store, out of the data that the code itself asks."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from importlib import import_module

from .. import Guarantees
from ..stores.memory.guarantees import MEMORY
from ..stores.urls import SCHEMES
from . import encoding
from .arguments import STORE_OPTIONS, UsageError, read, unknown
from .drawing import BOLD, DIM, Cell, Column, Pen
from .durations import briefly

OPTIONS = {"--markdown": "", "--json": ""}
"""The options of its own; those of a store are taken, for an alias that has them, and not used."""
TITLES = {
    "auto_release": "Release when the holder dies",
    "clock_dependence": "Clocks that must behave",
    "token_source": "Where tokens come from",
    "wakeup": "How waiters are woken",
}
"""The titles of passages whose fields do not speak for themselves."""
WORDS = {
    "safe_for": ("good for", "correctness with a fence, or only efficiency"),
    "fair": ("fair", "first come, first served"),
    "barging": ("barge", "`fair=False` lets newcomers overtake"),
    "renew_ttl": ("TTL", "`renew(ttl)` can change it"),
    "slots": ("slots", "each holder of a semaphore can be fenced by its slot"),
    "recall": ("recall", "a holder is told of a break at once, not at its next renewal"),
    "every_change": ("changes", "whoever observes an election sees every change"),
    "longest_detached": ("detached", "how long a lease can outlive its holder's manager"),
}
"""The facts in the table: a short word for each, and what it means."""
_MARGIN = 18


def main(words: list[str]) -> int:
    """Prints the comparison, and returns the exit status."""
    given = read(words, STORE_OPTIONS | OPTIONS, "[STORE…]")
    if "--json" in given.options and "--markdown" in given.options:
        raise UsageError("--json and --markdown exclude each other; give one of them")
    stores = {one.store: one for one in promises()}
    for name in given.operands:
        if name not in stores:
            raise unknown("store", name, list(stores))
    chosen = [one for name, one in stores.items() if not given.operands or name in given.operands]
    pen = Pen(sys.stdout)
    if "--json" in given.options:
        pen.write(encoding.dumps([one._asdict() for one in chosen]) + "\n")
    elif "--markdown" in given.options:
        pen.write("\n".join(markdown(chosen)) + "\n")
    else:
        pen.write("\n".join(comparison(pen, chosen)) + "\n")
    return 0


def promises() -> list[Guarantees]:
    """Returns the guarantees of every kind of store, by name; of variants of one, the first."""
    found: dict[str, Guarantees] = {}
    folders = dict.fromkeys(scheme.folder for scheme in SCHEMES.values())
    for folder in folders:
        module = import_module(f"holdfast.stores.{folder}.guarantees")
        for value in vars(module).values():
            if isinstance(value, Guarantees):
                found.setdefault(value.store, value)
    return sorted(found.values(), key=lambda one: one.store)


def texts() -> list[str]:
    """Returns the fields that are sentences, and have a passage each."""
    return [name for name in MEMORY._fields[1:] if isinstance(getattr(MEMORY, name), str)]


def facts() -> list[str]:
    """Returns the other fields, which stand in one table: those of `WORDS` first, in its order."""
    names = [name for name in MEMORY._fields[1:] if name not in texts()]
    return [*(name for name in WORDS if name in names), *(n for n in names if n not in WORDS)]


def title(field: str) -> str:
    """Returns the name of a field, for people."""
    plain = field.replace("_", " ")
    return WORDS[field][0] if field in WORDS else TITLES.get(field, plain.capitalize())


def brief(value: object) -> str:
    """Returns a fact in a word; of several uses that a store is good for, the highest."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return str(value[-1])
    return briefly(value) if isinstance(value, float) else str(value)


def comparison(pen: Pen, stores: Sequence[Guarantees]) -> Iterator[str]:
    """Yields the comparison for a terminal or a pipe, in which lines are not wrapped."""
    columns = [Column("STORE"), *(Column(title(field).upper()) for field in facts())]
    rows = [
        [Cell(one.store, BOLD), *(Cell(brief(getattr(one, field))) for field in facts())]
        for one in stores
    ]
    yield from pen.table(columns, rows)
    yield ""
    for word, meaning in WORDS.values():
        yield pen.paint(f"  {word.upper():<10}{meaning.replace('`', '')}", DIM)
    room = pen.columns and max(min(pen.columns, 120), 40)
    for field in texts():
        yield ""
        yield pen.paint(title(field).upper(), DIM)
        for one in stores:
            yield from _passage(pen, one.store, getattr(one, field), room)


def _passage(pen: Pen, store: str, text: str, room: int) -> Iterator[str]:
    head = pen.paint(store, BOLD) + " " * (_MARGIN - 2 - len(store))
    if not room:
        yield f"  {head}{text}"
        return
    from textwrap import wrap

    first, *others = wrap(text, room - _MARGIN)
    yield f"  {head}{first}"
    for line in others:
        yield " " * _MARGIN + line


def markdown(stores: Sequence[Guarantees]) -> Iterator[str]:
    """Yields the comparison as tables of Markdown."""
    heads = ["store", *map(title, facts())]
    yield _row(heads)
    yield _row(["---"] * len(heads))
    for one in stores:
        yield _row([f"`{one.store}`", *(brief(getattr(one, field)) for field in facts())])
    yield ""
    for word, meaning in WORDS.values():
        yield f"- {word}: {meaning}"
    for field in texts():
        yield from ("", f"## {title(field)}", "", _row(["store", ""]), _row(["---", "---"]))
        for one in stores:
            yield _row([f"`{one.store}`", getattr(one, field)])


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |"
