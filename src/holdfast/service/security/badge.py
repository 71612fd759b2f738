"""A badge: what the service keeps of a bearer token, and what that token allows.

    read      look at locks, their changes and deadlocks
    hold      that, and take locks, renew and release them, and show tokens to fences
    admin     that, and release locks by force
    metrics   nothing but /metrics

A badge covers the names that start with one of its prefixes, in its namespace, or in all of them. What
is not covered does not exist for its bearer.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import Any, NamedTuple

from ... import checks
from ...errors import ConfigError
from .bearer import ID_LENGTH

ROLES = ("read", "hold", "admin", "metrics")
_ALLOWED = {
    "read": frozenset({"read"}),
    "hold": frozenset({"read", "hold"}),
    "admin": frozenset({"read", "hold", "admin", "metrics"}),
    "metrics": frozenset({"metrics"}),
}
_HEX = frozenset("0123456789abcdef")
MAX_NAME = 128
MAX_PREFIXES = 64


class Badge(NamedTuple):
    """The record of one bearer token; nothing in it lets anybody in."""

    id: str
    digest: str
    name: str
    """Whose it is, for people: in lists, in the access log, in the audit log."""
    role: str
    prefixes: tuple[str, ...]
    """The beginnings of the names that it covers; an empty one covers all."""
    namespace: str | None
    """The namespace that it is for; None: all that the service has."""
    created: float
    expires: float | None
    """Seconds since the epoch; None: never."""

    def allows(self, act: str) -> bool:
        """Returns True if the role includes `act`: `read`, `hold`, `admin` or `metrics`."""
        return act in _ALLOWED[self.role]

    def covers(self, namespace: str, name: str) -> bool:
        """Returns True if the lock `name`, or a resource of that name, is this bearer's to use."""
        return self.namespace in (None, namespace) and name.startswith(self.prefixes)

    def expired(self, now: float) -> bool:
        return self.expires is not None and now >= self.expires

    def __repr__(self) -> str:
        return f"<Badge {self.id} {self.name!r} {self.role}>"


def check(badge: Badge) -> Badge:
    """Returns the badge if it makes sense; raises ConfigError if not."""
    _text("the id", badge.id, ID_LENGTH)
    if len(badge.id) != ID_LENGTH or not (badge.id.isascii() and badge.id.isalnum()):
        raise ConfigError(f"{badge.id!r:.40} is no id of a token")
    checks.printable("the digest of a token", badge.digest, 64)
    if len(badge.digest) != 64 or set(badge.digest) - _HEX:
        raise ConfigError(f"the digest of the token {badge.id} is no SHA-256")
    _text("the name of a token", badge.name, MAX_NAME)
    checks.printable("the role of a token", badge.role, 40)
    if badge.role not in ROLES:
        raise ConfigError(f"there is no role {badge.role!r:.40}; choose from {', '.join(ROLES)}")
    if len(badge.prefixes) > MAX_PREFIXES:
        raise ConfigError(f"a token has a list of prefixes, at most {MAX_PREFIXES} of them")
    for prefix in badge.prefixes:
        checks.prefix(prefix)
    if not badge.prefixes and badge.role != "metrics":
        raise ConfigError(
            "give at least one prefix: the token is for locks whose names start with it; an "
            "empty one is for all locks"
        )
    if badge.namespace is not None:
        checks.namespace(badge.namespace)
    _moment("created", badge.created)
    if badge.expires is not None:
        _moment("expires", badge.expires)
    return badge


def encode(badge: Badge) -> dict[str, Any]:
    """Returns the badge as it stands in the file."""
    return {**badge._asdict(), "prefixes": list(badge.prefixes)}


def decode(record: Mapping[str, Any]) -> Badge:
    """Returns the badge that the file has; raises ConfigError if anything about it is not understood.

    A key that we do not know may be a limit that a later release knows, so it is not passed over.
    """
    if not isinstance(record, dict) or set(record) != set(Badge._fields):
        raise ConfigError(f"a token has exactly the keys {', '.join(Badge._fields)}")
    prefixes = record["prefixes"]
    if not isinstance(prefixes, list):
        raise ConfigError("the prefixes of a token are a list")
    return check(Badge(**{**record, "prefixes": tuple(prefixes)}))


def _text(what: str, value: object, limit: int) -> None:
    checks.printable(what, value, limit)


def _moment(what: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
        raise ConfigError(f"{what} of a token is a number of seconds since the epoch")
