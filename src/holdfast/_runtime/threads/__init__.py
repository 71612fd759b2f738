"""The runtime for blocking code and threads. Its twin is `aio`: the same names and meanings."""

from __future__ import annotations

from ...surroundings import require_threads as check_surroundings
from .alarm import Alarm
from .deputy import Deputy
from .functions import check_function
from .pieces import Pieces
from .poller import Poller
from .routine import (
    Interrupt,
    Routine,
    Worker,
    call_all,
    current,
    finish,
    here,
    in_background,
    send_home,
)
from .signal import Signal
from .turn import Turn

__all__ = [
    "Alarm",
    "Deputy",
    "Interrupt",
    "Pieces",
    "Poller",
    "Routine",
    "Signal",
    "Turn",
    "Worker",
    "call_all",
    "check_function",
    "check_surroundings",
    "current",
    "finish",
    "here",
    "in_background",
    "send_home",
]
