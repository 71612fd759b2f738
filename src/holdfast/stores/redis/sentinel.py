"""What a `redis+sentinel://` URL says, and what a sentinel answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ...errors import ConfigError
from ..urls import Target
from .address import TLS_OPTIONS, Address, database_of, hosts_of, tls_of, unquote
from .wire.protocol import refusal

if TYPE_CHECKING:
    import ssl

DEFAULT_PORT = 26379
SENTINEL_OPTIONS: dict[str, Any] = {
    "db": 0,
    "tls": 0,
    "sentinel_user": None,
    "sentinel_password": None,
    "sentinel_tls": None,
    **{f"sentinel_{name}": value for name, value in TLS_OPTIONS.items()},
}


class Watched(NamedTuple):
    """A primary that sentinels watch."""

    sentinels: tuple[Address, ...]
    service: str
    """The name by which they know it."""
    primary: Address
    """How to be let in there. Where it is, they say."""


def watched_of(target: Target, settings: dict[str, Any]) -> Watched:
    """`redis+sentinel://[user:password@]host[:port],host[:port]…/NAME[/db]`; the user and password
    are the primary's, those of the sentinels are options."""
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
    to_them = _tls_to_sentinels(settings, tls)
    name, word = settings["sentinel_user"] or "", settings["sentinel_password"] or ""
    if not isinstance(name, str) or not isinstance(word, str):
        raise ConfigError("sentinel_user and sentinel_password must be text")
    return Watched(
        tuple(Address(host, port, "", 0, name, word, to_them, "sentinel") for host, port in hosts),
        service,
        Address("", 0, "", database_of(db, settings), user, password, tls, "primary"),
    )


def _tls_to_sentinels(
    settings: dict[str, Any], to_servers: ssl.SSLContext | None
) -> ssl.SSLContext | None:
    """As to the servers, unless something else is said of the sentinels; then that alone counts."""
    said = settings["sentinel_tls"]
    if said not in (None, 0, 1):
        raise ConfigError("sentinel_tls must be True or False")
    own = {name: settings[f"sentinel_{name}"] for name in TLS_OPTIONS}
    given = [f"sentinel_{name}" for name, value in own.items() if value is not None]
    if given and said is not None and not said:
        raise ConfigError(f"{min(given)} is given, but sentinel_tls is off")
    if not given and (said is None or (said and to_servers is not None)):
        return to_servers
    return tls_of(bool(given or said), own)


def wants_tls(settings: dict[str, Any]) -> bool:
    """For schemes without a twin for TLS: `tls=True`, or any of the files for it."""
    if settings["tls"] not in (0, 1):
        raise ConfigError("tls must be True or False")
    return bool(settings["tls"]) or any(settings[name] is not None for name in TLS_OPTIONS)


def read_place(answers: Sequence[Any], sentinel: Address) -> tuple[int, str, int] | None:
    """Configuration epoch, host and port of the primary; None if this sentinel does not know it."""
    place, state = answers
    if isinstance(place, Exception):
        raise refusal(place, sentinel)
    if place is None or isinstance(state, Exception):
        return None
    if isinstance(state, list):
        state = dict(zip(state[::2], state[1::2], strict=False))
    return int(state.get(b"config-epoch", 0)), place[0].decode(), int(place[1])
