"""Options, operands and the command after `--`, taken apart by hand.

argparse would more than double the time in which `holdfast run` starts. Options are written out
(`--ttl 30s` or `--ttl=30s`), may stand before or after operands, and the last of several counts,
where a command does not ask for every one of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

STORE_OPTIONS = {"--url": "URL", "--store": "NAME", "--namespace": "NAMESPACE"}
"""The options of every command, which may stand before its name too, with an example of the value; an
empty one marks an option that takes none."""


class UsageError(Exception):
    """Raised when a command was not written as it has to be; its text says how it should be."""


class HelpWanted(Exception):
    """Raised when --help was among the options."""


class Arguments:
    """The words of a command line, sorted into options, operands and the command after `--`."""

    __slots__ = ("command", "operands", "options", "written")

    def __init__(self) -> None:
        self.options: dict[str, str] = {}
        self.operands: list[str] = []
        self.command: list[str] | None = None
        """The words behind `--`; None if there is no `--`."""
        self.written: list[tuple[str, str]] = []
        """All options, in their order: for those of which several count."""

    def every(self, option: str) -> list[str]:
        """Returns the values of an option that may be given more than once."""
        return [value for name, value in self.written if name == option]


def sort(words: Sequence[str], known: Mapping[str, str]) -> Arguments:
    """Sorts the words after a command's name by the options that it knows."""
    arguments = Arguments()
    rest = list(reversed(words))
    while rest:
        word = rest.pop()
        if word == "--":
            arguments.command = rest[::-1]
            break
        if word in ("-h", "--help"):
            raise HelpWanted
        if not word.startswith("-") or word == "-":
            arguments.operands.append(word)
        else:
            name, value = take_option(word, rest, known)
            arguments.options[name] = value
            arguments.written.append((name, value))
    return arguments


def read(words: Sequence[str], known: Mapping[str, str], operands: str = "") -> Arguments:
    """Sorts the words of a command that takes these operands: `RESOURCE TOKEN`, `[PREFIX]`."""
    arguments = sort(words, known)
    arguments.operands += arguments.command or []
    wanted = operands.split()
    least = sum(not word.startswith("[") for word in wanted)
    given = len(arguments.operands)
    if given < least:
        raise UsageError(f"{wanted[given]} is missing")
    if given > len(wanted) and not operands.endswith("…]"):
        raise UsageError(f"there is one word too many: {arguments.operands[len(wanted)]!r:.80}")
    return arguments


def take_option(word: str, rest: list[str], known: Mapping[str, str]) -> tuple[str, str]:
    """Returns an option and its value, which may be the next word: the last one of `rest`."""
    name, equals, value = word.partition("=")
    if not word.startswith("--") and word[:2] in known and len(word) > 2 and not equals:
        name, equals, value = word[:2], "=", word[2:]  # -n3
    if name not in known:
        raise UsageError(f"there is no option {name}{_nearest(name, known)}")
    wanted = known[name]
    if not wanted:
        if equals:
            raise UsageError(f"{name} takes no value; write {name} alone")
        return name, ""
    if equals:
        return name, value
    if not rest or rest[-1].startswith("--"):
        raise UsageError(f"{name} needs a value: {name} {wanted}")
    return name, rest.pop()


def unknown(kind: str, given: str, known: Sequence[str]) -> UsageError:
    """Returns the error for a word that should have been one of a few."""
    hint = _nearest(given, known) or f"; choose from {', '.join(known)}"
    return UsageError(f"there is no {kind} {given!r}{hint}")


def _nearest(given: str, known: Sequence[str] | Mapping[str, str]) -> str:
    from difflib import get_close_matches  # slow to import, and only for mistakes

    close = get_close_matches(given, list(known), 1)
    return f"; did you mean {close[0]}?" if close else ""
