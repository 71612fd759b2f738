"""Scenes that several tests of etcd begin with, and blows to its cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from holdfast import aio as holdfast
from holdfast.chaos.servers.etcd import EtcdCluster
from holdfast.chaos.servers.proxy import Proxy


@asynccontextmanager
async def through(proxy: Proxy) -> AsyncIterator[holdfast.Locks]:
    """Yields a manager behind the proxy, with its connection and its lease made."""
    async with holdfast.connect(f"etcd://127.0.0.1:{proxy.port}") as locks:
        await (await locks.lock("warm").acquire()).release()
        yield locks


def watched(backend: Any, attempt: Any) -> bool:
    """Returns True if the watches of a waiter are confirmed, as far as it needs any."""
    waiter_watch = backend._attempts.waiter_watch
    blocker = waiter_watch._blockers.get(attempt)
    return (
        blocker is not None
        and blocker.blocks(attempt)
        and waiter_watch._wakeup is not None
        and waiter_watch._wakeup.confirmed
    )


async def backend_of(locks: holdfast.Locks) -> Any:
    return (await locks._session()).backend


def soon(backend: Any) -> float:
    deadline: float = backend.clock.now() + 10.0
    return deadline


def revoke(cluster: EtcdCluster, state: str) -> None:
    """Takes away the lease of the entry that is in this state."""
    answer = cluster.ctl("get", "--prefix", "/holdfast/holdfast/lock/x/", "-w", "fields")
    entries = answer.split('"Key" : ')[1:]
    (entry,) = [entry for entry in entries if f'"Value" : "{state}' in entry]
    lease = int(entry.split('"Lease" : ')[1].split()[0])
    cluster.ctl("lease", "revoke", f"{lease:x}")
