"""`doctor()`: is a store configured so that its guarantees hold?"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Unpack, cast

from .. import checks
from .._runtime.aio import Worker
from ..findings import Finding
from ..stores.options import RedisClient, SqlAlchemyEngine, SqlAlchemyUrl, StoreOptions
from .connect import named_store

PATIENCE = 10.0
"""Seconds that the servers of a store have together, unless something else is said."""


async def doctor(
    url: str | RedisClient | SqlAlchemyEngine | SqlAlchemyUrl | None = None,
    *,
    namespace: str = "holdfast",
    timeout: float = PATIENCE,
    **options: Unpack[StoreOptions],
) -> Sequence[Finding]:
    """Returns what stands well and what does not with the store that `url`, or `$HOLDFAST_URL`, names.

    It looks at what the guarantees rest on: settings, servers, clocks, permissions. Nothing of yours is
    changed; on some stores a lock of its own is tried out and removed. Parameters as for `connect`.
    Raises `BackendUnavailable` if the store cannot be asked within `timeout` seconds.
    """
    checks.namespace(namespace)
    seconds = checks.ttl(timeout, "timeout")
    place, _ = named_store(url)
    return await examine_beside(place, namespace, cast(dict[str, Any], options), seconds)


async def examine_beside(
    url: Any, namespace: str, options: dict[str, Any], seconds: float
) -> Sequence[Finding]:
    """Returns the findings about a store. The doctors block, so asyncio has them on a thread."""
    from ..stores.examination import examine  # slow to import, and seldom needed

    asynchronous = __name__.split(".")[-2] == "_async"
    worker = Worker("holdfast-doctor")
    try:
        return await worker.call(
            partial(examine, url, namespace, options, seconds, asynchronous=asynchronous)
        )
    finally:
        worker.close()
