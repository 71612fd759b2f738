"""Errors that the handler of a signal has raised, among those of system calls.

`raise TimeoutError` in a handler is the usual way to limit the time of some code. It comes out wherever
that code is, also right behind a system call that has done its work. Whoever takes it for an error of
that call sends a request twice, or takes the next reply for its own. So code that blocks and catches
`OSError`, which `TimeoutError` is, lets those of a handler through first.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from types import CodeType, FrameType
from typing import Any

_VARARGS = 0x04
"""The flag of functions that take `*args`; the module `inspect`, which names it, is slow to import."""


def let_through(error: BaseException) -> None:
    """Raises `error` again if it comes from a handler."""
    try:
        if is_from_handler(error):
            raise error
    finally:
        # Its traceback has this frame: as long as each had the other, all that was interrupted stayed.
        del error


def real_path(path: str | os.PathLike[str]) -> str:
    """Returns a path without links, as `os.path.realpath` does, which takes an error of a handler for
    the answer that a part is no link."""
    try:
        return os.fspath(os.path.realpath(path, strict=True))
    except OSError as error:
        let_through(error)
    # Not all of it is there. It is asked for twice, as nobody hears of such an error here.
    while (found := os.path.realpath(path)) != os.path.realpath(path):
        continue
    return os.fspath(found)


def is_from_handler(error: BaseException) -> bool:
    """Returns whether a handler has raised `error`.

    Python gives it the frame that it interrupts. One that keeps something else in that variable is
    known by its code, as long as it is a handler.
    """
    trace = error.__traceback__
    known: set[CodeType] | None = None
    while trace is not None and trace.tb_next is not None:
        frame, trace = trace.tb_frame, trace.tb_next
        if any(value is frame for value in _arguments(trace.tb_frame)):
            return True
        known = _handlers() if known is None else known
        if trace.tb_frame.f_code in known:
            return True
    return False


def _arguments(frame: FrameType) -> Iterator[object]:
    """Yields the arguments with which a frame was called, also those that have no name."""
    code = frame.f_code
    named = code.co_argcount
    for name in code.co_varnames[:named]:
        yield frame.f_locals.get(name)
    if code.co_flags & _VARARGS:
        rest = frame.f_locals.get(code.co_varnames[named + code.co_kwonlyargcount])
        if isinstance(rest, tuple):  # else it has put something else there
            yield from rest


def _handlers() -> set[CodeType]:
    """Returns the code of all handlers that there are now."""
    import signal  # here, as it is slow to import

    found = set()
    for number in signal.valid_signals():
        handler: Any = signal.getsignal(number)
        while isinstance(handler, partial):
            handler = handler.func
        for one in (handler, vars(type(handler)).get("__call__")):
            code = getattr(getattr(one, "__func__", one), "__code__", None)
            if isinstance(code, CodeType):
                found.add(code)
    return found
