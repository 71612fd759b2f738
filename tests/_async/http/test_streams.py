"""The stream of wake-ups: opened when it is needed, again when it breaks, and never needed."""

from __future__ import annotations

from typing import Any

import pytest

from _async.http.scenes import is_free, through
from _async.waiting import until_waiting
from holdfast import aio as holdfast
from holdfast.chaos.servers.proxy import Proxy
from holdfast.chaos.servers.service import ServiceServer
from worlds.aio import Job, eventually


async def wakeups_of(locks: holdfast.Locks) -> Any:
    backend: Any = (await locks._session()).backend
    return backend._wakeups


async def test_who_is_done_at_once_opens_no_stream(service: ServiceServer, proxy: Proxy) -> None:
    async with holdfast.connect(through(proxy)) as locks, locks.lock("x"):
        pass
    assert not any(b"/v1/wakeups" in request for request in proxy.seen)


async def test_a_stream_that_breaks_is_opened_again(service: ServiceServer, proxy: Proxy) -> None:
    async with (
        holdfast.connect(service.url) as others,
        holdfast.connect(through(proxy), heartbeat=12.0) as locks,
    ):
        lease = await others.lock("x", ttl=30.0).acquire()
        waiter = Job(locks.lock("x", ttl=30.0).acquire)
        await until_waiting(others)
        wakeups = await wakeups_of(locks)
        await eventually(lambda: wakeups.is_open)
        proxy.hang_up()
        await eventually(lambda: not wakeups.is_open)
        await eventually(lambda: wakeups.is_open)
        await lease.release()
        assert (await waiter.result()).token > lease.token


async def test_without_a_stream_heartbeats_find_the_grant(
    service: ServiceServer, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        holdfast.connect(service.url) as others,
        holdfast.connect(through(proxy)) as locks,
    ):
        wakeups = await wakeups_of(locks)
        monkeypatch.setattr(wakeups, "_query", "?namespace=there-is-none")  # the service refuses it
        lease = await others.lock("x", ttl=30.0).acquire()
        waiter = Job(locks.lock("x", ttl=30.0).acquire)
        await until_waiting(others)
        await lease.release()
        assert (await waiter.result()).token > lease.token
        assert wakeups.is_open is False


async def test_a_forced_release_is_told_at_once(service: ServiceServer) -> None:
    async with (
        holdfast.connect(service.url) as locks,
        holdfast.connect(service.url) as others,
    ):
        lease = await locks.lock("x", ttl=300.0).acquire()
        wakeups = await wakeups_of(locks)
        await eventually(lambda: wakeups.is_open)
        assert await others.force_release("x") is True
        assert await lease.wait_lost(timeout=20.0) is True


async def test_close_ends_waits_and_streams(service: ServiceServer, proxy: Proxy) -> None:
    async with holdfast.connect(service.url) as others:
        lease = await others.lock("x", ttl=30.0).acquire()
        locks = holdfast.connect(through(proxy))
        waiter = Job(locks.lock("x", ttl=30.0).acquire)
        await until_waiting(others)
        await locks.close()
        assert isinstance(await waiter.error(), holdfast.LockError)
        await lease.release()
    assert await is_free(service.url)


async def test_close_does_not_wait_for_a_service_that_stands_still(
    service: ServiceServer, proxy: Proxy
) -> None:
    locks = holdfast.connect(through(proxy))
    lease = await locks.lock("x", ttl=3.0).acquire()
    waiter = Job(locks.lock("x", ttl=3.0).acquire)
    await until_waiting(locks)
    proxy.stalled = True
    await locks.close()
    assert not lease.held
    assert isinstance(await waiter.error(), holdfast.LockError)
    proxy.stalled = False
    await eventually(lambda: is_free(service.url))


async def test_after_close_every_verb_is_refused(service: ServiceServer) -> None:
    async with holdfast.connect(service.url) as locks:
        backend = (await locks._session()).backend
        await backend.close()
        deadline = backend.clock.now() + 5.0
        with pytest.raises(holdfast.BackendUnavailable, match="closed"):
            await backend.inspect("x", deadline)
        with pytest.raises(holdfast.BackendUnavailable, match="closed"):
            await backend.release("x", "owner", deadline)
        await backend.close()
