"""Holdfast: distributed locks with fencing tokens, for asyncio. For blocking code: `holdfast`.

import holdfast.aio

async with holdfast.aio.connect("sqlite:///var/lib/app/locks.db") as locks:
    async with locks.lock("invoice:42", ttl=30.0, timeout=5.0) as lease:
        await write(row, token=lease.token)
"""

from ._async.connect import connect
from ._async.election import Election, Term
from ._async.lease import Lease
from ._async.lock import Lock, ReadWriteLock
from ._async.manager import Locks
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
