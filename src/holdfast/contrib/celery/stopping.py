"""Signals that stop a beat, put off while it sends a task."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

STOPS = signal.SIGINT, signal.SIGTERM
PATIENCE = 5.0
"""Seconds for which a signal is put off at most: a broker may be silent."""


@contextmanager
def stops_put_off() -> Iterator[None]:
    """Has a signal that stops the process wait for the end of the body, but not for long.

    A second signal does not wait. In another thread than the main one nothing is put off: signals do
    not come there.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    over = False
    mutex = threading.Lock()  # so that no second signal is sent when the body is over
    handlers = {
        number: handler
        for number in STOPS
        if callable(handler := signal.getsignal(number)) or handler is signal.SIG_DFL
    }

    def put_off(number: int, frame: FrameType | None) -> None:
        came.append(number)
        if len(came) > 1:
            restore()
            signal.raise_signal(number)
        else:
            limit = threading.Timer(PATIENCE, send_again, (number,))
            limit.daemon = True
            limit.start()

    def send_again(number: int) -> None:
        with mutex:
            if not over:
                os.kill(os.getpid(), number)

    def restore() -> None:
        for number, handler in handlers.items():
            signal.signal(number, handler)

    try:
        for number in handlers:
            signal.signal(number, put_off)
        yield
    finally:
        with mutex:
            over = True
        restore()
        if len(came) == 1:
            signal.raise_signal(came[0])
