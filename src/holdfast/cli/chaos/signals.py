"""How a campaign is ended by signals: in order by the first one, at once by the second."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

from .. import statuses
from ..report import say

HEARD = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Ended(Exception):
    """Raised when a signal asks us to end."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Raises `Ended` at the first signal. At the next one this process ends, wherever it is.

    Whatever was started ends with this process: the janitor sees to that, as after a SIGKILL.
    """
    heard: list[int] = []

    def end(number: int, _: object) -> None:
        heard.append(number)
        if len(heard) > 1:
            say("ended at once: what was seen is not shown, and nothing is left running")
            os._exit(statuses.ended_by(number))
        say("ending: what is broken is mended, what was seen is judged; once more ends it at once")
        raise Ended(number)

    before = {}
    for number in HEARD:
        if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
            before[number] = signal.signal(number, end)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
