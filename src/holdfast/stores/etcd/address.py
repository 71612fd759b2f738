"""The members of an etcd cluster, and how we are let in: from the URL and the options."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ...errors import ConfigError
from ..redis.address import unquote
from ..tls import context_of
from ..urls import Target

if TYPE_CHECKING:
    import ssl

DEFAULT_PORT = 2379


class Address(NamedTuple):
    """The address of a cluster. Its text has no credentials in it."""

    endpoints: tuple[str, ...]
    user: str
    password: str
    tls: ssl.SSLContext | None
    """The certificates to trust and to show, or None for a connection without TLS."""

    def __str__(self) -> str:
        return ",".join(self.endpoints)

    def __repr__(self) -> str:
        return f"<Address {self}>"


def address_of(target: Target, settings: dict[str, Any]) -> Address:
    """Reads `etcd://[user:password@]host[:port],host[:port],…`"""
    authority, _, path = target.rest.partition("/")
    if path:
        raise ConfigError("an etcd:// URL has no path: etcd://host1:2379,host2:2379")
    credentials, _, places = authority.rpartition("@")
    user, colon, password = credentials.partition(":")
    if credentials and not (user and colon and password):
        raise ConfigError("write both, user and password: etcd://user:password@host:2379")
    endpoints = tuple(_endpoint(place) for place in places.split(","))
    if len(set(endpoints)) < len(endpoints):
        raise ConfigError("the etcd:// URL names the same member twice")
    tls = context_of(settings)
    if tls is not None:
        tls.set_alpn_protocols(["h2"])
    return Address(endpoints, unquote(user), unquote(password), tls)


def _endpoint(place: str) -> str:
    if place.startswith("["):
        host, closing, rest = place[1:].partition("]")
        port = rest.removeprefix(":")
        bad = not closing or (rest != "" and not rest.startswith(":"))
        shown = f"[{host}]"
    else:
        host, _, port = place.partition(":")
        bad = False
        shown = unquote(host)
    bad = bad or not host or (port != "" and not (port.isascii() and port.isdecimal()))
    if bad or (port and not 0 < int(port) < 65536):
        # Not shown: what stands here may be part of a password with an unescaped @ or /.
        raise ConfigError(
            "each member in an etcd:// URL needs a host, and a port between 1 and 65535 if any: "
            "etcd://host1:2379,host2:2379; write @, /, : and , in a password as %40, %2F, %3A and %2C"
        )
    return f"{shown}:{port or DEFAULT_PORT}"


def host_and_port(endpoint: str) -> tuple[str, int]:
    """Returns the host and the port of a member."""
    host, _, port = endpoint.rpartition(":")
    return host.removeprefix("[").removesuffix("]"), int(port)
