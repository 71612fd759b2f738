"""`holdfast fence check`: shows a token to a fence that is kept in a store, for shell scripts."""

from __future__ import annotations

import os
import sys
from typing import Any

from .. import StaleToken
from ..fences import Token, run_token
from ..fences.places import NoFence, guard
from . import encoding, statuses
from .arguments import STORE_OPTIONS, UsageError, read, unknown
from .drawing import Pen
from .report import in_words, say
from .store import url_of

OPTIONS = {**STORE_OPTIONS, "--json": ""}
VERBS = ("check",)
STALE = 1


def main(words: list[str]) -> int:
    """Shows the token to the fence, and returns the exit status."""
    given = read(words, OPTIONS, "check RESOURCE TOKEN")
    verb, resource, number = given.operands
    if verb not in VERBS:
        raise unknown("fence command", verb, VERBS)
    token = _token(number)
    record: dict[str, Any] = {"resource": resource, "token": int(number), "accepted": True}
    try:
        guard(url_of(given.options), resource, token)
    except NoFence as error:
        say(str(error))
        return statuses.USAGE
    except StaleToken as error:
        record.update(accepted=False, highest=error.highest, reason=error.reason)
        say(in_words(error))
    if "--json" in given.options:
        Pen(sys.stdout).write(encoding.dumps(record) + "\n")
    return 0 if record["accepted"] else STALE


def _token(text: str) -> Token:
    """Returns the token: with its lock, if it is the one that `holdfast run` told this script."""
    if not (text.isascii() and text.isdigit()) or len(text) > 19:
        raise UsageError(
            f"a fencing token is a whole number, such as $HOLDFAST_TOKEN, and not {text!r:.40}"
        )
    environment = os.environ
    if environment.get("HOLDFAST_TOKEN") == text and environment.get("HOLDFAST_LOCK_ID"):
        return run_token()
    return int(text)
