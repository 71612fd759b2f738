"""The address of an ensemble and its credentials, read from the URL and the options of `connect()`."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote

from ...errors import ConfigError
from ...refusals import lacks
from ..tls import context_of
from ..urls import Target

if TYPE_CHECKING:
    from ssl import SSLContext

DEFAULT_PORT = 2181


class Address(NamedTuple):
    """The address of an ensemble. Its text has no credentials in it."""

    hosts: str
    chroot: str
    """The path below which all znodes are: empty, or with a slash before it."""
    credentials: str
    """`user:password` for digest authentication, or empty."""
    sasl: dict[str, Any] | None
    """Options for kazoo's SASL."""
    tls: SSLContext | None = None

    def __str__(self) -> str:
        return self.hosts + self.chroot

    def __repr__(self) -> str:
        return f"<Address {self}>"


def address_of(target: Target, settings: dict[str, Any]) -> Address:
    """Returns the address in `zookeeper://[user:password@]host[:port],host[:port],…[/chroot]`.

    `settings` has the ways to be let in: `sasl`, and those of `TLS_OPTIONS`.
    """
    sasl = settings["sasl"]
    authority, _, path = target.rest.partition("/")
    if "@" in path:
        # The text is not shown: it may be the rest of a password.
        raise ConfigError(
            "the chroot of a zookeeper:// URL has an @; write that as %40, and / in a password as %2F"
        )
    credentials, _, hosts = authority.rpartition("@")
    user, colon, password = credentials.partition(":")
    if credentials and not (user and colon):
        raise ConfigError(
            "the zookeeper:// URL needs a user and a password for digest authentication: "
            "zookeeper://user:password@host:2181"
        )
    if sasl is not None:
        if credentials:
            raise ConfigError("give zookeeper:// a user in the URL, or sasl=, not both")
        if not isinstance(sasl, dict) or "mechanism" not in sasl:
            raise ConfigError(
                "sasl must be a dict with a mechanism: {'mechanism': 'DIGEST-MD5', 'username': …, "
                "'password': …}"
            )
        if find_spec("puresasl") is None:
            raise ConfigError("sasl= needs a package that is missing: pip install pure-sasl")
        sasl = dict(sasl)
    credentials = f"{unquote(user)}:{unquote(password)}" if user else ""
    servers = ",".join(map(_host, hosts.split(",")))
    return Address(servers, _chroot(path), credentials, sasl, context_of(settings))


def _host(text: str) -> str:
    """Returns `text` as `host:port`."""
    text = text.strip()
    if text.startswith("["):
        host, closing, port = text[1:].partition("]")
        host, good = f"[{host}]", bool(closing) and (not port or port.startswith(":"))
        port = port.removeprefix(":")
    else:
        host, _, port = text.partition(":")
        good = True
    if port and not (port.isascii() and port.isdecimal() and 0 < int(port) < 65536):
        good = False
    if not good or not host or host == "[]":
        # The text is not shown: it may be part of a password with an unescaped @ or /.
        raise ConfigError(
            "the zookeeper:// URL needs hosts, each with a port between 1 and 65535 if any: "
            "zookeeper://h1:2181,h2:2181,h3:2181/chroot; write @, / and : in a password as %40, %2F "
            "and %3A"
        )
    return f"{unquote(host)}:{port or DEFAULT_PORT}"


def _chroot(path: str) -> str:
    parts = [unquote(part) for part in path.split("/") if part]
    for part in parts:
        if part in (".", "..") or not part.isprintable():
            raise ConfigError("the chroot of the zookeeper:// URL has a part that is not a name")
    return "".join(f"/{part}" for part in parts)


def require_kazoo() -> None:
    """Raises ConfigError if kazoo is not installed."""
    if find_spec("kazoo") is None:
        raise ConfigError(lacks("zookeeper://", "the package kazoo", "zookeeper"))
