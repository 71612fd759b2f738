"""Five real nodes of which some are dead, hang, are slow, or have forgotten what they knew."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from _async.waiting import until_waiting
from holdfast import aio as holdfast
from holdfast.chaos.servers.proxy import Proxy
from holdfast.chaos.servers.redlock import RedlockNodes, url_of
from holdfast.stores.redis.wire.protocol import bulk
from holdfast.stores.redlock.membership import read_known, read_marker
from worlds.aio import Job, eventually
from worlds.stalls import Stalls

MAX_TTL = 2.0
MOMENT = 2.5
"""Seconds that a busy machine may add beside those for which it stands still."""
MARKER = "holdfast:redlock:marker"


@pytest.fixture(scope="module")
def servers() -> Iterator[RedlockNodes]:
    nodes = RedlockNodes(5, "--appendonly", "no")
    try:
        yield nodes
    finally:
        nodes.stop()


@pytest.fixture
def nodes(servers: RedlockNodes) -> Iterator[RedlockNodes]:
    servers.flush()
    try:
        yield servers
    finally:
        for node in servers.nodes:
            node.kill()
            (node.folder / "dump.rdb").unlink(missing_ok=True)
            node.start()


def connect(nodes: RedlockNodes, **options: Any) -> holdfast.Locks:
    return holdfast.connect(nodes.url, **{"max_ttl": MAX_TTL, "node_timeout": 1.5} | options)


async def out(locks: holdfast.Locks) -> tuple[str, ...]:
    return (await locks.inspect("x")).out


async def test_a_dead_minority_costs_nothing(nodes: RedlockNodes) -> None:
    async with connect(nodes) as locks:
        first = await locks.lock("x", ttl=MAX_TTL).acquire()
        nodes.nodes[1].kill()
        nodes.nodes[3].kill()
        assert await first.release() is True
        tokens = [first.token]
        for _ in range(20):
            async with locks.lock("x", ttl=MAX_TTL) as lease:
                tokens.append(lease.token)
        assert tokens == sorted(set(tokens))
        said = await out(locks)
        assert [str(nodes.nodes[i].port) in text for i, text in zip((1, 3), said, strict=True)]
        assert all("has been out for" in text for text in said)


async def test_without_a_majority_it_says_which_nodes_are_out(nodes: RedlockNodes) -> None:
    async with connect(nodes) as locks:
        async with locks.lock("x", ttl=MAX_TTL):
            pass
        for node in nodes.nodes[:3]:
            node.kill()
        with pytest.raises(holdfast.BackendUnavailable, match="3 are needed") as raised:
            await locks.lock("x", ttl=MAX_TTL).acquire()
        for node in nodes.nodes[:3]:
            assert f"127.0.0.1:{node.port} has been out for" in str(raised.value)


async def test_hanging_nodes_cost_their_time_out_once(nodes: RedlockNodes) -> None:
    async with connect(nodes) as locks:
        async with locks.lock("x", ttl=2.0):
            pass
        nodes.nodes[0].pause()
        nodes.nodes[4].pause()

        async def both_out() -> bool:
            async with locks.lock("x", ttl=2.0):
                pass
            return len(await out(locks)) == 2

        await eventually(both_out)
        started = time.monotonic()
        for _ in range(20):
            async with locks.lock("x", ttl=2.0):
                pass
        assert time.monotonic() - started < 10.0  # nobody waited for them, 1.5 s each time
        nodes.nodes[0].resume()
        nodes.nodes[4].resume()

        async def all_back() -> bool:
            return await out(locks) == ()

        await eventually(all_back)


@pytest.mark.parametrize("busy", [False, True])
async def test_an_attempt_gives_hanging_nodes_no_second_chance(
    nodes: RedlockNodes, busy: bool
) -> None:
    """A node that may take 5 s, and hangs, is not waited for once more to be told that we gave up."""
    async with connect(nodes, node_timeout=5.0, max_ttl=30.0) as locks:
        lease = await locks.lock("x").acquire()
        async with locks.lock("y"):
            pass
        for node in nodes.nodes:
            node.pause()
        with Stalls() as stalls:
            began = time.monotonic()
            error = await Job(locks.lock("x" if busy else "y").try_acquire, 1.0).error()
            took = time.monotonic() - began
        for node in nodes.nodes:
            node.resume()
        assert type(error) is holdfast.BackendUnavailable
        assert took < 2.0 + MOMENT + stalls.seconds
        await lease.release()


@pytest.mark.parametrize("hanging", [2, 5])
async def test_a_list_gives_hanging_nodes_five_seconds_in_all(
    nodes: RedlockNodes, hanging: int
) -> None:
    async with connect(nodes, node_timeout=5.0, max_ttl=30.0) as locks:
        lease = await locks.lock("x").acquire()
        for node in nodes.nodes[:hanging]:
            node.pause()
        with Stalls() as stalls:
            began = time.monotonic()
            listing = Job(locks.list)
            if hanging == 2:
                assert [state.name for state in await listing.result()] == ["x"]
            else:
                assert type(await listing.error()) is holdfast.BackendUnavailable
            took = time.monotonic() - began
        for node in nodes.nodes[:hanging]:
            node.resume()
        assert took < 5.0 + MOMENT + stalls.seconds
        await lease.release()


async def test_slow_and_cut_off_nodes_are_left_out(nodes: RedlockNodes) -> None:
    with ExitStack() as stack:
        proxies = [Proxy(node.port) for node in nodes.nodes]
        for proxy in proxies:
            stack.callback(proxy.close)
        url = url_of([proxy.port for proxy in proxies])
        async with holdfast.connect(url, max_ttl=MAX_TTL, node_timeout=1.5) as locks:
            async with locks.lock("x", ttl=2.0) as lease:
                first = lease.token
            proxies[0].delay = 2.0  # slow
            proxies[1].swallow = True  # requests arrive, answers do not
            tokens = [first]
            for _ in range(10):
                lease = await locks.lock("x", ttl=2.0).acquire(timeout=10.0)
                tokens.append(lease.token)
                assert await lease.release() is True
            assert tokens == sorted(set(tokens))
            proxies[0].delay = 0.0
            proxies[1].swallow = False
            proxies[1].hang_up()

            async def all_back() -> bool:
                async with locks.lock("x", ttl=2.0):
                    pass
                return await out(locks) == ()

            await eventually(all_back)


async def test_a_restarted_node_votes_only_when_all_it_forgot_is_over(nodes: RedlockNodes) -> None:
    async with connect(nodes) as locks:
        held = await locks.lock("x", ttl=MAX_TTL).acquire()
        for node in nodes.nodes[3:]:
            node.kill()
            node.start()

        async def both_out() -> bool:
            async with locks.lock("y", ttl=MAX_TTL):
                pass
            said = await out(locks)
            return [
                "it has restarted" in text and "it may vote again in" in text for text in said
            ] == [True] * 2

        await eventually(both_out)
        # Two that forgot and one that did not are three of five, and yet no majority.
        async with connect(nodes) as others:
            assert await others.lock("x", ttl=MAX_TTL).try_acquire() is None
        assert held.held

        async def all_back() -> bool:
            return await out(locks) == ()

        await eventually(all_back)
        await held.release()
        again = await locks.lock("x", ttl=MAX_TTL).acquire(timeout=5.0)
        assert again.token > held.token


async def test_tokens_rise_when_every_node_restarts_in_turn(nodes: RedlockNodes) -> None:
    """Each comes back empty, or from an old snapshot, and learns the counters from the others."""
    async with connect(nodes, max_ttl=0.3) as locks:
        tokens: list[int] = []

        async def take() -> None:
            lease = await locks.lock("x", ttl=0.3).acquire(timeout=15.0)
            tokens.append(lease.token)
            await lease.release()

        async def all_vote() -> bool:
            await take()
            return await out(locks) == ()

        await take()
        for number, node in enumerate(nodes.nodes):
            if number % 2:
                node("SAVE")
            for _ in range(3):
                await take()
            node.kill()
            if number % 2:
                node.start()
            else:
                (node.folder / "dump.rdb").unlink(missing_ok=True)
                node.start()
            await eventually(all_vote)
        assert tokens == sorted(set(tokens))


async def test_a_renewed_lease_outlives_a_minority(nodes: RedlockNodes) -> None:
    async with connect(nodes) as locks:
        renewals: list[holdfast.Event] = []
        lease = await locks.lock("x", ttl=MAX_TTL).acquire()
        nodes.nodes[0].kill()
        nodes.nodes[2].pause()
        locks.on_event(renewals.append)
        await eventually(lambda: [event.kind for event in renewals].count("renewed") >= 2)
        assert "lost" not in [event.kind for event in renewals]
        assert lease.held
        assert await lease.release() is True


async def test_a_waiter_is_woken_when_its_node_is_gone(nodes: RedlockNodes) -> None:
    async with connect(nodes, heartbeat=0.3) as locks:
        lease = await locks.lock("x", ttl=MAX_TTL).acquire()
        # All of them, or some may give it to the waiter first, and without one more it is not sure.
        await eventually(lambda: all(node("EXISTS", "holdfast:{x}") for node in nodes.nodes))
        waiter = Job(locks.lock("x", ttl=MAX_TTL).acquire)

        await until_waiting(locks)
        nodes.nodes[0].kill()
        await until_waiting(locks)  # on another node by now
        await lease.release()
        granted = await waiter.result()
        assert granted.token > lease.token
        await granted.release()


async def test_flushed_nodes_that_were_never_used_start_at_once(nodes: RedlockNodes) -> None:
    started = time.monotonic()
    async with connect(nodes, max_ttl=30.0) as locks:
        async with locks.lock("x", ttl=MAX_TTL) as lease:
            assert abs(lease.token / 1e6 - time.time()) < 60.0
        assert await out(locks) == ()
    assert time.monotonic() - started < 10.0


async def test_fresh_nodes_may_be_told_to_wait(nodes: RedlockNodes) -> None:
    started = time.monotonic()
    async with connect(nodes, max_ttl=1.6, fresh="wait") as locks, locks.lock("x", ttl=1.6):
        assert time.monotonic() - started > 1.6


async def test_nodes_that_are_named_otherwise_are_refused(nodes: RedlockNodes) -> None:
    async with connect(nodes) as locks, locks.lock("x", ttl=MAX_TTL):
        pass
    ports = [node.port for node in nodes.nodes]
    with pytest.raises(holdfast.ConfigError, match="name the same nodes"):
        async with holdfast.connect(url_of(ports[:3]), max_ttl=MAX_TTL) as locks:
            await locks.lock("x", ttl=MAX_TTL).acquire()
    with pytest.raises(holdfast.ConfigError, match="max_ttl"):
        async with connect(nodes, max_ttl=7.0) as locks:
            await locks.lock("x", ttl=MAX_TTL).acquire()
    async with holdfast.connect(url_of(ports[::-1]), max_ttl=MAX_TTL) as locks:
        await locks.lock("x", ttl=MAX_TTL).acquire()


async def test_a_ttl_above_the_longest_is_refused(nodes: RedlockNodes) -> None:
    async with connect(nodes) as locks:
        with pytest.raises(holdfast.ConfigError, match="max_ttl"):
            await locks.lock("x", ttl=MAX_TTL + 1).acquire()
        lease = await locks.lock("x", ttl=MAX_TTL).acquire()
        with pytest.raises(holdfast.ConfigError, match="max_ttl"):
            await lease.renew(MAX_TTL + 1)
        assert lease.held


async def test_a_period_above_the_longest_says_what_to_do() -> None:
    locks = holdfast.connect("redlock://a:1,b:1,c:1")
    with pytest.raises(
        holdfast.GuaranteeError, match="give all clients of the store max_ttl=86400 "
    ):
        await locks.once("x", 86400.0)
    with pytest.raises(holdfast.ConfigError):
        await locks.once("x", 10**10)
    await locks.close()


def test_bad_urls_are_refused() -> None:
    for url, words in (
        ("redlock://a:1,b:1", "odd number"),
        ("redlock://a:1,b:1,c:1,d:1", "odd number"),
        ("redlock://a:1,b:1,a:1", "each node once"),
        ("redlock://u:secret@a:1,b:x,c:1", "port"),
    ):
        with pytest.raises(holdfast.ConfigError, match=words) as raised:
            holdfast.connect(url)
        assert "secret" not in str(raised.value)
    with pytest.raises(holdfast.ConfigError, match="fresh"):
        holdfast.connect("redlock://a:1,b:1,c:1", fresh="now")  # type: ignore[arg-type]
    with pytest.raises(holdfast.GuaranteeError):
        holdfast.connect("redlock://a:1,b:1,c:1").lock("x", fair=True)


async def test_who_comes_back_knows_the_lives_of_those_it_read(nodes: RedlockNodes) -> None:
    """Otherwise, of two that come back at the same time, old votes of one count beside the other."""
    node = nodes.nodes[0]
    async with connect(nodes) as locks:
        async with locks.lock("x", ttl=MAX_TTL):
            pass
        node.kill()
        node.start()

        async def back() -> bool:
            async with locks.lock("x", ttl=MAX_TTL):
                pass
            return node("GET", MARKER) is not None

        await eventually(back)
    known = read_known(read_marker(node("GET", MARKER)).known)
    assert len(known) >= 3
    assert f"127.0.0.1:{node.port}" not in known
    assert set(known.values()) == {1}


async def test_phase_2_is_for_the_incarnation_that_answered_phase_1(nodes: RedlockNodes) -> None:
    """One that has come back since may have an old hold of ours again, from a snapshot."""
    async with connect(nodes) as locks:
        async with locks.lock("x", ttl=MAX_TTL):
            pass
        (counter,) = nodes.nodes[0]("LRANGE", "holdfast:redlock:counters", 0, -1)
        value = nodes.nodes[0]("GET", counter)
        for number, node in enumerate(nodes.nodes):  # whichever are counted, they are not in step
            node("SET", counter, int(value) + 1000 * number)
        backend: Any = (await locks._session()).backend
        ask = backend._rounds._raise
        stood: list[bool] = []

        async def late(ballot: Any, below: Any, *rest: Any) -> None:
            if not stood:
                for index in below:
                    text = nodes.nodes[index]("GET", MARKER)
                    was = read_marker(text).incarnation
                    now = was[:-1] + b"z"
                    nodes.nodes[index]("SET", MARKER, text.replace(was, now, 1))
                    backend._table.nodes[index].incarnation = bulk(now)
                    backend._table.refresh()
            await ask(ballot, below, *rest)
            stood.append(ballot.stands())

        backend._rounds._raise = late
        await locks.lock("x", ttl=MAX_TTL).try_acquire(1.0)
        assert stood[0] is False


async def test_a_release_leaves_no_tombstone_behind(nodes: RedlockNodes) -> None:
    """Though an acquisition returns before the last nodes have answered it."""
    async with connect(nodes, node_timeout=5.0, max_ttl=30.0) as locks:

        async def all_hold() -> bool:
            return all(node("EXISTS", "holdfast:{x}") for node in nodes.nodes)

        for _ in range(10):
            lease = await locks.lock("x", ttl=MAX_TTL).acquire()
            await eventually(all_hold)  # and so they have answered
            assert await lease.release() is True
    assert [node("KEYS", "holdfast:{x}:x:*") for node in nodes.nodes] == [[]] * 5
