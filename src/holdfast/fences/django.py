"""Django: a `SqlFence` in the transaction of `atomic()`.

from holdfast.fences.django import database

with locks.lock("invoice:42", purpose="correctness", protects=fence) as lease, transaction.atomic():
    lease.guard(database(), "invoice:42")
    Invoice.objects.filter(pk=42).update(paid=True)
"""

from __future__ import annotations

from typing import Any

from ..errors import ConfigError
from ..refusals import lacks
from .sql import SqlFence


def database(using: str = "default") -> Any:
    """Returns the driver's connection on which Django's transaction is under way, for a `SqlFence`.

    Raises `ConfigError` outside of `atomic()`, where Django commits each statement.
    """
    wrapper = _wrapper(using)
    if not wrapper.in_atomic_block:
        raise ConfigError(
            f"Django has no transaction under way on its database {using!r}: guard inside of "
            "`with transaction.atomic():`, and the same `using`"
        )
    return wrapper.connection


def install(fence: SqlFence, using: str = "default") -> SqlFence:
    """Makes the fence's tables in a database of Django's if they are not there; returns the fence.

    Outside of `atomic()`: in a migration with `atomic = False`, or once when the program starts.
    """
    wrapper = _wrapper(using)
    if wrapper.in_atomic_block:
        raise ConfigError(
            "the fence's tables are not made inside of atomic(): in a migration, set atomic = False"
        )
    wrapper.ensure_connection()
    fence.install(wrapper.connection)
    return fence


def _wrapper(using: str) -> Any:
    try:
        from django.db import connections
    except ImportError:
        raise ConfigError(lacks("this", "Django", "django")) from None
    return connections[using]
