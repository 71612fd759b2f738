"""Holdfast: distributed locks with fencing tokens, for blocking code. For asyncio: `holdfast.aio`.

import holdfast

locks = holdfast.connect("sqlite:///var/lib/app/locks.db")
with locks.lock("invoice:42", ttl=30.0, timeout=5.0) as lease:
    write(row, token=lease.token)
"""

from importlib import import_module
from typing import TYPE_CHECKING

from ._sync.connect import connect
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
from .events import Call, Event
from .guarantees import Guarantees
from .model import Label, LockState, Participant

if TYPE_CHECKING:
    from ._sync.doctor import doctor
    from ._sync.election import Election, Term
    from ._sync.multi import MultiLock
    from ._sync.multi_lease import MultiLease
    from ._sync.once import OnceLease
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
    "doctor": "_sync.doctor",
    "Election": "_sync.election",
    "Term": "_sync.election",
    "MultiLock": "_sync.multi",
    "MultiLease": "_sync.multi_lease",
    "OnceLease": "_sync.once",
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
