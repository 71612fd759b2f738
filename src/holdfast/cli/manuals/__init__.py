"""The manual of each command, as tables: `--help` is written from them.

They stand apart from the commands, which start faster without them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from importlib import import_module
from textwrap import wrap
from typing import NamedTuple

from .. import COMMANDS

WIDTH = 80
_HARD = "\N{NO-BREAK SPACE}"
_MARGIN = 24
"""The column at which the meanings of options begin."""

Group = tuple[str, Mapping[str, str]]
"""A heading, and the options below it: each as it is written, with its meaning."""


class Manual(NamedTuple):
    """The manual of one command."""

    synopsis: str
    """The words behind `holdfast`."""
    text: str
    """Paragraphs, between empty lines."""
    groups: tuple[Group, ...]
    examples: Mapping[str, str]
    """Command lines, with what each does."""
    statuses: Mapping[str, str]
    """Exit statuses beside 0, 2 and 69, which all commands share that use a store."""
    uses_store: bool = True
    """Whether the command connects to a store, which may be unreachable."""


STORE: Group = (
    "The store",
    {
        "--url URL": "the store, such as sqlite:///var/lib/app/locks.db; otherwise $HOLDFAST_URL, "
        "otherwise a file of this machine and user",
        "--store NAME": "the store of that name in the configuration, instead of --url",
        "--namespace NAMESPACE": "keeps apart those who share a store (default: holdfast)",
    },
)
"""The options of every command, which may stand before its name, too."""

JSON = {"--json": "write JSON, for programs"}
TIMES = "TIME is a number and ms, s, m, h or d, such as 30s or 1.5m."
USAGE = {"2": "wrong usage: an option, a name, a time, a URL"}
"""The exit status of every command."""
UNIVERSAL = {
    "2": f"{USAGE['2']}; or the store does not let this user in",
    "69": "the store is unreachable, or cannot do it now",
}
"""Exit statuses of every command that uses a store."""


def manual_of(command: str) -> Manual:
    """Returns the manual of a command."""
    manual: Manual = import_module(f"{__name__}.{COMMANDS[command][0]}").MANUAL
    return manual


def overview() -> str:
    """Returns the help of `holdfast` itself."""
    lines = ["Usage: holdfast COMMAND …", "", "Distributed locks with fencing tokens.", ""]
    lines.append("Commands:")
    lines += [f"  {name:<12}{what}" for name, (_, what) in COMMANDS.items()]
    lines += ["", "Options, before or after the command's name:"]
    lines += _meanings(STORE[1])
    lines += _meanings({"-h, --help": "what a command does, its options, and examples"})
    lines += _meanings({"--version": "which release this is"})
    lines += ["", "For example: holdfast run nightly-backup --no-wait -- ./backup.sh"]
    return "\n".join(lines) + "\n"


def help_of(command: str) -> str:
    """Returns what `holdfast COMMAND --help` prints."""
    manual = manual_of(command)
    lines = _usage(f"Usage: holdfast {manual.synopsis}")
    for paragraph in manual.text.strip().split("\n\n"):
        lines += ["", *wrap(paragraph, WIDTH, break_on_hyphens=False)]
    for heading, options in manual.groups:
        lines += ["", f"{heading}:", *_meanings(options)]
    lines += ["", "Examples:"]
    for example, meaning in manual.examples.items():
        lines += [f"  {example}", *_indented(meaning, 6)]
    lines += ["", "Exit status, beside 0:", *_meanings(statuses_of(manual), 8)]
    return "\n".join(lines) + "\n"


def _usage(text: str) -> list[str]:
    """Returns the lines of a synopsis, in which nothing between brackets is broken."""
    text = re.sub(r"\[[^]]*\]", lambda option: option.group().replace(" ", _HARD), text)
    lines = wrap(text, WIDTH, subsequent_indent=" " * 9, break_on_hyphens=False)
    return [line.replace(_HARD, " ") for line in lines]


def statuses_of(manual: Manual) -> dict[str, str]:
    """Returns all exit statuses of a command, with their meanings."""
    shared = UNIVERSAL if manual.uses_store else USAGE
    return {**manual.statuses, **{k: v for k, v in shared.items() if k not in manual.statuses}}


def _meanings(table: Mapping[str, str], margin: int = _MARGIN) -> Iterator[str]:
    """Yields the lines of terms and their meanings, side by side."""
    for term, meaning in table.items():
        lines = list(_indented(meaning, margin))
        if len(term) + 3 <= margin:
            lines[0] = f"  {term}".ljust(margin) + lines[0][margin:]
        else:
            lines.insert(0, f"  {term}")
        yield from lines


def _indented(text: str, margin: int) -> list[str]:
    indent = " " * margin
    return wrap(
        text, WIDTH, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False
    )
