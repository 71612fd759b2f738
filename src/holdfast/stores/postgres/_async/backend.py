"""`postgresql://…`: the adapter to a PostgreSQL database."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ....errors import ConfigError
from ....guarantees import Guarantees
from ....refusals import lacks
from ..._async.contract import Backend
from ...sql._async.backend import prepared
from ...urls import Target
from .. import guarantees

if TYPE_CHECKING:
    from ..database import PostgresDatabase


def prepare(
    target: Target, namespace: str, options: dict[str, Any]
) -> tuple[Guarantees, Callable[[], Backend]]:
    """Checks all that can be checked without opening; returns the guarantees and the opener."""
    database, ours = database_of(target)
    return prepared(ours, namespace, options, database, database, guarantees.POSTGRES)


def database_of(target: Target) -> tuple[PostgresDatabase, Target]:
    try:
        from ..address import Address, split_query
        from ..database import PostgresDatabase
    except ImportError as error:
        needed = "psycopg, which is not here or cannot be used"
        said = lacks(f"{target.scheme}://", needed, "postgres")
        raise ConfigError(f"{said} ({error})") from error
    ours, theirs = split_query(target)
    return PostgresDatabase(Address(target.rest, theirs)), ours
