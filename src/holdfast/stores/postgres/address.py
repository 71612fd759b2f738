"""Addresses of PostgreSQL databases: a URL as libpq reads it, and options of our own beside."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any
from urllib.parse import quote

from psycopg import pq
from psycopg.conninfo import make_conninfo

from ...errors import ConfigError
from ...interrupts import let_through
from ..resolving import resolve
from ..urls import Target

KEYWORDS = frozenset(option.keyword.decode() for option in pq.Conninfo.get_defaults())
"""The settings that libpq takes in a URL."""
REFUSED = frozenset({"replication", "client_encoding"})
"""The settings of libpq that holdfast chooses itself."""
OF_DRIVERS = frozenset({"prepared_statement_cache_size", "async_fallback"})
"""Options in the URLs of SQLAlchemy's engines that say nothing of the place."""
SSL = {"true": "require", "1": "require", "false": "disable", "0": "disable"}
"""The values of `ssl` that asyncpg does not share with libpq's `sslmode`."""

_HOST = re.compile(r"([\w.-]*)(?::(\d+))?")

UNREADABLE = (
    "this postgresql:// URL cannot be read; write postgresql://USER:PASSWORD@HOST:PORT/DATABASE, "
    "with / : @ ? # and % in a password as %2F %3A %40 %3F %23 and %25"
)


def split_query(target: Target) -> tuple[Target, dict[str, str]]:
    """Returns the target with our own options alone, and those that are for libpq."""
    query = {name: value for name, value in target.query.items() if name not in OF_DRIVERS}
    if "ssl" in query and "sslmode" not in query:  # as asyncpg calls it
        ssl = query.pop("ssl")
        query["sslmode"] = SSL.get(ssl.lower(), ssl)
    if query.get("client_encoding", "").lower() in ("utf8", "utf-8"):
        del query["client_encoding"]
    ours = {name: value for name, value in query.items() if name not in KEYWORDS}
    theirs = {name: value for name, value in query.items() if name in KEYWORDS}
    for name in sorted(REFUSED & set(theirs)):
        raise ConfigError(f"option {name!r} cannot be given: holdfast chooses it itself")
    return target._replace(query=ours), _ports_apart(theirs)


def _ports_apart(settings: dict[str, str]) -> dict[str, str]:
    """Returns settings as libpq has them: SQLAlchemy writes the ports with the hosts, `host=a:1`."""
    hosts = [_HOST.fullmatch(host) for host in settings.get("host", "").split(",")]
    if "port" in settings or None in hosts or not any(host and host[2] for host in hosts):
        return settings
    return {
        **settings,
        "host": ",".join(host[1] for host in hosts if host),
        "port": ",".join(host[2] or "" for host in hosts if host),
    }


class Address:
    """The address of one database: its settings for libpq. Its text has no credentials in it."""

    def __init__(self, rest: str, query: dict[str, str]) -> None:
        """Takes the part of a URL behind `postgresql://`, and the options that are for libpq."""
        text = "&".join(f"{name}={quote(value, safe='')}" for name, value in query.items())
        try:
            if "@" in rest.partition("/")[2]:
                raise ValueError  # the / was in a password: what is before it would be shown as a host
            # SQLAlchemy leaves a blank as it is, also in a password.
            uri = f"postgresql://{rest}{'?' if text else ''}{text}".replace(" ", "%20")
            parsed = pq.Conninfo.parse(uri.encode())
        except Exception as error:
            let_through(error)
            # What libpq says may have the password in it.
            raise ConfigError(UNREADABLE) from None
        self._settings: dict[str, Any] = _values(parsed)
        if not {"host", "hostaddr", "service"} & set(self._settings):
            # As libpq would do, but a name is resolved by us.
            usual = _values(pq.Conninfo.get_defaults())
            for name in {"host", "hostaddr", "port"} & set(usual):
                self._settings.setdefault(name, usual[name])
        for port in self._settings.get("port", "").split(","):
            if port and not port.isdecimal():
                # It is not shown: the part with the host may be missing, and this be the password.
                raise ConfigError("the port must be a number from 1 to 65535, and this is none")
            if port and not 0 < int(port) < 65536:
                raise ConfigError(f"the port must be a number from 1 to 65535, not {port:.40}")
        self._settings.setdefault("fallback_application_name", "holdfast")
        self._settings["client_encoding"] = "UTF8"
        self._hosts = self._settings.get("host", "").split(",")
        self._ports = self._settings.get("port", "").split(",")
        if len(self._hosts) > 1:
            # Locks are on the primary, wherever it is now.
            self._settings.setdefault("target_session_attrs", "primary")
        shown = rest.rpartition("@")[2] or "the default of libpq"
        self._text = f"postgresql://{shown}"

    def __str__(self) -> str:
        return self._text

    def attempts(self, deadline: float, now: Callable[[], float]) -> Iterator[bytes]:
        """Yields what to connect to, one after the other: each address of each host.

        Names are resolved here, because libpq would wait for a slow name server as long as it takes.
        """
        if "hostaddr" in self._settings:
            yield self._conninfo({})
            return
        for number, host in enumerate(self._hosts):
            port = self._ports[number if len(self._ports) > 1 else 0]
            single = {"host": host, "port": port}
            if not host or host.startswith(("/", "@")):
                yield self._conninfo(single)
                continue
            for place in resolve(host, int(port or 5432), deadline, now):
                yield self._conninfo({**single, "hostaddr": str(place.where[0])})

    def _conninfo(self, others: dict[str, str]) -> bytes:
        settings = {**self._settings, **others}
        return make_conninfo(**{name: value for name, value in settings.items() if value}).encode()


def _values(options: Iterable[pq.misc.ConninfoOption]) -> dict[str, str]:
    """Returns the settings that have a value."""
    return {
        option.keyword.decode(): option.val.decode() for option in options if option.val is not None
    }
