"""The runtime for asyncio. Its twin is `threads`: the same names and meanings."""

from __future__ import annotations

from ...surroundings import require_loop as check_surroundings
from .alarm import Alarm
from .deputy import Deputy
from .forked import renew_in_children
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
    forget_closed_loops,
    here,
    in_background,
    send_home,
)
from .signal import Signal
from .transports import descriptor
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
    "descriptor",
    "finish",
    "forget_closed_loops",
    "here",
    "in_background",
    "renew_in_children",
    "send_home",
]
