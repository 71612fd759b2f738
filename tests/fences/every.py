"""Every fence that there is, each with the site that it is tested on."""

from __future__ import annotations

from collections.abc import Callable

from fences.http_sites import AsgiSite, WorkerSite, WsgiSite
from fences.object_sites import AsyncObjectSite, AzureSite, GcsSite, ObjectSite, StampedSite
from fences.redis_sites import AsyncRedisSite, ClusterSite, RedisSite
from fences.sites import FileSite, MemorySite, Site
from fences.sql_sites import SQL_SITES

SITES: dict[str, Callable[..., Site]] = {
    "asgi": AsgiSite,
    "azure": AzureSite,
    "file": FileSite,
    "gcs": GcsSite,
    "memory": MemorySite,
    "s3": ObjectSite,
    "s3-async": AsyncObjectSite,
    "s3-stamped": StampedSite,
    "redis": RedisSite,
    "redis-async": AsyncRedisSite,
    "redis-cluster": ClusterSite,
    "wsgi": WsgiSite,
    **SQL_SITES,
}
RANDOM_SITES: dict[str, Callable[..., Site]] = {**SITES, "workers": WorkerSite}
"""Those, and one that is of interest only where several processes have it."""
