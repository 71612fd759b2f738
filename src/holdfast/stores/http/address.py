"""The services to speak to, and how they let us in: from the URL and the options."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NamedTuple

from ... import checks
from ...errors import ConfigError
from ...interrupts import let_through
from ..redis.address import hosts_of
from ..tls import TLS_FILES, context_with
from ..urls import Target

if TYPE_CHECKING:
    import ssl

DEFAULT_PORTS = {"http": 7420, "https": 443}
TOKEN_FILE = "HOLDFAST_TOKEN_FILE"
"""The variable that names the file with the bearer token, where none is given."""
LARGEST_TOKEN = 4096
TIMING: dict[str, Any] = {"heartbeat": float, "claim_window": float}
OPTIONS: dict[str, Any] = {
    **TIMING,
    "token": str,
    "token_file": str,
    **TLS_FILES,
    "tls_context": None,
}


class Endpoint(NamedTuple):
    """The address of one service."""

    host: str
    port: int
    tls: ssl.SSLContext | None
    path: str = ""
    """The path of a unix socket, which a service does not have."""

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Address(NamedTuple):
    """The address of one service, or of several on the same store. Its text has no credentials."""

    endpoints: tuple[str, ...]
    places: dict[str, Endpoint]
    prefix: str
    """The path below which the service is, without a slash at its end."""
    token: str

    def __str__(self) -> str:
        return ",".join(self.endpoints)

    def __repr__(self) -> str:
        return f"<Address {self}>"

    def headers(self, endpoint: str) -> bytes:
        """Returns the header lines of every request to `endpoint`."""
        lines = f"Host: {endpoint}\r\nAccept-Encoding: identity\r\nUser-Agent: holdfast\r\n"
        if self.token:
            lines += f"Authorization: Bearer {self.token}\r\n"
        return lines.encode("latin-1")


def address_of(target: Target, settings: dict[str, Any]) -> Address:
    """Reads `http://host[:port],host[:port][/prefix]`, and the options."""
    hosts, user, password, path = hosts_of(target, DEFAULT_PORTS[target.scheme])
    if user or password:
        raise ConfigError(
            f"a {target.scheme}:// URL has no user and password: a lock service takes a token; give "
            f"it to connect(token=…), or name its file in ${TOKEN_FILE}"
        )
    tls = _tls_of(target.scheme == "https", settings)
    places = {}
    for host, port in hosts:
        place = Endpoint(host, port, tls)
        places[str(place)] = place
    if len(places) < len(hosts):
        raise ConfigError(f"the {target.scheme}:// URL names the same service twice")
    prefix = "/" + path.strip("/") if path.strip("/") else ""
    if not (prefix.isascii() and prefix.isprintable()) or any(sign in prefix for sign in ' "<>\\'):
        raise ConfigError(
            f"the path in the {target.scheme}:// URL has a character that has to be written as %XX"
        )
    return Address(tuple(places), places, prefix, _token_of(settings))


def timing_of(settings: dict[str, Any]) -> dict[str, float]:
    """Returns the timing that the options ask for, where it is not to be that of the service."""
    return {name: checks.ttl(settings[name], name) for name in TIMING if settings[name] is not None}


def _tls_of(wanted: bool, settings: dict[str, Any]) -> ssl.SSLContext | None:
    given = [name for name in (*TLS_FILES, "tls_context") if settings[name]]
    if not wanted:
        if given:
            raise ConfigError(f"{min(given)} is an option of https://, which uses TLS")
        return None
    context = settings["tls_context"]
    if not context:
        return context_with(settings)
    import ssl  # slow to import, and not needed by most

    if len(given) > 1 or not isinstance(context, ssl.SSLContext):
        raise ConfigError("tls_context must be an ssl.SSLContext, and excludes tls_ca and others")
    return context


def _token_of(settings: dict[str, Any]) -> str:
    """Returns the bearer token; empty if there is none. No error shows it."""
    token, path = settings["token"], settings["token_file"]
    if token and path:
        raise ConfigError("give token or token_file, not both")
    if token:
        return _sendable(token, "token")
    option = "token_file"
    if not path:
        option, path = f"${TOKEN_FILE}", os.environ.get(TOKEN_FILE)
    if not path:
        return ""
    try:
        with open(os.fspath(path), encoding="utf-8") as file:
            text = file.read(LARGEST_TOKEN + 2)
    except (OSError, TypeError, ValueError) as error:
        let_through(error)
        # Not its path: that may be the token itself, by a mistake.
        reason = error.strerror if isinstance(error, OSError) else error
        raise ConfigError(f"the file given as {option} cannot be read: {reason}") from None
    return _sendable(text.strip(), f"the text in the file given as {option}")


def _sendable(token: object, what: str) -> str:
    if (
        not isinstance(token, str)
        or not 0 < len(token) <= LARGEST_TOKEN
        or not token.isascii()
        or not token.isprintable()
        or " " in token
    ):
        raise ConfigError(
            f"{what} is no bearer token: it has to be one line of ASCII letters, digits and signs, "
            "as `holdfast token` prints it"
        )
    return token
