"""Holdfast: distributed locks with fencing tokens, for asyncio. For blocking code: `holdfast`.

import holdfast.aio

async with holdfast.aio.connect("sqlite:///var/lib/app/locks.db") as locks:
    async with locks.lock("invoice:42", ttl=30.0, timeout=5.0) as lease:
        await write(row, token=lease.token)
"""

from importlib import import_module
from typing import TYPE_CHECKING

from ._async.connect import connect
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
from .events import Call, Event
from .guarantees import Guarantees
from .model import Label, LockState, Participant

if TYPE_CHECKING:
    from ._async.doctor import doctor
    from ._async.election import Election, Term
    from ._async.multi import MultiLock
    from ._async.multi_lease import MultiLease
    from ._async.once import OnceLease
    from .findings import Finding
    from .wait_graph import Deadlock, Wait
    from .watching import Sighting

__all__ = [
    "BackendUnavailable",
    "Call",
    "ConfigError",
    "Deadlock",
    "Election",
    "Event",
    "Finding",
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
    "MultiLease",
    "MultiLock",
    "OnceLease",
    "Participant",
    "ReadWriteLock",
    "Sighting",
    "StaleToken",
    "Term",
    "Wait",
    "__version__",
    "connect",
    "doctor",
]

_LATER = {
    "doctor": "_async.doctor",
    "Election": "_async.election",
    "Term": "_async.election",
    "MultiLock": "_async.multi",
    "MultiLease": "_async.multi_lease",
    "OnceLease": "_async.once",
    "Finding": "findings",
    "Deadlock": "wait_graph",
    "Wait": "wait_graph",
    "Sighting": "watching",
}
"""Names that not every program uses, and the modules that have them: imported when they are used."""


def __getattr__(name: str) -> object:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"holdfast.{_LATER[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
