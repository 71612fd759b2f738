"""The runtime for blocking code and threads. Its twin is `aio`: the same names and meanings."""

from __future__ import annotations

from _thread import get_ident as current

from ...surroundings import require_threads as check_surroundings
from .alarm import Alarm
from .poller import Poller
from .routine import Interrupt, Mutex, Routine, Worker, enter, finish, here
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
