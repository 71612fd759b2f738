"""Errors that the handler of a signal has raised, among those of system calls.

`raise TimeoutError` in a handler is the usual way to limit the time of some code. It comes out wherever
that code is, also right behind a system call that has done its work. Whoever takes it for an error of
that call sends a request twice, or takes the next reply for its own. So code that blocks and catches
`OSError`, which `TimeoutError` is, lets those of a handler through first.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import FrameType

_VARARGS = 0x04
"""The flag of functions that take `*args`; the module `inspect`, which names it, is slow to import."""


def let_through(error: BaseException) -> None:
    """Raises `error` again if it comes from a handler."""
    if is_from_handler(error):
        raise error


def is_from_handler(error: BaseException) -> bool:
    """Returns whether a handler has raised `error`: Python gives it the frame that it interrupts."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        frame, trace = trace.tb_frame, trace.tb_next
        if any(value is frame for value in _arguments(trace.tb_frame)):
            return True
    return False


def _arguments(frame: FrameType) -> Iterator[object]:
    """Yields the arguments with which a frame was called, also those that have no name."""
    code = frame.f_code
    named = code.co_argcount
    for name in code.co_varnames[:named]:
        yield frame.f_locals.get(name)
    if code.co_flags & _VARARGS:
        yield from frame.f_locals.get(code.co_varnames[named + code.co_kwonlyargcount], ())
