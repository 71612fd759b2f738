"""`holdfast COMMAND …`: finds the command and hands it its words."""

from __future__ import annotations

import errno
import os
import sys
from importlib import import_module

from .. import BackendUnavailable, ConfigError, GuaranteeError, __version__
from . import COMMANDS, statuses
from .arguments import STORE_OPTIONS, HelpWanted, UsageError, take_option, unknown
from .report import in_words, say

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class VersionWanted(Exception):
    """Raised when --version stands before a command's name."""


def main(argv: list[str] | None = None) -> int:
    """Runs one command; returns the exit status."""
    closed = sys.stdout is None
    if closed:
        _open_nothing()
    try:
        status = _command(list(sys.argv[1:] if argv is None else argv)[::-1])
        sys.stdout.flush()
        return status
    except BrokenPipeError:
        _forget_output()
        return statuses.ended_by(13)
    except KeyboardInterrupt:  # in a command that does not hear signals itself, or not yet
        return statuses.ended_by(2)
    except Exception as error:
        unwritten = (*_FULL, errno.EBADF) if closed else _FULL
        if isinstance(error, OSError) and error.errno in unwritten:
            _forget_output()
            say(f"the output cannot be written: {error.strerror}")
            return statuses.NOT_WRITTEN
        import traceback

        say("a mistake in Holdfast itself:\n" + traceback.format_exc().rstrip())
        return statuses.INTERNAL


def _command(words: list[str]) -> int:
    """Runs the command of `words`, which are in reverse order; returns the exit status."""
    command = ""
    try:
        before = _options_before(words)
        if words:
            command = words.pop()
        elif before:
            raise UsageError("name a command, such as: holdfast run NAME -- COMMAND")
        else:
            raise HelpWanted
        if command not in COMMANDS:
            given, command = command, ""
            raise unknown("command", given, list(COMMANDS))
        module = import_module(f"{__package__}.{COMMANDS[command][0]}")
        status: int = module.main(before + words[::-1])
        return status
    except HelpWanted:
        return _help(command)
    except VersionWanted:
        sys.stdout.write(f"holdfast {__version__}\n")
        return 0
    except (UsageError, ConfigError, GuaranteeError) as error:
        say(with_hint(error, command))
        return statuses.USAGE
    except BackendUnavailable as error:
        say(f"the store cannot be used: {in_words(error)}")
        return statuses.UNREACHABLE


def with_hint(error: Exception, command: str) -> str:
    """Returns the error in one line, with where to read more."""
    text = in_words(error)
    stop = "" if text.endswith((".", "?", "!")) else "."
    return f"{text}{stop} See: holdfast {command}{' ' if command else ''}--help"


def _options_before(rest: list[str]) -> list[str]:
    """Takes the options before the command's name off the end of `rest`, and returns them."""
    before: list[str] = []
    while rest and rest[-1].startswith("-"):
        word = rest.pop()
        if word in ("-h", "--help"):
            raise HelpWanted
        if word == "--version":
            raise VersionWanted
        name, value = take_option(word, rest, STORE_OPTIONS)
        before.append(f"{name}={value}")
    return before


def _help(command: str) -> int:
    from . import manuals

    sys.stdout.write(manuals.help_of(command) if command else manuals.overview())
    return 0


def _open_nothing() -> None:
    """Opens a stdout that refuses all that is written, where it was closed before we started.

    So a command that has something to say fails, as it does on a full disk, and no file of ours takes
    the place of stdout. A command that is run still finds it closed.
    """
    fd = os.open(os.devnull, os.O_RDONLY)
    if fd != 1:
        os.dup2(fd, 1, inheritable=False)
        os.close(fd)
    sys.stdout = os.fdopen(1, "w", closefd=False)


def _forget_output() -> None:
    """Lets the end of the process not complain of what could not be written."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


if __name__ == "__main__":
    sys.exit(main())
