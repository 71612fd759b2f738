"""Compare-and-set on a version, for those who need no lock: the write that came second is done again.

    account = holdfast.versioned.SqlVersioned(connection, "accounts", key="id", value="balance")
    account.update(42, lambda balance: balance - 30)

Nobody waits for anybody, nothing can expire, and a frozen process harms no one: its write finds
another version and is refused. What it asks for is that the change can be computed again. For work
that cannot be repeated, or that spans several resources, take a lock and a fence.
"""

from .files import FileVersioned
from .objects import ObjectVersioned
from .redis import RedisVersioned
from .register import Conflict, Versioned
from .sql import SqlVersioned

__all__ = [
    "Conflict",
    "FileVersioned",
    "ObjectVersioned",
    "RedisVersioned",
    "SqlVersioned",
    "Versioned",
]
