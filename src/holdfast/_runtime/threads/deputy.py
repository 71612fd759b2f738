"""Calls that no signal handler interrupts."""

from __future__ import annotations

from _thread import allocate_lock, start_new_thread
from collections.abc import Callable
from queue import SimpleQueue
from threading import current_thread, main_thread

from ...events import report


class Deputy:
    """A thread that makes calls in place of the main thread, in the order in which they came.

    A signal handler may raise an exception between any two lines that the main thread runs, and leave
    what they change half changed. The callers do not wait: what they want to hear is told by the call.
    Other threads are not interrupted, and make their calls themselves, unless some are waiting here.
    """

    def __init__(self) -> None:
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._started = False
        self._turn = allocate_lock()
        self._asked = self._made = 0
        self._closed = False

    def call(self, function: Callable[[], None]) -> None:
        """Calls `function`, now or soon."""
        waiting = self._asked != self._made
        if self._closed or not (waiting or current_thread() is main_thread()):
            function()
            return
        self._asked += 1
        self._calls.put(function)
        if not self._started:
            start_new_thread(self._run, ())  # a second one, after an interrupt here, does no harm
            self._started = True

    def close(self) -> None:
        """Ends the thread, when it has made the calls that it was asked for.

        Later ones are made by their callers: there is nothing left that they could leave half changed.
        """
        self._closed = True
        self._calls.put(None)

    def _run(self) -> None:
        while True:
            with self._turn:  # one call at a time, in order
                function = self._calls.get()
                if function is None:
                    self._calls.put(None)
                    return
                try:
                    function()
                except Exception as error:  # it must not keep the calls behind it from being made
                    report("a call in place of the main thread failed", error)
                self._made += 1
