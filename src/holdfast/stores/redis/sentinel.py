"""The contents of a `redis+sentinel://` URL, and the replies of sentinels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ...errors import ConfigError
from ..tls import is_wanted
from ..urls import Target
from .address import (
    TLS_OPTIONS,
    Address,
    database_of,
    hosts_of,
    sendable,
    tls_of,
    unquote,
    wants_tls,
)
from .wire.refusals import refusal

if TYPE_CHECKING:
    import ssl

DEFAULT_PORT = 26379
SENTINEL_OPTIONS: dict[str, Any] = {
    "db": 0,
    "tls": 0,
    "sentinel_user": "",
    "sentinel_password": "",
    "sentinel_tls": int,
    **{f"sentinel_{name}": value for name, value in TLS_OPTIONS.items()},
}


class SentinelAddress(NamedTuple):
    """The address of a primary that sentinels watch."""

    sentinels: tuple[Address, ...]
    service: str
    """The name by which the sentinels know the primary."""
    primary: Address
    """The credentials for the primary; its host is what the sentinels say."""


def sentinel_address_of(target: Target, settings: dict[str, Any]) -> SentinelAddress:
    """Returns the address in `redis+sentinel://[user:password@]host[:port],host[:port]…/NAME[/db]`.

    The user and the password are the primary's; those of the sentinels are options.
    """
    hosts, user, password, path = hosts_of(target, DEFAULT_PORT)
    service, _, db = path.partition("/")
    stray = "@" in service  # of a password with an unescaped slash
    service = unquote(service)
    if not service or stray:
        raise ConfigError(
            "a redis+sentinel:// URL ends in the name by which the sentinels know the primary: "
            "redis+sentinel://host1:26379,host2:26379/mymaster"
        )
    tls = tls_of(wants_tls(settings), settings)
    sentinel_tls = _tls_to_sentinels(settings, tls)
    user_there, password_there = (
        _text(name, settings[name]) for name in ("sentinel_user", "sentinel_password")
    )
    return SentinelAddress(
        tuple(
            Address(host, port, "", 0, user_there, password_there, sentinel_tls, "sentinel")
            for host, port in hosts
        ),
        service,
        Address("", 0, "", database_of(db, settings), user, password, tls, "primary"),
    )


def _text(option: str, value: object) -> str:
    """Returns the value of an option for the login, which is not shown: it may be a secret."""
    if value is None:
        return ""
    if not isinstance(value, str):
        raise ConfigError(f"{option} must be text")
    return sendable(option, value)


def _tls_to_sentinels(
    settings: dict[str, Any], to_servers: ssl.SSLContext | None
) -> ssl.SSLContext | None:
    """Returns the TLS context for the sentinels: the servers', unless an option says otherwise."""
    wanted = settings["sentinel_tls"]
    if wanted is not None:
        wanted = is_wanted(wanted, "sentinel_tls")
    own = {name: settings[f"sentinel_{name}"] for name in TLS_OPTIONS}
    given = [f"sentinel_{name}" for name, value in own.items() if value]
    if given and wanted is False:
        raise ConfigError(f"{min(given)} is given, but sentinel_tls is off")
    if not given and (wanted is None or (wanted and to_servers is not None)):
        return to_servers
    return tls_of(bool(given or wanted), own, "sentinel_")


def read_primary(replies: Sequence[Any], sentinel: Address) -> tuple[int, str, int] | None:
    """Returns configuration epoch, host and port of the primary; None if `sentinel` knows none."""
    location, state = replies
    if isinstance(location, Exception):
        raise refusal(location, sentinel)
    if location is None or isinstance(state, Exception):
        return None
    if isinstance(state, list):
        state = dict(zip(state[::2], state[1::2], strict=False))
    return int(state.get(b"config-epoch", 0)), location[0].decode(), int(location[1])
