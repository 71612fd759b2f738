"""A redis-py client in place of a URL: the store is what the client is connected to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....errors import ConfigError
from ....guarantees import Guarantees
from ..._async.contract import Backend
from ...urls import Target, merge_options
from ..client import found_in
from ..wire.aio import ASYNCHRONOUS
from ..wire.protocol import require_hiredis
from . import backend as redis
from . import cluster as redis_cluster
from . import sentinel as redis_sentinel


def prepare(
    client: Any, namespace: str, options: dict[str, Any]
) -> tuple[str, Guarantees, Callable[[], Backend]]:
    """How the store is called, what it promises, and how to open it. The client is left alone."""
    found = found_in(client, asynchronous=ASYNCHRONOUS)
    for name in ("tls_ca", "tls_cert", "tls_key", "tls_context"):
        if name in options:
            raise ConfigError(f"{name} is no option where a client is given: its own TLS is used")
    settings = merge_options(Target("redis", "", {}), options, redis.COMMON_OPTIONS)
    require_hiredis()
    if found.address is not None:
        scheme = "rediss" if found.address.tls is not None else "redis"
        shown = f"{scheme}://{found.address}/{found.address.db}"
        if found.address.path:
            shown = f"redis+unix://{found.address.path}"
        return (shown, *redis.made(found.address, namespace, settings))
    if found.watched is not None:
        hosts = ",".join(map(str, found.watched.sentinels))
        shown = f"redis+sentinel://{hosts}/{found.watched.service}"
        return (shown, *redis_sentinel.made(found.watched, namespace, settings))
    seeds = found.seeds or []
    shown = "redis+cluster://" + ",".join(map(str, seeds))
    return (shown, *redis_cluster.made(seeds, namespace, settings))
