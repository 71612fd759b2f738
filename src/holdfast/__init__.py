"""Holdfast: distributed locks with fencing tokens, for blocking code. For asyncio: `holdfast.aio`.

import holdfast

locks = holdfast.connect("sqlite:///var/lib/app/locks.db")
with locks.lock("invoice:42", ttl=30.0, timeout=5.0) as lease:
    write(row, token=lease.token)
"""

from ._sync.connect import connect
from ._sync.election import Election, Term
from ._sync.lease import Lease
from ._sync.lock import Lock, ReadWriteLock
from ._sync.manager import Locks
from ._version import __version__
from .clock import ManualClock
from .errors import (
    BackendUnavailable,
    ConfigError,
    GuaranteeError,
    LeaseLost,
    LockError,
    LockNotOwned,
    LockTimeout,
    StaleToken,
)
from .events import Event
from .guarantees import Guarantees
from .model import Label, LockState, Participant

__all__ = [
    "BackendUnavailable",
    "ConfigError",
    "Election",
    "Event",
    "GuaranteeError",
    "Guarantees",
    "Label",
    "Lease",
    "LeaseLost",
    "Lock",
    "LockError",
    "LockNotOwned",
    "LockState",
    "LockTimeout",
    "Locks",
    "ManualClock",
    "Participant",
    "ReadWriteLock",
    "StaleToken",
    "Term",
    "__version__",
    "connect",
]
