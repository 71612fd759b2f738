"""`mysql://…`, `mariadb://…`: the adapter to a MySQL or MariaDB database."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ....errors import ConfigError
from ....guarantees import Guarantees
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
        raise ConfigError(
            f"{target.scheme}:// needs PyMySQL, which is not here or cannot be used; install it by "
            f"`pip install 'holdfast[mysql]'` ({error})"
        ) from error
    ours, theirs = split_query(target)
    return MysqlDatabase(Address(target, theirs)), ours
