"""The sessions that were logged out, in a file beside the token file until each would have ended."""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable

from ...errors import ConfigError
from . import private_files
from .private_files import Mark, Unread, mark_of

WHAT = "the list of sessions that were logged out"
_log = logging.getLogger("holdfast.service.security")


class LoggedOut:
    """The numbers of sessions that count no more, those of other services on the same file too.

    Where the file cannot be written or read, each service remembers its own.
    """

    def __init__(self, token_file: str, now: Callable[[], float] = time.time) -> None:
        self._path = os.path.join(os.path.dirname(token_file), "logged-out.json")
        self._now = now
        self._mark: Mark | None = None
        self._numbers: dict[str, float] = {}
        """The session's numbers, with when each would have ended."""
        self._fault = ""
        """Why the file could not be read the last time, which was logged."""

    def __contains__(self, number: str) -> bool:
        mark = mark_of(self._path)
        if mark is not None and mark != self._mark:
            self._learn(mark)
        return number in self._numbers

    def _learn(self, mark: Mark | None) -> None:
        """Reads what was logged out at any service. A damaged file is read once; `mark` is its mark."""
        fault = ""
        try:
            self._numbers.update(_load(self._path))
        except Unread as error:
            mark, fault = None, str(error)  # the same file may be read by the next look
        except (ConfigError, FileNotFoundError) as error:
            fault = str(error)
        self._mark = mark
        if fault and fault != self._fault:
            _log.warning("%s", fault)
        self._fault = fault

    def add(self, number: str, ends: float) -> None:
        """Remembers a session; those that have ended by themselves are forgotten."""
        self._numbers[number] = ends
        now = self._now()
        try:
            with private_files.turn(self._path):
                if mark_of(self._path) is not None:
                    self._numbers.update(_load(self._path))
                self._numbers = {one: end for one, end in self._numbers.items() if end > now}
                private_files.replace(self._path, json.dumps(self._numbers).encode() + b"\n")
        except (ConfigError, OSError) as error:
            _log.warning("log-outs are known to this service alone: %s", error)


def _load(path: str) -> dict[str, float]:
    data, _ = private_files.read(WHAT, path)
    try:
        found = json.loads(data)
        return {str(number): float(end) for number, end in found.items()}
    except (ValueError, TypeError, AttributeError, RecursionError):
        raise ConfigError(f"{WHAT} {path} is damaged; remove it") from None
