"""What holders and waiters hear of their keys, and of bells."""

from __future__ import annotations

# unasync: aio-only
import asyncio

# unasync: end
import gc
import os
from typing import Any

import pytest

from _async.etcd.scenes import revoke, through, waits
from holdfast import aio as holdfast
from holdfast.stores.etcd.wire.messages import Event, KeyValue
from servers.etcd import EtcdCluster
from servers.proxy import Proxy
from worlds.aio import Job, eventually, pause

REFUSED = b"\x10" + b"\xff" * 9 + b"\x01\x18\x01\x20\x01"
"""The watch -1: created, and cancelled."""


async def test_a_waiter_hears_again_after_its_watch_was_lost_and_compacted(
    cluster: EtcdCluster, proxy: Proxy
) -> None:
    async with holdfast.connect(cluster.url) as others, through(proxy) as locks:
        lease = await others.lock("x").acquire()
        waiter = Job(locks.lock("x").acquire)
        await waits(others)
        backend: Any = (await locks._session()).backend
        await eventually(lambda: any(map(backend._roll.watched, backend._roll._attempts.values())))
        proxy.refuse = True
        proxy.hang_up()
        for number in range(3):
            cluster.ctl("put", "unrelated", str(number))
        revision = int(
            cluster.ctl("get", "unrelated", "-w", "fields").split('"Revision" : ')[1].split()[0]
        )
        cluster.ctl("compact", str(revision))
        proxy.refuse = False
        await eventually(lambda: any(map(backend._roll.watched, backend._roll._attempts.values())))
        await eventually(lambda: backend._roll._bell.next > revision)  # from what is there still
        assert not waiter.done()
        await lease.release()
        assert (await waiter.result()).token > lease.token


async def test_who_has_waited_leaves_no_connection_open(cluster: EtcdCluster) -> None:
    async def waited() -> None:
        async with holdfast.connect(cluster.url) as locks:
            lease = await locks.lock("x").acquire()
            waiter = Job(locks.lock("x").acquire)
            await waits(locks)
            backend: Any = (await locks._session()).backend
            await eventually(lambda: backend._roll._bell.standing)
            await lease.release()
            await (await waiter.result()).release()

    await waited()
    files = len(os.listdir("/proc/self/fd"))

    async def as_before() -> bool:
        gc.collect()
        await waited()  # gRPC closes what it has when it next does something
        return len(os.listdir("/proc/self/fd")) <= files + 1

    for _ in range(5):
        await waited()
    await eventually(as_before)


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
        await waits(others)
        await lease.release()
        heir = await waiter.result()
        assert await others.force_release("x") is True
        assert await heir.wait_lost(timeout=10.0) is True


async def test_who_was_in_line_before_the_bell_was_listened_to_asks(cluster: EtcdCluster) -> None:
    async with holdfast.connect(cluster.url) as others, holdfast.connect(cluster.url) as locks:
        lease = await others.lock("x").acquire()
        waiter = Job(locks.lock("x").acquire)
        await waits(others)
        backend: Any = (await locks._session()).backend
        (attempt,) = backend._roll._attempts.values()
        await eventually(lambda: attempt.created > 0)
        asked: list[Any] = []
        backend._roll.hint = asked.append
        backend._roll._listening(attempt.created - 1)
        assert asked == []
        backend._roll._listening(attempt.created)
        assert asked == [attempt]
        await lease.release()
        assert (await waiter.result()).token > lease.token


async def test_an_old_bell_grants_nothing(cluster: EtcdCluster) -> None:
    """It rang for an entry of the same attempt that has ended since. (Found by the simulator.)"""
    async with holdfast.connect(cluster.url) as others, holdfast.connect(cluster.url) as locks:
        lease = await others.lock("x").acquire()
        waiter = Job(locks.lock("x").acquire)
        await waits(others)
        backend: Any = (await locks._session()).backend
        roll = backend._roll
        (attempt,) = roll._attempts.values()
        await eventually(lambda: attempt.created > 0)

        def rings(revision: int) -> None:
            value = attempt.owner.encode() + b"\t" + attempt.key
            roll._rung([Event(False, KeyValue(b"bell", value, revision, revision, 0))])

        rings(attempt.created - 1)
        assert not attempt.token
        # The same while it is not known yet what came of the request.
        created, attempt.created = attempt.created, 0
        rings(created - 1)
        assert not attempt.token
        attempt.created = created
        roll.answer_bell(attempt)
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
        await waits(others)
        session: Any = await locks._session()
        roll = session.backend._roll
        for _ in range(3):
            await eventually(lambda: roll._bell is not None and roll._bell.standing)
            proxy.hang_up()
            await eventually(lambda: not roll._bell.standing)
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
        await waits(others)
        bells: Any = (await locks._session()).backend._bells  # type: ignore[attr-defined]
        await eventually(lambda: bells._stream is not None)
        stream = bells._stream
        bells._heard(REFUSED)
        await eventually(lambda: bells._stream not in (None, stream))
        await lease.release()
        assert (await waiter.result()).token > lease.token
