"""Watches that etcd ends, in whichever way, are asked for again; and whoever watches looks anew."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from _async.etcd.scenes import watched
from _async.waiting import until_waiting
from holdfast import aio as holdfast
from holdfast.chaos.servers.etcd import EtcdCluster
from holdfast.stores.etcd.wire.codec import number
from worlds.aio import Job, eventually

CREATED, CANCELLED, COMPACTED = number(3, 1), number(4, 1), number(5, 99)


@asynccontextmanager
async def waiting(cluster: EtcdCluster) -> AsyncIterator[Any]:
    """The backend of a manager with a waiter whose watches stand."""
    async with holdfast.connect(cluster.url) as others, holdfast.connect(cluster.url) as locks:
        lease = await others.lock("x").acquire()
        waiter = Job(locks.lock("x").acquire)
        await until_waiting(others)
        backend: Any = (await locks._session()).backend
        (attempt,) = backend._attempts._attempts.values()
        await eventually(lambda: watched(backend, attempt))
        yield backend
        await lease.release()
        assert (await waiter.result()).token > lease.token


def blocker_of(backend: Any) -> Any:
    (blocker,) = backend._attempts.waiter_watch._blockers.values()
    return blocker.watch


async def test_one_that_was_cancelled_does_not_stand(cluster: EtcdCluster) -> None:
    async with waiting(cluster) as backend:
        watches, watch = backend._watches, blocker_of(backend)
        begin_anew = watches._begin_anew
        anew: list[bool] = []
        watches._begin_anew = lambda: anew.append(watch.confirmed)
        watches._heard(number(2, watch.id) + CANCELLED)
        watches._heard(number(2, watch.id) + CREATED + CANCELLED)
        assert anew == [False, False]
        assert not watch.confirmed
        watches._begin_anew = begin_anew
        stream = watches._stream
        watches._heard(number(2, watch.id) + CANCELLED)
        await eventually(lambda: watch.confirmed and watches._stream is not stream)


async def test_one_that_was_compacted_starts_from_what_is_now(cluster: EtcdCluster) -> None:
    async with waiting(cluster) as backend:
        watches, watch = backend._watches, blocker_of(backend)
        started = watch.started
        told: list[int] = []

        def noted(revision: int) -> None:
            told.append(revision)
            started(revision)

        watch.started = noted
        old, stream = watch.id, watches._stream
        watch.began = 0
        watches._heard(number(2, old) + CANCELLED + COMPACTED)
        await eventually(lambda: told)
        assert watch.confirmed
        assert watch.id != old
        assert old not in watches._watches  # what is still heard of it is not about this one
        assert told == [watch.began]
        assert watch.next > watch.began > 0
        assert watches._stream is stream  # the others on it are not disturbed


async def test_none_is_added_when_all_is_closed(cluster: EtcdCluster) -> None:
    locks = holdfast.connect(cluster.url)
    await (await locks.lock("x").acquire()).release()
    watches: Any = (await locks._session()).backend._watches  # type: ignore[attr-defined]
    await locks.close()
    watches.add(b"x", b"", 0, print, print)
    assert watches._watches == {}
    assert watches._stream is watches._mending is None
