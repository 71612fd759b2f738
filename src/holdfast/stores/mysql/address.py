"""Addresses of MySQL and MariaDB databases: a URL, with options as PyMySQL names them."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from os.path import expanduser
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from ...errors import ConfigError
from ...interrupts import let_through
from ..resolving import Place, resolve
from ..urls import Target

if TYPE_CHECKING:
    from ssl import SSLContext

PORT = 3306
FILES = ("ssl_ca", "ssl_cert", "ssl_key")
SWITCHES = ("ssl_disabled", "ssl_verify_cert", "ssl_verify_identity")
THEIRS = frozenset(
    {
        *FILES,
        *SWITCHES,
        "ssl_key_password",
        "unix_socket",
        "read_default_file",
        "read_default_group",
    }
)
"""Options that PyMySQL has, too, and that may stand in the URL."""
REFUSED = frozenset(
    {"autocommit", "charset", "collation", "connect_timeout", "init_command", "read_timeout"}
    | {"sql_mode", "use_unicode", "write_timeout"}
)
"""The settings of PyMySQL that holdfast chooses itself."""
CHOSEN = {
    "charset": ("utf8", "utf8mb4"),
    "use_unicode": ("1", "true"),
    "binary_prefix": ("1", "true"),
}
"""Settings that engines of SQLAlchemy have in their URLs, with the values that are ours as well."""


def split_query(target: Target) -> tuple[Target, dict[str, str]]:
    """Returns the target with our own options alone, and those of PyMySQL."""
    query = {
        name: value
        for name, value in target.query.items()
        if value.lower() not in CHOSEN.get(name, ())
    }
    target = target._replace(query=query)
    for name in sorted(REFUSED & set(target.query)):
        raise ConfigError(f"option {name!r} cannot be given: holdfast chooses it itself")
    ours = {name: value for name, value in target.query.items() if name not in THEIRS}
    theirs = {name: value for name, value in target.query.items() if name in THEIRS}
    return target._replace(query=ours), theirs


class Address:
    """The address of one database, and how we are let in. Its text has no credentials in it."""

    def __init__(self, target: Target, query: dict[str, str]) -> None:
        """Takes the URL, and its options that are PyMySQL's."""
        authority, _, path = target.rest.partition("/")
        credentials, _, place = authority.rpartition("@")
        user, _, password = credentials.partition(":")
        self.unix_socket = query.get("unix_socket", "")
        self.host, self.port = _host_and_port(place, target.scheme)
        if not path or "/" in path or "@" in path:  # the / was in a password
            raise ConfigError(
                f"this {target.scheme}:// URL names no database; write "
                f"{target.scheme}://USER:PASSWORD@HOST:PORT/DATABASE, with / : @ ? # and % in a "
                "password as %2F %3A %40 %3F %23 and %25"
            )
        self.settings: dict[str, Any] = {"database": unquote(path)}
        """The settings for PyMySQL, beside host and port."""
        if user:
            self.settings["user"] = unquote(user)
        if password:
            # PyMySQL would write it as Latin-1, which has not every character.
            self.settings["password"] = unquote(password).encode()
        for name in ("read_default_file", "read_default_group"):
            if name in query:
                self.settings[name] = query[name]
        self._text = f"{target.scheme}://{place or self.unix_socket}/{path}"
        given = {name: query[name] for name in (*FILES, "ssl_key_password") if name in query}
        self._ssl = {**_files_of_option_file(self.settings), **given}
        self._switches = {name: _switch(name, query[name]) for name in SWITCHES if name in query}
        if self._ssl or len(self._switches) > ("ssl_disabled" in self._switches):
            self.tls_context()  # to refuse files that cannot be used

    def __str__(self) -> str:
        return self._text

    @property
    def tls(self) -> str:
        """`disabled`, `required`, or `preferred`: if the server and PyMySQL can."""
        if self._switches.get("ssl_disabled"):
            return "disabled"
        others = {**self._ssl, **self._switches}
        others.pop("ssl_disabled", None)
        return "required" if others else "preferred"

    def tls_context(self) -> SSLContext:
        """Returns a context that checks as much of the server as was asked for, as in PyMySQL."""
        import ssl  # slow to import, and not needed by most

        from .sockets import TimedContext

        files = self._ssl
        try:
            context = TimedContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname = self._switches.get("ssl_verify_identity", False)
            checked = context.check_hostname or self._switches.get(
                "ssl_verify_cert", "ssl_ca" in files
            )
            context.verify_mode = ssl.CERT_REQUIRED if checked else ssl.CERT_NONE
            if "ssl_ca" in files:
                context.load_verify_locations(files["ssl_ca"])
            elif checked:
                context.load_default_certs()
            if "ssl_cert" in files:
                context.load_cert_chain(
                    files["ssl_cert"], files.get("ssl_key"), files.get("ssl_key_password")
                )
        except (OSError, ValueError) as error:
            let_through(error)
            raise ConfigError(f"the TLS files given cannot be used: {error}") from None
        return context

    def places(self, deadline: float, now: Callable[[], float]) -> list[Place]:
        """Returns where to connect to, one after the other; raises `OSError` by the deadline."""
        if self.unix_socket:
            return [Place(int(socket.AF_UNIX), self.unix_socket)]
        return resolve(self.host, self.port, deadline, now)


def _files_of_option_file(settings: Mapping[str, Any]) -> dict[str, str]:
    """Returns the TLS options that a file like `~/.my.cnf` has, under their names in a URL."""
    group, file = settings.get("read_default_group"), settings.get("read_default_file")
    if not group and not file:
        return {}
    from pymysql.optionfile import Parser

    parser = Parser()
    parser.read(expanduser(file or "/etc/my.cnf"))
    found = {name: name.replace("_", "-") for name in FILES} | {"ssl_key_password": "ssl-password"}
    return {
        name: parser.get(group or "client", key)
        for name, key in found.items()
        if parser.has_option(group or "client", key)
    }


def _host_and_port(place: str, scheme: str) -> tuple[str, int]:
    host, colon, port = place.rpartition(":")
    if not colon or port.endswith("]"):
        host, port = place, ""
    if port and not (port.isascii() and port.isdecimal() and 0 < int(port) < 65536):
        # Only a number is shown: the part with the host may be missing, and this be the password.
        shown = f"not {port:.40}" if port.isdecimal() else "and this is none"
        raise ConfigError(f"the port must be a number from 1 to 65535, {shown}")
    if "," in host:
        raise ConfigError(f"a {scheme}:// URL names one server, the primary, or a proxy before it")
    return unquote(host).strip("[]") or "localhost", int(port or PORT)


def _switch(name: str, value: str) -> bool:
    words = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}
    if value.lower() not in words:
        raise ConfigError(f"option {name!r} must be 1 or 0, not {value!r:.40}")
    return words[value.lower()]
