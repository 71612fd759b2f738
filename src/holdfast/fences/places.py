"""The fence that is kept in the store which a URL names.

Each kind of store has the fence that fits it, opened by the driver that the store's extra brings. The
error of a driver comes out as `BackendUnavailable`, without credentials.
"""

from __future__ import annotations

import os
import socket
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from typing import Any

from ..clock import system_clock
from ..errors import BackendUnavailable, ConfigError
from ..interrupts import real_path
from ..refusals import lacks
from ..stores import urls
from ..stores.urls import Target
from .redis import RedisFence
from .rules import Token
from .sql import SqlFence

PATIENCE = 5.0
"""Seconds that a server has for each step."""


class NoFence(Exception):
    """Raised when there is no fence for that kind of store."""


def guard(url: str, resource: str, token: Token) -> None:
    """Shows the token to the fence in that store; raises `StaleToken` if it is refused."""
    target = target_of(url)
    _GUARDS[target.scheme](target, resource, token)


def target_of(url: str) -> Target:
    """Returns the store that the URL names; raises `NoFence` if no fence is kept in its kind."""
    target = urls.parse(url)
    if target.scheme not in _GUARDS:
        raise NoFence(
            f"there is no fence that could be kept in {target.scheme}://; name one of "
            f"{', '.join(f'{scheme}://' for scheme in _GUARDS)} by --url, whatever store has the lock"
        )
    return target


def _guard_sql(connection: Any, resource: str, token: Token) -> None:
    fence = SqlFence(connection)
    fence.guard(connection, resource, token)
    connection.commit()


def _sqlite(target: Target, resource: str, token: Token) -> None:
    from ..stores.sqlite import location
    from ..stores.sqlite.file import refuse_others

    path = location.path_of_url(f"sqlite://{target.rest}")
    location.refuse_unsuitable(path)
    refuse_others(real_path(path))  # before anything is made beside it
    # In a file of its own beside the store's, whose every write goes through a gate.
    path = location.prepare(path) + "-fences"
    try:
        with closing(sqlite3.connect(path, PATIENCE)) as connection:
            _guard_sql(connection, resource, token)
    except sqlite3.Error as error:
        raise _unavailable(target, error) from error


def _postgres(target: Target, resource: str, token: Token) -> None:
    psycopg = _driver("psycopg", target)
    from ..stores.postgres.address import Address, split_query

    address = Address(target.rest, split_query(target)[1])
    clock = system_clock()
    reason: Exception = OSError("its host has no address")
    try:
        for conninfo in address.attempts(clock.now() + PATIENCE, clock.now):
            try:
                connection = psycopg.connect(conninfo.decode(), connect_timeout=round(PATIENCE))
            except psycopg.OperationalError as error:
                reason = error
                continue
            with closing(connection), _shut_after(PATIENCE, connection.fileno()):
                connection.execute(f"SET statement_timeout = {round(PATIENCE * 1000)}")
                connection.commit()
                _guard_sql(connection, resource, token)
            return
        raise reason
    except (OSError, psycopg.Error) as error:
        state = getattr(error, "sqlstate", None) or ""
        if state == "42501" or state.startswith("28") or "authentication failed" in str(error):
            raise _denied(target, error) from error
        raise _unavailable(target, error) from error


@contextmanager
def _shut_after(seconds: float, descriptor: int) -> Iterator[None]:
    """Shuts the socket once the body has taken so long: libpq waits for ever for a silent server."""
    with socket.socket(fileno=os.dup(descriptor)) as sock:

        def shut() -> None:
            with suppress(OSError):  # the other side has done so
                sock.shutdown(socket.SHUT_RDWR)

        timer = threading.Timer(seconds, shut)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            timer.join()  # it does not shut a socket that is another's by then


def _mysql(target: Target, resource: str, token: Token) -> None:
    pymysql = _driver("pymysql", target)
    from ..stores.mysql.address import Address, split_query
    from ..stores.mysql.failures import CREDENTIALS, DENIED

    address = Address(target, split_query(target)[1])
    settings = dict(address.settings)
    if address.tls != "preferred":
        settings["ssl"] = address.tls_context() if address.tls == "required" else None
        settings["ssl_disabled"] = address.tls == "disabled"
    try:
        with closing(
            pymysql.connect(
                host=address.host,
                port=address.port,
                unix_socket=address.unix_socket or None,
                charset="utf8mb4",
                connect_timeout=round(PATIENCE),
                read_timeout=round(PATIENCE),
                write_timeout=round(PATIENCE),
                **settings,
            )
        ) as connection:
            _guard_sql(connection, resource, token)
    except (OSError, pymysql.err.MySQLError) as error:
        if error.args and error.args[0] in CREDENTIALS | DENIED:
            raise _denied(target, error) from error
        raise _unavailable(target, error) from error


def _redis(target: Target, resource: str, token: Token) -> None:
    redis = _driver("redis", target)
    try:
        with closing(_redis_client(redis, target)) as client:
            RedisFence(client).guard(resource, token)
    except (OSError, redis.RedisError) as error:
        from ..stores.redis.wire.refusals import DENIED, code_of

        denied = isinstance(error, redis.AuthenticationError | redis.exceptions.NoPermissionError)
        if denied or code_of(Exception(f"ERR {error}")) in DENIED:
            raise _denied(target, error) from error
        raise _unavailable(target, error) from error


def _redis_client(redis: Any, target: Target) -> Any:
    """Returns a client of `redis`, the package, for one of our URLs."""
    from ..stores.redis._sync.backend import COMMON_OPTIONS
    from ..stores.redis.address import address_of
    from ..stores.redis.cluster import CLUSTER_OPTIONS, seeds_of
    from ..stores.redis.sentinel import SENTINEL_OPTIONS, sentinel_address_of

    def common(settings: dict[str, Any], place: Any, prefix: str = "") -> dict[str, Any]:
        found: dict[str, Any] = {"username": place.user or None, "password": place.password or None}
        found |= {"socket_timeout": PATIENCE, "socket_connect_timeout": PATIENCE}
        if place.tls is not None:
            files = ("tls_ca", "tls_cert", "tls_key")
            ca, cert, key = (
                settings.get(prefix + name) or settings[name] or None for name in files
            )
            found |= {"ssl": True, "ssl_ca_certs": ca, "ssl_certfile": cert}
            found |= {"ssl_keyfile": key or cert, "ssl_check_hostname": True}
        return found

    once = redis.retry.Retry(redis.backoff.NoBackoff(), 1)
    if target.scheme == "redis+sentinel":
        settings = urls.merge_options(target, {}, {**COMMON_OPTIONS, **SENTINEL_OPTIONS})
        where = sentinel_address_of(target, settings)
        sentinel = redis.sentinel.Sentinel(
            [(one.host, one.port) for one in where.sentinels],
            sentinel_kwargs=common(settings, where.sentinels[0], "sentinel_"),
        )
        return sentinel.master_for(
            where.service, db=where.primary.db, retry=once, **common(settings, where.primary)
        )
    if target.scheme == "redis+cluster":
        settings = urls.merge_options(target, {}, {**COMMON_OPTIONS, **CLUSTER_OPTIONS})
        seeds = seeds_of(target, settings)
        return redis.RedisCluster(
            startup_nodes=[redis.cluster.ClusterNode(one.host, one.port) for one in seeds],
            **common(settings, seeds[0]),
        )
    settings = urls.merge_options(target, {}, {**COMMON_OPTIONS, "db": 0})
    place = address_of(target, settings)
    if place.path:
        return redis.Redis(
            unix_socket_path=place.path, db=place.db, retry=once, **common(settings, place)
        )
    return redis.Redis(place.host, place.port, place.db, retry=once, **common(settings, place))


def _lock_service(target: Target, resource: str, token: Token) -> None:
    from . import lock_service

    lock_service.guard(target, resource, token, PATIENCE)


def _driver(name: str, target: Target) -> Any:
    from importlib import import_module

    try:
        return import_module(name)
    except ImportError as error:
        extra = urls.SCHEMES[target.scheme].extra
        assert extra is not None, name
        what = f"a fence in {target.scheme}://"
        raise ConfigError(lacks(what, f"the package {name}", extra)) from error


def _denied(target: Target, error: Exception) -> ConfigError:
    """Returns the refusal of a user who may not do what the fence needs, as a store tells it."""
    said = " ".join(str(error).split()).partition(" script: ")[0]  # Redis adds its number
    return ConfigError(
        f"the fence at {target} does not let us in: {said}; check the user, the password and the "
        "user's permissions"
    )


def _unavailable(target: Target, error: Exception) -> BackendUnavailable:
    said = " ".join(str(error).split()) or type(error).__name__
    return BackendUnavailable(f"the fence at {target} cannot be asked: {said}")


_GUARDS: dict[str, Callable[[Target, str, Token], None]] = {
    "sqlite": _sqlite,
    "postgresql": _postgres,
    "postgres": _postgres,
    "mysql": _mysql,
    "mariadb": _mysql,
    "redis": _redis,
    "rediss": _redis,
    "redis+unix": _redis,
    "redis+sentinel": _redis,
    "redis+cluster": _redis,
    "http": _lock_service,
    "https": _lock_service,
}
"""By scheme, how a token is shown to the fence there."""
