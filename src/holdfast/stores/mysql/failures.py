"""Refusals of a MySQL or MariaDB: which ones end by themselves, and what to say of the others."""

from __future__ import annotations

import re

from ...errors import BackendUnavailable, ConfigError
from ..sql.failures import Again, Lost, Unready
from ..sql.refusals import permission_missing, tables_missing
from .address import Address

GIVEN_UP = frozenset({1020, 1205, 1213, 1062, 3572})
"""The server gave a step up and took it back: a row that was changed or locked, a deadlock, an owner
that arrived twice at once."""
UNREADY = frozenset({1040, 1047, 1053, 1129, 1135, 1203, 1226, 1317, 1927, 1969, 3024, 3168})
"""After these the connection is of no use, and another may be: too many connections, a server that
starts, stops or is not part of its cluster; a step that somebody or a time limit ended, whose
transaction may still be open."""
LOST = frozenset(
    {0, 2002, 2003, 2006, 2013, 2014, 2055, 4031, 1152, 1153, 1154, 1159, 1160, 1161, 1184}
)
READ_ONLY = frozenset({1792, 1836})
OPTION = 1290
"""The server runs with an option that forbids it: read_only, or another."""
DENIED = frozenset({1142, 1143, 1227, 1370, 1419})
CREDENTIALS = frozenset(
    {1044, 1045, 1049, 1130, 1251, 1698, 1820, 1862, 2054, 2059, 2061, 3118, 4151}
)
MISSING = frozenset({1146, 1305, 1054, 1318})
FULL = frozenset({3, 28, 1021, 1030, 1114, 1026})
TABLES = frozenset({1071, 1074, 1118, 1286, 1709, 1911, 3161})
"""The tables cannot be created as they have to be."""
BINARY_LOG = 1665
ROUTINE_EXISTS = 1304

TOO_MANY = frozenset({1203, 1226})
"""One user has more connections than it may have, or asks too often."""

_USER = re.compile(r" (?:to|for) user '(?:[^'\\]|\\.)*'(?:@'[^']*')?")
_ACCOUNT = re.compile(r"'(?:[^'\\]|\\.)*'@'[^']*'")
"""A user in a message of any language: only English ones have the words before it."""
_LIMIT = re.compile(r"max_\w+")


class Denied(ConfigError):
    """Raised when this user has not the permission for a step."""


class RoutineExists(BackendUnavailable):
    """Raised when a procedure is there already."""


def refusal(code: int, message: str, address: Address) -> Exception:
    """Returns the exception to raise for a refusal, by its number. It names no user."""
    message = _ACCOUNT.sub("this user", _USER.sub("", message))
    if code in TOO_MANY:
        limit = _LIMIT.search(message)
        message = (
            f"this user has reached its limit, {limit[0] if limit else 'max_user_connections'}"
        )
    if code in READ_ONLY or (code == OPTION and "read" in message.lower()):
        return Unready("it is read-only: a replica, or one that may not be written to")
    if code in GIVEN_UP:
        return Again(f"the database gave up: {message}")
    if code in LOST:
        return Lost("the connection broke")
    if code in UNREADY:
        return Unready(message)
    if code in CREDENTIALS:
        return ConfigError(f"{address} refuses these credentials, or has no such database or user")
    if code in DENIED:
        return Denied(str(permission_missing(address, message)))
    if code in MISSING:
        return tables_missing(address, message)
    if code == ROUTINE_EXISTS:
        return RoutineExists(message)
    if code in FULL:
        return BackendUnavailable(f"{address} has no room left, or its disk fails: {message}")
    if code in TABLES or code == OPTION:
        return ConfigError(
            f"{address} cannot have the tables of holdfast, which need InnoDB with pages of 16 kB: "
            f"{message}"
        )
    if code == BINARY_LOG:
        return ConfigError(
            f"{address} has binlog_format = STATEMENT, which cannot log the steps of locks; set it to "
            "ROW or MIXED"
        )
    return BackendUnavailable(f"{address} refused a step: {message} (error {code})")
