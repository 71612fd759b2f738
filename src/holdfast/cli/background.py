"""Calls to the store on a thread of their own, so that the main thread goes on hearing signals."""

from __future__ import annotations

from collections.abc import Callable
from threading import Thread


class BackgroundCall:
    """A call under way on a thread of its own; `wake` is called when it has ended."""

    __slots__ = ("_ended", "_function", "_wake", "error")

    def __init__(self, function: Callable[[], object], wake: Callable[[], None]) -> None:
        self._function = function
        self._wake = wake
        self._ended = False
        self.error: BaseException | None = None
        Thread(target=self._run, name="holdfast-call", daemon=True).start()

    def ended(self) -> bool:
        return self._ended

    def _run(self) -> None:
        try:
            self._function()
        except BaseException as error:
            self.error = error
        self._ended = True
        self._wake()
