"""Holders and waiters hear of changes to their keys, and of wake-ups."""

from __future__ import annotations

# unasync: aio-only
import asyncio
import gc

# unasync: end
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from _async.etcd.scenes import revoke, through, watched
from _async.waiting import until_waiting
from holdfast import aio as holdfast
from holdfast.chaos.servers.etcd import EtcdCluster
from holdfast.chaos.servers.proxy import Proxy
from holdfast.stores.etcd.wire.messages import Event, KeyValue
from worlds.aio import Job, eventually, pause

REFUSED = b"\x10" + b"\xff" * 9 + b"\x01\x18\x01\x20\x01"
"""The watch -1: created, and cancelled."""


async def test_a_waiter_hears_again_after_its_watch_was_lost_and_compacted(
    cluster: EtcdCluster, proxy: Proxy
) -> None:
    async with holdfast.connect(cluster.url) as others, through(proxy) as locks:
        lease = await others.lock("x").acquire()
        waiter = Job(locks.lock("x").acquire)
        await until_waiting(others)
        backend: Any = (await locks._session()).backend
        await eventually(
            lambda: any(watched(backend, one) for one in backend._attempts._attempts.values())
        )
        proxy.refuse = True
        proxy.hang_up()
        for number in range(3):
            cluster.ctl("put", "unrelated", str(number))
        revision = int(
            cluster.ctl("get", "unrelated", "-w", "fields").split('"Revision" : ')[1].split()[0]
        )
        cluster.ctl("compact", str(revision))
        proxy.refuse = False
        await eventually(
            lambda: any(watched(backend, one) for one in backend._attempts._attempts.values())
        )
        await eventually(
            lambda: backend._attempts.waiter_watch._wakeup.next > revision
        )  # from what is there still
        assert not waiter.done()
        await lease.release()
        assert (await waiter.result()).token > lease.token


def connections_to(port: int) -> int:
    """Returns the number of this process's connections to a port of this machine."""
    ours = set()
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # closed meanwhile
            ours.add(os.readlink(f"/proc/self/fd/{name}"))
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(row[2].endswith(f":{port:04X}") and f"socket:[{row[9]}]" in ours for row in rows)


async def test_who_has_waited_leaves_no_connection_open(cluster: EtcdCluster) -> None:
    async def waited() -> None:
        async with holdfast.connect(cluster.url) as locks:
            lease = await locks.lock("x").acquire()
            waiter = Job(locks.lock("x").acquire)
            await until_waiting(locks)
            backend: Any = (await locks._session()).backend
            await eventually(lambda: backend._attempts.waiter_watch._wakeup.confirmed)
            await lease.release()
            await (await waiter.result()).release()

    port = cluster.members[0].port
    before = connections_to(port)
    for _ in range(5):
        await waited()
    await eventually(lambda: connections_to(port) <= before)


@pytest.mark.parametrize("renewed", [False, True])
async def test_a_holder_hears_at_once_that_its_lease_was_revoked(
    cluster: EtcdCluster, renewed: bool
) -> None:
    async with holdfast.connect(cluster.url) as locks:
        lease = await locks.lock("x", ttl=60.0).acquire()
        if renewed:
            await lease.renew()
        revoke(cluster, "granted")
        assert await lease.wait_lost(timeout=5.0) is True
        assert lease.state == "lost"
        assert not lease.held
        # And the next one is not put on the dead lease.
        assert (await locks.lock("x", ttl=60.0).acquire(timeout=5.0)).token > lease.token


async def test_a_holder_to_whom_it_was_handed_hears_at_once_of_a_forced_release(
    cluster: EtcdCluster,
) -> None:
    async with holdfast.connect(cluster.url) as others, holdfast.connect(cluster.url) as locks:
        lease = await others.lock("x", ttl=60.0).acquire()
        waiter = Job(locks.lock("x", ttl=60.0).acquire)
        await until_waiting(others)
        await lease.release()
        heir = await waiter.result()
        assert await others.force_release("x") is True
        assert await heir.wait_lost(timeout=10.0) is True


async def test_who_was_in_the_queue_before_wake_ups_were_heard_asks(cluster: EtcdCluster) -> None:
    async with holdfast.connect(cluster.url) as others, holdfast.connect(cluster.url) as locks:
        lease = await others.lock("x").acquire()
        waiter = Job(locks.lock("x").acquire)
        await until_waiting(others)
        backend: Any = (await locks._session()).backend
        (attempt,) = backend._attempts._attempts.values()
        await eventually(lambda: attempt.created > 0)
        asked: list[Any] = []
        backend._attempts.waiter_watch.hint = asked.append
        backend._attempts._wakeups_started(attempt.created - 1)
        assert asked == []
        backend._attempts._wakeups_started(attempt.created)
        assert asked == [attempt]
        await lease.release()
        assert (await waiter.result()).token > lease.token


async def test_an_old_wake_up_grants_nothing(cluster: EtcdCluster) -> None:
    """An entry of the same attempt was woken, and has ended since. (Found by the simulator.)"""
    async with holdfast.connect(cluster.url) as others, holdfast.connect(cluster.url) as locks:
        lease = await others.lock("x").acquire()
        waiter = Job(locks.lock("x").acquire)
        await until_waiting(others)
        backend: Any = (await locks._session()).backend
        attempts = backend._attempts
        (attempt,) = attempts._attempts.values()
        await eventually(lambda: attempt.created > 0)

        def wakes(revision: int) -> None:
            value = attempt.owner.encode() + b"\t" + attempt.key
            attempts.waiter_watch._heard(
                [Event(False, KeyValue(b"bell", value, revision, revision, 0))]
            )

        wakes(attempt.created - 1)
        assert not attempt.token
        # Nor while it is not known yet what came of the request.
        created, attempt.created = attempt.created, 0
        wakes(created - 1)
        assert not attempt.token
        attempt.created = 0
        attempts.enqueued(attempt, created)
        assert not attempt.token
        assert not waiter.done()
        await lease.release()
        assert (await waiter.result()).token > lease.token


# unasync: aio-only
async def test_watches_that_broke_leave_no_task_behind(cluster: EtcdCluster, proxy: Proxy) -> None:
    complaints: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, what: complaints.append(what))
    async with holdfast.connect(cluster.url) as others, through(proxy) as locks:
        lease = await others.lock("x").acquire()
        waiter = Job(locks.lock("x").acquire)
        await until_waiting(others)
        session: Any = await locks._session()
        attempts = session.backend._attempts
        for _ in range(3):
            await eventually(
                lambda: (
                    attempts.waiter_watch._wakeup is not None
                    and attempts.waiter_watch._wakeup.confirmed
                )
            )
            proxy.hang_up()
            await eventually(lambda: not attempts.waiter_watch._wakeup.confirmed)
        await lease.release()
        await (await waiter.result()).release()
    gc.collect()
    await pause(0)
    assert complaints == []


# unasync: end


async def test_watches_that_were_refused_are_asked_for_again(cluster: EtcdCluster) -> None:
    """Newer etcds do not say which of them they refuse."""
    async with holdfast.connect(cluster.url) as others, holdfast.connect(cluster.url) as locks:
        lease = await others.lock("x").acquire()
        waiter = Job(locks.lock("x").acquire)
        await until_waiting(others)
        wakeups: Any = (await locks._session()).backend._wakeups  # type: ignore[attr-defined]
        await eventually(lambda: wakeups._stream is not None)
        stream = wakeups._stream
        wakeups._heard(REFUSED)
        await eventually(lambda: wakeups._stream not in (None, stream))
        await lease.release()
        assert (await waiter.result()).token > lease.token
