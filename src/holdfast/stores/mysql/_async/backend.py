"""`mysql://…`, `mariadb://…`: the adapter to a MySQL or MariaDB database."""

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
    from ..database import MysqlDatabase


def prepare(
    target: Target, namespace: str, options: dict[str, Any]
) -> tuple[Guarantees, Callable[[], Backend]]:
    """Checks all that can be checked without opening; returns the guarantees and the opener."""
    database, ours = database_of(target)
    return prepared(ours, namespace, options, database, None, guarantees.MYSQL)


def database_of(target: Target) -> tuple[MysqlDatabase, Target]:
    try:
        from ..address import Address, split_query
        from ..database import MysqlDatabase
    except ImportError as error:
        needed = "PyMySQL, which is not here or cannot be used"
        said = lacks(f"{target.scheme}://", needed, "mysql")
        raise ConfigError(f"{said} ({error})") from error
    ours, theirs = split_query(target)
    return MysqlDatabase(Address(target, theirs)), ours
