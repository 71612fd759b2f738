"""Addresses of Redis servers: host and credentials, from the URL and the options of `connect()`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from ...errors import ConfigError
from ..tls import TLS_FILES, context_with, is_wanted
from ..urls import Target

if TYPE_CHECKING:
    import ssl

DEFAULT_PORT = 6379


class Login(Protocol):
    """A source of credentials, which is asked anew for each connection."""

    def get(self) -> tuple[str, str]:
        """Returns user and password; may take its time."""
        ...

    async def get_soon(self) -> tuple[str, str]:
        """Returns user and password, without holding up the event loop."""
        ...


class Address(NamedTuple):
    """The address of one server. Its text has no credentials in it."""

    host: str
    port: int
    path: str
    """The path of a unix socket; empty for TCP."""
    db: int
    user: str
    password: str
    tls: ssl.SSLContext | None
    expects: str = "standalone"
    """The kind of server that has to be there: `standalone`, `primary` (of a replicated set),
    `sentinel` or `cluster`."""
    login: Login | None = None
    """The source of user and password for each new connection, where they may change."""

    def __str__(self) -> str:
        if self.path:
            return f"unix:{self.path}"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def __repr__(self) -> str:
        return f"<Address {self}>"


TLS_OPTIONS: dict[str, Any] = {**TLS_FILES, "tls_context": None}


def address_of(target: Target, settings: dict[str, Any]) -> Address:
    """Returns the address in a URL of these forms:

    `redis://[user:password@]host[:port][/db]`, `rediss://…`, `redis+unix://[user:password@]/path`.
    """
    authority, slash, path = target.rest.partition("/")
    credentials, _, host_and_port = authority.rpartition("@")
    user, password = _login(credentials, target.scheme)
    if target.scheme == "redis+unix":
        if host_and_port or not path:
            raise ConfigError("write redis+unix:///path/to/redis.sock, with three slashes")
        path = sendable(f"the path in the {target.scheme}:// URL", slash + unquote(path))
        db = database(settings["db"])
        return Address("", 0, path, db, user, password, tls_of(False, settings))
    host, port = _host(host_and_port, target.scheme)
    db = database_of(path, settings)
    return Address(host, port, "", db, user, password, tls_of(target.scheme == "rediss", settings))


def hosts_of(target: Target, default_port: int) -> tuple[list[tuple[str, int]], str, str, str]:
    """Returns hosts, user, password and path of `scheme://[user:password@]host[:port],host[:port]…/path`."""
    authority, _, path = target.rest.partition("/")
    credentials, _, listed = authority.rpartition("@")
    if "@" in credentials and "," in credentials:
        raise ConfigError(
            f"a {target.scheme}:// URL has one user and password for all its hosts, before the first: "
            f"{target.scheme}://user:password@host1,host2; write @ in a password as %40"
        )
    user, password = _login(credentials, target.scheme)
    hosts = [_host(one.strip(), target.scheme, default_port) for one in listed.split(",")]
    return hosts, user, password, path


def _login(credentials: str, scheme: str) -> tuple[str, str]:
    user, colon, password = credentials.partition(":")
    if not colon:
        user, password = "", user  # redis://secret@host: a password alone
    what = f"the user or the password in the {scheme}:// URL"
    return sendable(what, unquote(user)), sendable(what, unquote(password))


def sendable(what: str, text: str) -> str:
    """Returns `text`, if it can be sent to a server. Its error does not show it: it may be a secret."""
    if "\0" in text or any("\ud800" <= char <= "\udfff" for char in text):
        raise ConfigError(f"{what} has a zero byte or a lone surrogate")
    return text


def _host(text: str, scheme: str, default_port: int = DEFAULT_PORT) -> tuple[str, int]:
    if text.startswith("["):
        host, closing, rest = text[1:].partition("]")
        port = rest.removeprefix(":")
        if not closing or (rest and not rest.startswith(":")):
            raise ConfigError(f"the {scheme}:// URL has an unfinished IPv6 address")
    else:
        host, _, port = text.partition(":")
    if not host or (port and not (port.isascii() and port.isdecimal() and 0 < int(port) < 65536)):
        # The text is not shown: it may be part of a password with an unescaped @ or /.
        raise ConfigError(
            f"the {scheme}:// URL needs a host, and a port between 1 and 65535 if any: "
            f"{scheme}://host:{default_port}; write @, / and : in a password as %40, %2F and %3A"
        )
    host = unquote(host)
    if not _is_name(host):
        raise ConfigError(
            f"the host in the {scheme}:// URL is not a name that can be looked up: its parts have 1 to "
            "63 characters each, between single dots, and no control characters"
        )
    return host, int(port) if port else default_port


def _is_name(host: str) -> bool:
    if host.isascii():
        labels = host.removesuffix(".").split(".")
        return host.isprintable() and all(0 < len(label) < 64 for label in labels)
    try:
        return bool(host.encode("idna"))
    except UnicodeError:
        return False


def database_of(path: str, settings: dict[str, Any]) -> int:
    """Returns the database that the end of the URL or the option names."""
    option = database(settings["db"])
    if not path:
        return option
    db = database(path)
    if option not in (0, db):
        raise ConfigError(f"the URL names the database {db}, and the option db another: {option}")
    return db


def database(value: object) -> int:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    text = str(value)
    if isinstance(value, bool) or not (text.isascii() and text.isdecimal() and len(text) < 9):
        raise ConfigError("the database of a redis:// URL is a number: redis://host:6379/0")
    return int(text)


def wants_tls(settings: dict[str, Any]) -> bool:
    """Returns True for `tls=True` or any TLS file: for schemes that have no twin for TLS."""
    return is_wanted(settings["tls"], "tls") or any(settings[name] for name in TLS_OPTIONS)


def tls_of(wanted: bool, settings: dict[str, Any], prefix: str = "") -> ssl.SSLContext | None:
    """Returns the TLS context that the options ask for. `prefix` is what stands before their names."""
    given = [name for name in TLS_OPTIONS if settings[name]]
    if not wanted:
        if given:
            raise ConfigError(f"{min(given)} is an option of rediss://, which uses TLS")
        return None
    context = settings["tls_context"]
    if not context:
        return context_with(settings, prefix)
    import ssl  # slow to import, and not needed by most

    if len(given) > 1 or not isinstance(context, ssl.SSLContext):
        raise ConfigError(
            f"{prefix}tls_context must be an ssl.SSLContext, and excludes {prefix}tls_ca and others"
        )
    return context


def unquote(text: str) -> str:
    if "%" not in text:
        return text
    from urllib.parse import unquote as decode  # slow to import, and rarely needed

    return decode(text)
