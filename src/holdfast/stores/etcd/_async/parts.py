"""The parts of a backend that all its requests work with."""

from __future__ import annotations

from typing import NamedTuple

from ....clock import Clock
from ..keys import Naming
from .attempts import Attempts
from .change_log import ChangeLog
from .leases import Leases
from .retry import Retrier


class Parts(NamedTuple):
    """One of each, made by the backend and handed to the classes that make its requests."""

    clock: Clock
    naming: Naming
    retrier: Retrier
    leases: Leases
    attempts: Attempts
    log: ChangeLog
