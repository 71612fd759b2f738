"""`holdfast schema`: prints what a database needs, for those who may not create tables."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module

from ..errors import ConfigError
from ..stores import urls
from . import statuses
from .arguments import STORE_OPTIONS, HelpWanted, UsageError, sort
from .report import say

HELP = """\
Usage: holdfast schema URL

Prints the tables and procedures that locks need in a database, as SQL. Holdfast creates them on first
use; where its user may not do that, let somebody who may run this once, for example:

  holdfast schema postgresql:// | psql --single-transaction mydatabase
  holdfast schema mysql:// | mysql mydatabase

Nothing is connected to; the URL says which kind of database it is.
"""


def main(words: Sequence[str]) -> int:
    """Runs `holdfast schema`; returns the exit status."""
    try:
        arguments = sort(words, STORE_OPTIONS)
    except HelpWanted:
        sys.stdout.write(HELP)
        return 0
    operands = arguments.operands
    if len(operands) > 1 or arguments.command is not None:
        raise UsageError("name one database: holdfast schema URL")
    url = (
        operands[0]
        if operands
        else arguments.options.get("--url") or os.environ.get("HOLDFAST_URL")
    )
    if not url:
        raise UsageError("name the database: holdfast schema URL")
    try:
        target = urls.parse(url)
        module = urls.SCHEMES[target.scheme].schema
        if module is None:
            say(f"{target.scheme}:// is no SQL database: it needs no tables that you could create")
            return statuses.USAGE
        sys.stdout.write(import_module(module).script())
    except ConfigError as error:
        say(str(error))
        return statuses.USAGE
    return 0
