"""`holdfast schema`: prints what a database needs, for those who may not create tables."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module

from ..stores import urls
from . import statuses
from .arguments import STORE_OPTIONS, read
from .report import say
from .store import url_of


def main(words: Sequence[str]) -> int:
    """Runs `holdfast schema`; returns the exit status."""
    arguments = read(words, STORE_OPTIONS, "[URL]")
    url = arguments.operands[0] if arguments.operands else url_of(arguments.options)
    target = urls.parse(url)
    module = urls.SCHEMES[target.scheme].schema
    if module is None:
        say(_reason(target.scheme))
        return statuses.USAGE
    sys.stdout.write(import_module(module).script())
    return 0


def _reason(scheme: str) -> str:
    """Returns why there is nothing to print for such a store."""
    if scheme == "sqlite":
        return (
            "the file of sqlite:// is made with its tables on first use; there is nothing to create"
        )
    return f"{scheme}:// has no tables that somebody would have to create"
