"""`holdfast COMMAND …`: finds the command and hands it its words."""

from __future__ import annotations

import sys

from .. import __version__
from . import statuses
from .arguments import STORE_OPTIONS, UsageError, take_option, unknown
from .report import say

COMMANDS = {
    "run": "run a command under a lock",
    "schema": "print the tables that a database needs",
    "demo": "see what a fence is for, in ten seconds",
}

HELP = f"""\
Usage: holdfast COMMAND …

Distributed locks with fencing tokens.

Commands:
{chr(10).join(f"  {name:<10} {what}" for name, what in COMMANDS.items())}

Options, before or after the command's name:
  --url URL               the store, such as sqlite:///var/lib/app/locks.db; otherwise
                          $HOLDFAST_URL, otherwise a file of this machine and user
  --namespace NAMESPACE   keeps apart those who share a store (default: holdfast)
  -h, --help              what a command does, and its options
  --version               which release this is

For example: holdfast run nightly-backup --no-wait -- ./backup.sh
"""


def main(argv: list[str] | None = None) -> int:
    """Run one command; answers the exit status."""
    try:
        return _dispatch(sys.argv[1:] if argv is None else argv)
    except UsageError as error:
        say(f"{error}\nSee: holdfast --help")
        return statuses.USAGE
    except KeyboardInterrupt:  # so early that the command does not hear signals yet
        return statuses.ended_by(2)
    except Exception:
        import traceback

        say("a mistake in Holdfast itself:\n" + traceback.format_exc().rstrip())
        return statuses.INTERNAL


def _dispatch(words: list[str]) -> int:
    rest = words[::-1]
    before: list[str] = []
    while rest and rest[-1].startswith("-"):
        word = rest.pop()
        if word in ("-h", "--help"):
            sys.stdout.write(HELP)
            return 0
        if word == "--version":
            sys.stdout.write(f"holdfast {__version__}\n")
            return 0
        name, value = take_option(word, rest, STORE_OPTIONS)
        before.append(f"{name}={value}")
    if not rest:
        if before:
            raise UsageError("name a command, such as: holdfast run NAME -- COMMAND")
        sys.stdout.write(HELP)
        return 0
    command = rest.pop()
    if command == "run":
        from . import run

        return run.main(before + rest[::-1])
    if command == "demo":
        from . import demo

        return demo.main(before + rest[::-1])
    if command == "schema":
        from . import schema

        return schema.main(before + rest[::-1])
    raise unknown("command", command, list(COMMANDS))


if __name__ == "__main__":
    sys.exit(main())
