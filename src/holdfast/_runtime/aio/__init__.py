"""The runtime for asyncio. Its twin is `threads`: the same names and meanings."""

from __future__ import annotations

from ...surroundings import require_loop as check_surroundings
from .alarm import Alarm
from .poller import Poller
from .routine import Interrupt, Mutex, Routine, Worker, current, enter, finish, here
from .signal import Signal

__all__ = [
    "Alarm",
    "Interrupt",
    "Mutex",
    "Poller",
    "Routine",
    "Signal",
    "Worker",
    "check_surroundings",
    "current",
    "enter",
    "finish",
    "here",
]
