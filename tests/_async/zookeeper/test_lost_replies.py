"""Replies that are lost, connections that are reset or go silent: by a proxy before the ensemble."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterable
from typing import Any

import pytest

from _async.waiting import until_waiting
from holdfast import aio as holdfast
from holdfast._async import session
from holdfast.chaos.servers.proxy import Proxy
from holdfast.chaos.servers.zookeeper import TICK, raw_client
from holdfast.clock import system_clock
from holdfast.stores._async.contract import Terms, Ticket
from holdfast.stores.zookeeper import attempts, client, connection, reply_timer
from holdfast.stores.zookeeper.session import ClientSession
from stores import zookeeper_ensemble
from worlds.aio import Job, eventually, pause


async def test_a_creation_whose_reply_was_lost_is_found_again(
    url: str, through: str, proxy: Proxy
) -> None:
    async with holdfast.connect(url) as others, holdfast.connect(through) as locks:
        await (await locks.lock("x").acquire()).release()
        for _ in range(5):
            proxy.reset_once = True
            lease = await locks.lock("x").acquire()
            state = await others.inspect("x")
            assert [(one.owner, one.token) for one in state.holders] == [(lease.owner, lease.token)]
            assert state.waiters == ()
            assert await lease.release() is True
        assert await others.list() == []


async def test_a_creation_that_never_arrived_is_not_mistaken_for_a_dying_one_of_ours(
    url: str, through: str, proxy: Proxy
) -> None:
    ensemble = zookeeper_ensemble()
    async with holdfast.connect(through) as locks:
        await (await locks.lock("x").acquire()).release()
        lock = f"/{url.rpartition('/')[2]}/holdfast/locks/x"
        with raw_client(ensemble.hosts) as raw:
            # As an earlier session of ours would have left it: our owner id, and first in the queue.
            entry = f"{lock}/mine,lock,1,1,30000,"
            stale = raw.create(entry, ephemeral=True, sequence=True, makepath=True)
            proxy.keep_once = True
            lease = await locks.lock("x").acquire(owner="mine", timeout=10.0)
            assert not raw.exists(stale)
            (child,) = raw.get_children(lock)
            assert raw.exists(f"{lock}/{child}").czxid == lease.token
            # The kept request arrives after all, on a connection that the session has left.
            proxy.let_go(answered=False)
            assert raw.get_children(lock) == [child]


async def test_a_grant_whose_reply_was_lost_is_found_again(
    url: str, through: str, proxy: Proxy
) -> None:
    async with holdfast.connect(url) as others, holdfast.connect(through) as locks:
        first = await others.lock("x").acquire()
        waiter = Job(locks.lock("x").acquire)

        await until_waiting(others)
        proxy.reset_once = True  # the next request is a renewal, or the write that takes the lock
        await first.release()
        second = await waiter.result()
        assert second.token > first.token

        async def shown() -> bool:
            # Its znode says so a moment after the waiter was told.
            (holder,) = (await others.inspect("x")).holders
            return (holder.owner, holder.token) == (second.owner, second.token)

        await eventually(shown)


async def test_a_release_whose_reply_was_lost_frees_our_own_lease_only(
    url: str, through: str, proxy: Proxy
) -> None:
    async with holdfast.connect(url) as others, holdfast.connect(through) as locks:
        lease = await locks.lock("x").acquire()
        rival = Job(others.lock("x").acquire)

        await until_waiting(others)
        proxy.reset_once = True
        assert await lease.release() is True
        assert (await rival.result()).held
        assert await lease.release() is False
        assert len((await others.inspect("x")).holders) == 1


async def test_an_attempt_that_was_given_up_leaves_no_ghost(
    url: str, through: str, proxy: Proxy
) -> None:
    async with holdfast.connect(url) as others, holdfast.connect(through) as locks:
        await (await locks.lock("x").acquire()).release()
        (await locks._session()).patience = 0.3
        proxy.swallow = True  # the znode is created, and we do not hear of it
        with pytest.raises(holdfast.BackendUnavailable, match="in time"):
            await locks.lock("x").acquire()

        async def created() -> bool:
            return (await others.inspect("x")).held

        await eventually(created)
        proxy.swallow = False
        proxy.hang_up()

        async def free() -> bool:
            return not (await others.inspect("x")).held

        await eventually(free)
        assert (await others.lock("x").acquire(timeout=5.0)).held


async def test_a_release_that_could_not_be_sent_is_sent_later(
    url: str, through: str, proxy: Proxy
) -> None:
    async with holdfast.connect(url) as others, holdfast.connect(through) as locks:
        lease = await locks.lock("x").acquire()
        (await locks._session()).patience = 0.3
        proxy.stalled = True
        with pytest.raises(holdfast.BackendUnavailable, match="in time"):
            await lease.release()
        (await locks._session()).patience = session.IO_LIMIT
        proxy.stalled = False
        proxy.hang_up()
        assert (await others.lock("x").acquire(timeout=15.0)).token > lease.token
        assert await lease.release() is True  # gone, by that first call, inside our time


async def test_without_a_connection_leases_are_uncertain_at_once_and_then_held_again(
    url: str, through: str, proxy: Proxy
) -> None:
    events: list[holdfast.Event] = []
    async with holdfast.connect(through, on_event=events.append) as locks:
        # Its next renewal is further off than anything here waits.
        lease = await locks.lock("x", ttl=3600.0).acquire()
        waiter = Job(locks.lock("x").acquire)
        token = lease.token
        proxy.stalled = True
        proxy.hang_up()
        await eventually(lambda: lease.state == "uncertain")
        assert lease.held
        proxy.stalled = False
        proxy.hang_up()
        await eventually(lambda: lease.state == "held")
        assert lease.token == token
        assert [event.kind for event in events if event.kind in ("uncertain", "lost")] == [
            "uncertain"
        ]
        await lease.release()
        assert (await waiter.result()).token > token


async def test_a_session_counts_from_its_greeting_and_then_from_the_first_of_three_writes(
    through: str, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[float] = []
    set_up = ClientSession._set_up

    def hear(session: ClientSession) -> None:
        heard.append(system_clock().now())
        set_up(session)

    monkeypatch.setattr(ClientSession, "_set_up", hear)
    monkeypatch.setattr(attempts, "DEFAULT_CLASS", 1.0)  # which has a quick pulse
    proxy.delay = 0.3
    async with holdfast.connect(through, tick=TICK) as locks:
        live: Any = await locks._session()
        mutex = live.backend._attempts.mutex
        (client_session,) = live.backend._attempts._sessions.values()
        pulse, greeted_at = client_session.pulse, client_session.client.greeted_at
        assert heard[-1] - greeted_at >= proxy.delay  # from when the greeting was sent
        proxy.delay = 0.0
        counted = False
        while not counted:
            with mutex:
                base, sent = pulse.base, list(pulse._answered)
            counted = base > greeted_at
            if counted:
                assert len(sent) == 2
                assert base < sent[0] < sent[1]
            await pause(0.01)


async def test_an_acquire_that_another_call_gives_up_returns_at_once(
    through: str, proxy: Proxy
) -> None:
    async with holdfast.connect(through, tick=TICK) as locks:
        await (await locks.lock("x").acquire()).release()
        live: Any = await locks._session()
        backend, deadline = live.backend, live.clock.now() + 60.0
        proxy.stalled = True
        acquire = Job(backend.acquire, Ticket(Terms("x", 30.0, live.label), "me"), deadline)
        await eventually(lambda: "me" in backend._attempts._attempts)
        release = Job(backend.release, "x", "me", deadline)
        error = await acquire.error()
        assert isinstance(error, holdfast.BackendUnavailable)
        assert "given up" in str(error)
        proxy.hang_up()  # still stalled: what was on its way never arrives
        proxy.stalled = False
        proxy.hang_up()  # the connection that was made meanwhile, and that nobody answered
        assert await release.result() is False
        assert not (await locks.inspect("x")).held


async def test_a_single_lost_reply_is_noticed(url: str, through: str, proxy: Proxy) -> None:
    async with (
        holdfast.connect(url, tick=TICK) as others,
        holdfast.connect(through, tick=TICK) as locks,
    ):
        first = await locks.lock("warm").acquire()
        for _ in range(3):
            proxy.lose_once = True
            lease = await locks.lock("x").acquire(timeout=15.0)
            await eventually(lambda: not proxy.lose_once)
            state = await others.inspect("x")
            assert [holder.owner for holder in state.holders] == [lease.owner]
            assert state.waiters == ()
            assert await lease.release() is True
            assert not (await others.inspect("x")).held
        await first.renew()
        assert await first.release() is True


def numbers(requests: Iterable[bytes]) -> list[int]:
    """Returns the numbers of the requests; greetings and pings have none."""
    found = []
    for data in requests:
        at = 0
        while at < len(data):
            size, number = struct.unpack_from(">ii", data, at)
            at += 4 + size
            if number > 0:
                found.append(number)
    return found


async def test_no_request_number_is_used_twice(through: str, proxy: Proxy) -> None:
    async with holdfast.connect(through, tick=TICK) as locks:
        lease = await locks.lock("x").acquire()
        for _ in range(3):
            sent = len(numbers(proxy.seen))
            proxy.hang_up()
            await locks.inspect("x")  # on the next connection
            assert len(numbers(proxy.seen)) > sent
        assert await lease.release() is True
        seen = numbers(proxy.seen)
        assert len(set(seen)) == len(seen)


async def test_nothing_ends_the_thread_of_a_connection(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with holdfast.connect(url, tick=TICK) as locks:
        lease = await locks.lock("x").acquire()
        failures: list[object] = []

        def fail(self: object, *args: object) -> object:
            failures.append(self)
            raise ValueError("something that nobody has thought of")

        with monkeypatch.context() as patch:
            patch.setattr(connection.Connection, "_read_socket", fail)
            await eventually(lambda: failures)
        assert await lease.release() is True  # on the next connection


async def test_a_server_that_greets_us_and_answers_nothing_more_is_left(
    through: str, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stands for a server that has a request stuck in it (ZOOKEEPER-4537)."""
    monkeypatch.setattr(reply_timer, "PATIENCE", 0.5)
    proxy.about, proxy.mute_once = b"/holdfast", True
    async with holdfast.connect(through) as locks:
        assert not proxy.mute_once
        proxy.about, proxy.mute_once = b"/locks/x", True
        lease = await locks.lock("x").acquire()  # the pulse notices it before any call gives up
        assert not proxy.mute_once
        assert await lease.release() is True


async def test_a_client_that_is_not_greeted_gives_up_in_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client, "GREETING", 60.0)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        locks = holdfast.connect(f"zookeeper://127.0.0.1:{silent.getsockname()[1]}")
        began = time.monotonic()
        with pytest.raises(holdfast.BackendUnavailable, match="did not answer in time"):
            await locks.lock("x").acquire(timeout=0.5)
        assert time.monotonic() - began < 15.0
        await locks.close()


async def test_a_client_that_is_cut_off_is_told_before_its_rival_is_granted(url: str) -> None:
    crowd = 10
    ensemble = zookeeper_ensemble()
    proxies = [Proxy(ensemble.nodes[number % 3].port) for number in range(crowd)]
    managers: list[holdfast.Locks] = []
    leases: dict[str, holdfast.Lease] = {}
    lost: set[str] = set()
    granted: dict[str, bool] = {}
    """By lock: whether its holder still held it when the rival was granted it."""
    chroot = url.rpartition("/")[2]
    async with holdfast.connect(url, tick=TICK) as others:

        async def rival(name: str) -> None:
            await others.lock(name).acquire()
            granted[name] = leases[name].held

        try:
            for number, proxy in enumerate(proxies):
                address = f"zookeeper://127.0.0.1:{proxy.port}/{chroot}"
                locks = holdfast.connect(address, tick=TICK)
                managers.append(locks)
                lease = await locks.lock(f"x{number}", ttl=5.0).acquire()
                assert lease.ttl == 5.0
                lease.on_lost(lambda lease: lost.add(lease.name))
                leases[lease.name] = lease
            rivals = [Job(rival, f"x{number}") for number in range(crowd)]
            await eventually(lambda: not lost)
            for proxy in proxies:
                proxy.stalled = True
            for job in rivals:
                await job.result()
            await eventually(lambda: len(lost) == crowd)
        finally:
            for proxy in proxies:
                proxy.close()
            for locks in managers:
                await locks.close()
        assert granted == dict.fromkeys(leases, False)
