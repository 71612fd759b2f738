"""Fences: the other half of a lock, at the resource that it protects.

Each of them refuses a stale token *in the same atomic step as the write*, with `StaleToken`. Wherever
a token is taken the lease itself may be given, and brings the identity of its lock along.

    fence = holdfast.fences.SqlFence(connection)
    with locks.lock("invoice:42", purpose="correctness", protects=fence) as lease:
        with connection.transaction():
            lease.guard(connection, "invoice:42")
            connection.execute("UPDATE …")
"""

from .fence import BoundFence, Fence
from .file import FileFence
from .http import HttpFence, fenced, fencing_headers, raise_for_stale, verify_fenced
from .memory import MemoryFence
from .middleware import FencingMiddleware, request_path
from .objects import ObjectFence
from .redis import RedisFence
from .refusals import on_refusal
from .rules import Token
from .run_token import run_token
from .sql import SqlFence

__all__ = [
    "BoundFence",
    "Fence",
    "FencingMiddleware",
    "FileFence",
    "HttpFence",
    "MemoryFence",
    "ObjectFence",
    "RedisFence",
    "SqlFence",
    "Token",
    "fenced",
    "fencing_headers",
    "on_refusal",
    "raise_for_stale",
    "request_path",
    "run_token",
    "verify_fenced",
]
