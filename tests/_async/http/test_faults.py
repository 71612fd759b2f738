"""Services that are killed, restarted and slow; answers that are lost; requests that come late."""

from __future__ import annotations

import time

import pytest

from _async.http.scenes import both, first_endpoint, is_free, through
from _async.waiting import until_waiting
from holdfast import aio as holdfast
from holdfast.chaos.servers.proxy import Proxy
from holdfast.chaos.servers.service import ServiceServer
from worlds.aio import Job, eventually

Pair = tuple[ServiceServer, ServiceServer]

SLACK = 10.0
"""Seconds that a busy machine is given, where without the rule it would be for ever."""


async def test_a_lease_outlives_its_service(service: ServiceServer) -> None:
    async with holdfast.connect(service.url) as locks:
        lease = await locks.lock("x", ttl=20.0).acquire()
        service.kill()
        service.start()
        await lease.renew()
        assert lease.held
        assert await lease.release() is True
    assert await is_free(service.url)


async def test_a_waiter_outlives_its_service(services: Pair) -> None:
    service, other = services
    async with holdfast.connect(service.url) as locks, holdfast.connect(other.url) as others:
        lease = await others.lock("x", ttl=20.0).acquire()
        waiter = Job(locks.lock("x", ttl=20.0).acquire)
        await until_waiting(others)
        service.kill()
        service.start()
        assert await lease.release() is True
        second = await waiter.result()
        assert second.token > lease.token


async def test_of_two_services_either_may_be_killed(services: Pair) -> None:
    async with holdfast.connect(both(services)) as locks:
        lease = await locks.lock("x", ttl=30.0).acquire()
        waiter = Job(locks.lock("x", ttl=30.0).acquire)
        await until_waiting(locks)
        for one in services:
            one.kill()
            await lease.renew()
            async with locks.lock("y"):
                assert (await locks.inspect("y")).held
            one.start()
        assert lease.held
        await lease.release()
        assert (await waiter.result()).token > lease.token


async def test_a_waiter_is_woken_by_the_other_service(services: Pair) -> None:
    """Its service is gone, and wake-ups are hints; so its heartbeats find the grant elsewhere."""
    async with holdfast.connect(both(services)) as locks:
        lease = await locks.lock("x", ttl=30.0).acquire()
        waiter = Job(locks.lock("x", ttl=30.0).acquire)
        await until_waiting(locks)
        wire = (await locks._session()).backend._wire  # type: ignore[attr-defined]
        ours = services[0] if wire.endpoint.endswith(f":{services[0].port}") else services[1]
        ours.kill()
        await lease.release()
        assert (await waiter.result()).token > lease.token


async def test_an_answer_that_is_lost_is_asked_for_again(
    service: ServiceServer, proxy: Proxy
) -> None:
    async with holdfast.connect(through(proxy)) as locks:
        for verb in (b"/acquire", b"/renew", b"/release"):
            proxy.about = verb
            proxy.reset_once = verb == b"/acquire"
            lease = await locks.lock("x", ttl=30.0).acquire()
            proxy.reset_once = verb == b"/renew"
            await lease.renew()
            proxy.reset_once = verb == b"/release"
            assert await lease.release() is True
            assert proxy.reset_once is False
            assert await is_free(service.url)


async def test_an_acquire_that_comes_after_its_release_is_refused(
    service: ServiceServer, proxy: Proxy
) -> None:
    async with holdfast.connect(through(proxy)) as locks:
        proxy.about = b"/acquire"
        proxy.keep_once = True
        lease = await locks.lock("x", ttl=30.0).acquire()  # by the second try
        assert await lease.release() is True
        proxy.let_go()
        assert await is_free(service.url)


async def test_an_acquire_that_comes_late_to_the_other_service_is_refused(
    services: Pair, proxy: Proxy
) -> None:
    """The store itself refuses it: the two services know nothing of each other."""
    url = f"{through(proxy)},127.0.0.1:{services[1].port}"
    async with holdfast.connect(url) as locks:
        await first_endpoint(locks, proxy.port)
        proxy.about = b"/acquire"
        proxy.keep_once = True
        lease = await locks.lock("x", ttl=30.0).acquire()
        await first_endpoint(locks, services[1].port)
        assert await lease.release() is True
        proxy.let_go()
        assert await is_free(services[0].url)


async def test_an_attempt_without_an_answer_leaves_nothing(
    service: ServiceServer, proxy: Proxy
) -> None:
    async with holdfast.connect(through(proxy)) as locks:
        proxy.swallow = True
        began = time.monotonic()
        with pytest.raises(holdfast.BackendUnavailable):
            await locks.lock("x", ttl=60.0).acquire(timeout=0.5)
        assert time.monotonic() - began < SLACK
        proxy.swallow = False
        await eventually(lambda: is_free(service.url))


async def test_a_service_that_stands_still_is_not_waited_for(
    service: ServiceServer, proxy: Proxy
) -> None:
    async with holdfast.connect(through(proxy)) as locks:
        lease = await locks.lock("x", ttl=1.5).acquire()
        proxy.stalled = True
        began = time.monotonic()
        with pytest.raises(holdfast.BackendUnavailable):
            await locks.lock("y").acquire(timeout=1.0)
        assert await lease.wait_lost(timeout=SLACK) is True
        assert time.monotonic() - began < SLACK
        proxy.stalled = False


async def test_the_other_service_answers_for_one_that_stands_still(services: Pair) -> None:
    async with holdfast.connect(both(services)) as locks:
        await first_endpoint(locks, services[0].port)
        async with locks.lock("warm"):
            pass
        services[0].pause()
        try:
            began = time.monotonic()
            lease = await locks.lock("x", ttl=30.0).acquire(timeout=20.0)
            assert time.monotonic() - began < SLACK
            await lease.release()
        finally:
            services[0].resume()
    await eventually(lambda: is_free(services[0].url))
