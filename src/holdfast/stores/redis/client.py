"""The address and the credentials of a redis-py client that the user already has.

Nothing else is taken from the client. No command of ours is sent through it, because it repeats
commands by itself; and it is never closed: it stays the user's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from ...errors import ConfigError
from ...interrupts import let_through
from .address import DEFAULT_PORT, Address, database
from .login import ProviderLogin, as_text
from .sentinel import SentinelAddress

if TYPE_CHECKING:
    import ssl

_LEFT_OUT = ("ssl_validate_ocsp", "ssl_validate_ocsp_stapled")


class ClientTarget(NamedTuple):
    """The store that a client is connected to: exactly one of the three is set."""

    address: Address | None = None
    sentinel: SentinelAddress | None = None
    seeds: list[Address] | None = None


def target_of_client(client: Any, *, asynchronous: bool) -> ClientTarget:
    """Returns the store that `client` is connected to; refuses a client of the other world."""
    name = f"{type(client).__module__}.{type(client).__qualname__}"
    theirs = any(base.__module__.startswith("redis.asyncio") for base in type(client).__mro__)
    if theirs and not asynchronous:
        raise ConfigError(f"{name} is for asyncio: give it to holdfast.aio.connect(), not here")
    if asynchronous and not theirs:
        raise ConfigError(
            f"{name} is for blocking code: give it to holdfast.connect(), or give "
            "holdfast.aio.connect() a client of redis.asyncio"
        )
    manager = getattr(client, "nodes_manager", None)
    if manager is not None:
        return ClientTarget(seeds=_cluster(client, manager))
    pool = getattr(client, "connection_pool", None)
    if pool is None:
        raise ConfigError(
            f"{name} cannot be used: give a Redis or a RedisCluster client, or what master_for() of a "
            "Sentinel returns"
        )
    if hasattr(pool, "sentinel_manager"):
        return ClientTarget(sentinel=_sentinel(pool))
    return ClientTarget(
        address=_address(pool.connection_kwargs, pool.connection_class, "standalone")
    )


def _cluster(client: Any, manager: Any) -> list[Address]:
    if getattr(manager, "address_remap", None) is not None:
        raise ConfigError("a RedisCluster client with address_remap cannot be used; give a URL")
    settings = dict(getattr(client, "connection_kwargs", None) or manager.connection_kwargs)
    settings.pop("redis_connect_func", None)  # of the client itself
    kind = settings.get("connection_class")
    nodes = {**manager.startup_nodes, **manager.nodes_cache}.values()
    seeds = []
    for node in nodes:
        here = {**settings, "host": node.host, "port": node.port, "db": 0}
        seeds.append(_address(here, kind, "cluster"))
    return seeds


def _sentinel(pool: Any) -> SentinelAddress:
    if not pool.is_master:
        raise ConfigError("locks need the primary: give what master_for() returns, not slave_for()")
    sentinels = []
    for sentinel in pool.sentinel_manager.sentinels:
        its_pool = sentinel.connection_pool
        settings, kind = its_pool.connection_kwargs, its_pool.connection_class
        sentinels.append(_address(settings, kind, "sentinel"))
    primary = _address({**pool.connection_kwargs, "host": ""}, pool.connection_class, "primary")
    return SentinelAddress(tuple(sentinels), pool.service_name, primary)


def _address(settings: Mapping[str, Any], kind: Any, expects: str) -> Address:
    names = [base.__name__ for base in kind.__mro__] if kind is not None else []
    if kind is not None and not kind.__module__.startswith("redis."):
        raise ConfigError(
            f"a client with connections of another kind ({kind.__module__}.{kind.__qualname__}) cannot "
            "be used: locks are kept on a real server, over connections of our own"
        )
    if settings.get("redis_connect_func") is not None:
        raise ConfigError("a client with a redis_connect_func cannot be used; give a URL")
    provider = settings.get("credential_provider")
    secure = bool(settings.get("ssl")) or any("SSL" in name for name in names)
    return Address(
        str(settings.get("host", "localhost")),
        int(settings.get("port") or DEFAULT_PORT),
        str(settings.get("path") or ""),
        database(settings.get("db") or 0),
        as_text(settings.get("username")),
        as_text(settings.get("password")),
        _tls(settings) if secure else None,
        expects,
        None if provider is None else ProviderLogin(provider),
    )


def _tls(settings: Mapping[str, Any]) -> ssl.SSLContext:
    import ssl

    for name in _LEFT_OUT:
        if settings.get(name):
            raise ConfigError(f"a client with {name} cannot be used: holdfast would not check that")
    needed = settings.get("ssl_cert_reqs", "required")
    modes = {None: "none", "none": "none", "optional": "optional", "required": "required"}
    try:
        context = ssl.create_default_context()
        context.check_hostname = bool(settings.get("ssl_check_hostname", True))
        if isinstance(needed, ssl.VerifyMode):
            mode = needed
        else:
            mode = ssl.VerifyMode[f"CERT_{modes[needed].upper()}"]
        if mode is ssl.CERT_NONE:
            context.check_hostname = False
        context.verify_mode = mode
        for flag in settings.get("ssl_include_verify_flags") or ():
            context.verify_flags |= flag
        for flag in settings.get("ssl_exclude_verify_flags") or ():
            context.verify_flags &= ~flag
        if settings.get("ssl_certfile") or settings.get("ssl_keyfile"):
            context.load_cert_chain(
                settings["ssl_certfile"], settings.get("ssl_keyfile"), settings.get("ssl_password")
            )
        authorities = [settings.get(f"ssl_ca_{part}") for part in ("certs", "path", "data")]
        if any(authority is not None for authority in authorities):
            context.load_verify_locations(*authorities)
        if settings.get("ssl_min_version") is not None:
            context.minimum_version = settings["ssl_min_version"]
        if settings.get("ssl_ciphers"):
            context.set_ciphers(settings["ssl_ciphers"])
    except (OSError, TypeError, KeyError, ValueError) as error:
        let_through(error)
        raise ConfigError(f"the TLS settings of the client cannot be used: {error}") from None
    return context
