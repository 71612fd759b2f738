"""Refusals of a PostgreSQL: which ones end by themselves, and what to say of the others."""

from __future__ import annotations

import re

from ...errors import BackendUnavailable, ConfigError
from ..sql.failures import Again, Lost, Unready
from ..sql.refusals import permission_missing, tables_missing
from .address import Address

ISOLATION, READ_ONLY = "HF001", "25006"
"""A step was called in a transaction that had another isolation level; or could not write."""

RECOVERING = "0A000"
"""A standby's refusal of our BEGIN, which asks for a transaction that can write."""

GIVEN_UP = frozenset({"40001", "40P01", "55P03", "57014", "23505", "HF001"})
"""Nothing happened: a serialization failure, a deadlock, a row that was locked for too long, a time-out
of the server's own, an owner that arrived twice at once."""
UNREADY = ("08", "57P", "53300", "25P03", "25P04")
"""The beginnings of those after which the connection is of no use, and another may be."""
MISSING = ("42P01", "42883", "42703", "42704")
NO_SCHEMA = "3F000"
CREDENTIALS = ("28", "3D000")

_STARTING = (
    *("starting up", "shutting down", "recovery mode", "too many clients", "reserved for"),
    "too many connections for",
)
_CREDENTIALS = (
    "authentication",
    "pg_hba",
    "no password supplied",
    "does not exist",
    "not permitted to log in",
)

_NAMED = re.compile(r' (?:for|to) (?:role|user|database) ".*"')
_SAID = re.compile(r"(?:^|: )([^\s:]+:  .*)", re.MULTILINE)
"""The words of a server, behind those of libpq. The severity is translated, its two blanks are not."""
_QUOTE = r"[^\w\s,.:;-]"
"""A quotation mark of any language."""

_SETTINGS = ("invalid ", "definition of service ", "service file ", "could not match ")
"""The beginnings of what libpq says of settings that it cannot use, before it tries to connect."""


def refusal(code: str, message: str, address: Address) -> Exception:
    """Returns the exception to raise for a refusal, by its SQLSTATE."""
    if code == READ_ONLY:
        return Unready("it is a read-only standby, or cannot write; locks need the primary")
    if code in GIVEN_UP:
        return Again(f"the database gave up: {message}")
    if code.startswith(UNREADY):
        return Unready(message)
    if code == "42501":
        return permission_missing(address, message)
    if code in MISSING:
        return tables_missing(address, message)
    if code == NO_SCHEMA:
        return ConfigError(
            f"{address} has no schema for the tables: {message}; see its search_path"
        )
    if code.startswith(CREDENTIALS):
        return ConfigError(f"{address} refuses these credentials, or has no such database")
    return BackendUnavailable(f"{address} refused a step: {message} (SQLSTATE {code})")


def unreachable(message: str, address: Address, names: tuple[str, ...] = ()) -> Exception:
    """Returns the exception to raise when no connection could be made, by what libpq says.

    Its words are not passed on where they name the user. A server says them in its own language, and
    libpq tells no code: there, what has one of `names`, the user's and the database's, is about these.
    """
    if any(word in message for word in _STARTING):
        return Unready(_NAMED.sub("", _reason(message)))
    said = _SAID.findall(message)
    if (
        any(word in message for word in _CREDENTIALS) and "FATAL" in message
    ) or "password" in message:
        return credentials_refused(address)
    if any(_names(text, name) for text in said for name in names if name):
        return credentials_refused(address)
    if message.startswith(_SETTINGS):
        return ConfigError(f"{address}: {_reason(message)}")
    if said:
        return Unready(said[0])  # it answered, and did nothing
    return Lost(_reason(message))


def credentials_refused(address: Address) -> ConfigError:
    return ConfigError(
        f"{address} refuses these credentials, or has no such database or user; its log says more"
    )


def _names(text: str, name: str) -> bool:
    """Returns whether a text has the name in quotes, of any language, or at its end."""
    quoted = rf"{_QUOTE}\s?{re.escape(name)}\s?{_QUOTE}"
    return re.search(rf"{quoted}|: {re.escape(name)}$", text) is not None


def _reason(message: str) -> str:
    """Returns the part of libpq's words that says why; they begin with where."""
    first = message.strip().partition("\n")[0]
    return first.rpartition(" failed: ")[2] or "it cannot be reached"
