"""Signals that stop a beat, put off while it sends a task."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

STOPS = signal.SIGINT, signal.SIGTERM


@contextmanager
def stops_put_off() -> Iterator[None]:
    """Has a signal that stops the process wait for the end of the body. A second one does not wait.

    In another thread than the main one nothing is put off: signals do not come there.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
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

    def restore() -> None:
        for number, handler in handlers.items():
            signal.signal(number, handler)

    try:
        for number in handlers:
            signal.signal(number, put_off)
        yield
    finally:
        restore()
        if len(came) == 1:
            signal.raise_signal(came[0])
