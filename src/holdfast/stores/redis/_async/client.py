"""A redis-py client in place of a URL: the store is the one that the client is connected to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....errors import ConfigError
from ....guarantees import Guarantees
from ..._async.contract import Backend
from ...urls import Target, merge_options
from ..client import target_of_client
from ..wire.aio import ASYNCHRONOUS
from ..wire.protocol import require_hiredis
from .backend import COMMON_OPTIONS, prepare_server
from .cluster import prepare_cluster
from .sentinel import prepare_sentinel


def prepare(
    client: Any, namespace: str, options: dict[str, Any]
) -> tuple[str, Guarantees, Callable[[], Backend]]:
    """Returns the store's URL, its guarantees and a function to open it. The client is left alone."""
    target = target_of_client(client, asynchronous=ASYNCHRONOUS)
    for name in ("tls_ca", "tls_cert", "tls_key", "tls_context"):
        if name in options:
            raise ConfigError(f"{name} cannot be given with a client, whose own TLS is used")
    settings = merge_options(Target("redis", "", {}), options, COMMON_OPTIONS)
    require_hiredis()
    if target.address is not None:
        scheme = "rediss" if target.address.tls is not None else "redis"
        url = f"{scheme}://{target.address}/{target.address.db}"
        if target.address.path:
            url = f"redis+unix://{target.address.path}"
        return (url, *prepare_server(target.address, namespace, settings))
    if target.sentinel is not None:
        hosts = ",".join(map(str, target.sentinel.sentinels))
        url = f"redis+sentinel://{hosts}/{target.sentinel.service}"
        return (url, *prepare_sentinel(target.sentinel, namespace, settings))
    seeds = target.seeds or []
    url = "redis+cluster://" + ",".join(map(str, seeds))
    return (url, *prepare_cluster(seeds, namespace, settings))
