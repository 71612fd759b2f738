"""`holdfast man`: the manual page, from the same tables as `--help`."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping

from . import COMMANDS
from .arguments import STORE_OPTIONS, read
from .drawing import Pen
from .manuals import STORE, TIMES, UNIVERSAL, manual_of

OPTIONS: dict[str, str] = {}
"""It has none of its own; those of a store are taken, for an alias that has them, and not used."""
ENVIRONMENT = {
    "HOLDFAST_URL": "the store, where neither --url nor --store names one",
    "HOLDFAST_CONFIG": "the configuration, in place of ~/.config/holdfast/config.toml",
    "NO_COLOR": "if it is set and not empty, nothing is coloured",
}


_SIGNS = {
    "\\": "\\e",
    "-": "\\-",
    '"': "\\(dq",
    "'": "\\(aq",
    "`": "\\(ga",
    "~": "\\(ti",
    "^": "\\(ha",
}
"""Signs that roff would read otherwise, or draw otherwise."""


def main(words: list[str]) -> int:
    """Prints the page, and returns the exit status."""
    read(words, STORE_OPTIONS)
    Pen(sys.stdout).write("\n".join(page()) + "\n")
    return 0


def page() -> Iterator[str]:
    """Yields the lines of the manual page, in the language of man(7)."""
    yield ".TH HOLDFAST 1"
    yield ".SH NAME"
    yield "holdfast \\- distributed locks with fencing tokens"
    yield ".SH SYNOPSIS"
    yield ".B holdfast"
    yield ".I COMMAND \\fR…"
    yield ".SH DESCRIPTION"
    yield "Holdfast keeps locks in a store that you already trust. Every grant has a fencing token, and"
    yield "a holder learns that its lease is over before anybody else can be granted the lock."
    yield ".SH COMMANDS"
    yield from _table({name: what for name, (_, what) in COMMANDS.items()})
    yield ".SH OPTIONS"
    yield "These may stand before or after the name of a command."
    yield from _table({**STORE[1], "-h, --help": "what a command does, its options, and examples"})
    yield from _table({"--version": "which release this is"})
    for command in COMMANDS:
        yield from _command(command)
    yield ".SH ENVIRONMENT"
    yield from _table(ENVIRONMENT)
    yield ".SH EXIT STATUS"
    yield "0 if all went well. Of every command, the latter of those that use a store:"
    yield from _table(UNIVERSAL)
    yield ".SH TIMES"
    yield text(TIMES)


def _command(command: str) -> Iterator[str]:
    manual = manual_of(command)
    yield f".SH HOLDFAST {command.upper()}"
    yield f".B holdfast {text(manual.synopsis)}"
    for paragraph in manual.text.strip().split("\n\n"):
        if paragraph != TIMES:
            yield ".PP"
            yield text(" ".join(paragraph.split()))
    for heading, options in manual.groups:
        if options is not STORE[1]:
            yield f".SS {text(heading)}"
            yield from _table(options)
    yield ".SS Examples"
    for example, meaning in manual.examples.items():
        yield ".TP"
        yield f".B {text(example)}"
        yield text(meaning)
    if manual.statuses:
        yield ".SS Exit status"
        yield from _table(manual.statuses)


def _table(terms: Mapping[str, str]) -> Iterator[str]:
    for term, meaning in terms.items():
        yield ".TP"
        yield f".B {text(term)}"
        yield text(meaning)


def text(plain: str) -> str:
    """Returns text as roff reads it: a backslash, a dash and a leading dot are themselves."""
    safe = "".join(_SIGNS.get(sign, sign) for sign in plain)
    return f"\\&{safe}" if safe.startswith(".") else safe
