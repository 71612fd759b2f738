"""The runtime for asyncio. Its twin is `threads`: the same names and meanings."""

from __future__ import annotations

from ...surroundings import require_loop as check_surroundings
from .alarm import Alarm
from .deputy import Deputy
from .functions import check_function
from .poller import Poller
from .routine import (
    Interrupt,
    Routine,
    Worker,
    call_all,
    current,
    finish,
    forget_closed_loops,
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
    "forget_closed_loops",
    "here",
    "in_background",
    "send_home",
]
