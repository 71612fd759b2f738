"""Several locks in one step: all of them or none, whatever is lost, late or in the way."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence

import pytest

from _async.conformance.test_contract import LABEL, Bench, bench
from holdfast import aio as holdfast
from holdfast.chaos.servers.proxy import Proxy
from holdfast.chaos.servers.redis import RedisServer
from holdfast.model import Busy, Granted, Queued, Renewed, new_owner
from holdfast.stores._async.contract import Terms, Ticket
from holdfast.stores.redis._async.several import OneServerBackend
from holdfast.stores.redis.keys import Naming
from stores import redis_nodes, redis_watch
from worlds.aio import Job

NAMES = ["a", "b", "c", *(f"n{number}" for number in range(2000))]
KINDS = {"lock": 1, "semaphore": 3, "rwlock": 2**31 - 1, "election": 1}


@pytest.fixture
def proxy(server: RedisServer) -> Iterator[Proxy]:
    made = Proxy(server.port)
    made.about = b"EVALSHA"
    yield made
    made.close()


def ticket(name: str, kind: str = "lock", ttl: float = 30.0, queue: bool = False) -> Ticket:
    return Ticket(Terms(name, ttl, LABEL, capacity=KINDS[kind], kind=kind), new_owner(), queue)


def plain(*names: str) -> list[Ticket]:
    return [ticket(name) for name in names]


async def take(store: Bench, tickets: Sequence[Ticket]) -> Sequence[Granted] | Busy:
    assert isinstance(store.backend, OneServerBackend)
    return await store.backend.acquire_all(tickets, store.deadline())


async def free(store: Bench, tickets: Sequence[Ticket]) -> list[bool]:
    assert isinstance(store.backend, OneServerBackend)
    pairs = [(one.name, one.owner) for one in tickets]
    return await store.backend.release_all(pairs, store.deadline())


async def held(store: Bench) -> dict[str, tuple[str, int]]:
    states = await store.backend.list("", store.deadline())
    return {s.name: (s.holders[0].owner, s.holders[0].token) for s in states if s.holders}


async def test_all_are_granted_in_their_order(server: RedisServer) -> None:
    async with bench(server.url) as store:
        before: dict[str, int] = {}
        for _ in range(20):
            tickets = plain("c", "a", "b", "d")
            grants = await take(store, tickets)
            assert isinstance(grants, list)
            tokens = {one.name: grant.token for one, grant in zip(tickets, grants, strict=True)}
            assert await held(store) == {one.name: (one.owner, tokens[one.name]) for one in tickets}
            assert all(tokens[name] > before.get(name, 0) for name in tokens)
            before = tokens
            for one in tickets:
                assert isinstance(await store.renew(one), Renewed)
            assert await free(store, tickets) == [True] * 4
            assert await free(store, tickets) == [False] * 4
        assert await held(store) == {}


async def test_tokens_rise_where_counters_are_ahead_of_the_clock(server: RedisServer) -> None:
    async with bench(server.url) as store:
        counters = {name: Naming("holdfast", None).of(name).counter.decode() for name in NAMES}
        twins = [name for name in NAMES if counters[name] == counters["a"]]
        assert len(twins) > 1, "two of these have one counter"
        ahead = 5 * 10**15
        server("SET", counters["a"], str(ahead))
        server("SET", counters["b"], "no number")
        names = [*twins[:2], "b", "c"]
        before = dict.fromkeys(names, 0)
        for turn in range(1, 4):
            tickets = plain(*names)
            grants = await take(store, tickets)
            assert isinstance(grants, list)
            tokens = {one.name: grant.token for one, grant in zip(tickets, grants, strict=True)}
            assert all(tokens[name] > before[name] for name in names)
            assert [tokens[name] - ahead for name in twins[:2]] == [2 * turn - 1, 2 * turn]
            assert tokens["b"] < ahead > tokens["c"]
            state = (await store.backend.inspect("a", store.deadline())).holders[0]
            assert abs(state.since - time.time()) < 60
            assert await free(store, tickets) == [True] * 4
            before = tokens


@pytest.mark.parametrize("kind", KINDS)
async def test_one_that_is_held_keeps_back_all(server: RedisServer, kind: str) -> None:
    async with bench(server.url) as store:
        full = KINDS[kind]
        holder = Ticket(Terms("b", 30.0, LABEL, full, full, kind), new_owner())
        await store.grant(holder)
        busy = await take(store, [ticket("a"), ticket("b", kind), ticket("c", "semaphore")])
        assert isinstance(busy, Busy)
        assert 20.0 < busy.remaining < 30.1
        assert list(await held(store)) == ["b"]
        assert await store.release(holder) is True
        tickets = [ticket("a"), ticket("b", kind), ticket("c", "semaphore")]
        grants = await take(store, tickets)
        assert isinstance(grants, list)
        assert sorted(await held(store)) == ["a", "b", "c"]
        assert [isinstance(await store.renew(one), Renewed) for one in tickets] == [True] * 3
        assert await free(store, tickets) == [True] * 3


async def test_those_who_wait_are_not_passed_by(server: RedisServer) -> None:
    async with bench(server.url) as store:
        reader = ticket("b", "rwlock")
        await store.grant(reader)
        full = KINDS["rwlock"]
        writer = Ticket(Terms("b", 30.0, LABEL, full, full, "rwlock"), new_owner())
        assert isinstance(await store.ask(writer), Queued)
        assert isinstance(await take(store, [ticket("a"), ticket("b", "rwlock")]), Busy)
        assert await store.release(writer) is False
        assert isinstance(await take(store, [ticket("a"), ticket("b", "rwlock")]), list)


async def test_a_place_of_a_dead_waiter_is_no_obstacle(server: RedisServer) -> None:
    async with bench(server.url) as store:
        server("RPUSH", "holdfast:{b}:q", "gone")
        assert isinstance(await take(store, plain("a", "b")), list)


async def test_another_kind_is_refused_and_named(server: RedisServer) -> None:
    async with bench(server.url) as store:
        await store.grant(ticket("b", "semaphore"))
        tickets = plain("a", "b")
        with pytest.raises(
            holdfast.ConfigError, match="'b' is in use as a semaphore of 3"
        ) as raised:
            await take(store, tickets)
        assert raised.value.owner == tickets[1].owner
        assert list(await held(store)) == ["b"]


async def test_a_lost_reply_is_asked_for_again(server: RedisServer, proxy: Proxy) -> None:
    async with bench(proxy.url) as store, bench(server.url) as others:
        await free(store, plain("w"))
        for kind in KINDS:
            tickets = [ticket("a"), ticket("b", kind)]
            proxy.reset_once = True
            grants = await take(store, tickets)
            assert isinstance(grants, list)
            assert await held(others) == {
                one.name: (one.owner, grant.token)
                for one, grant in zip(tickets, grants, strict=True)
            }
            proxy.reset_once = True
            assert await free(store, tickets) == [True, True]
            assert await held(others) == {}


async def test_a_request_that_arrives_after_it_was_given_up_is_refused(
    server: RedisServer, proxy: Proxy
) -> None:
    async with bench(proxy.url) as store, bench(server.url) as others:
        await free(store, plain("w"))
        for kind in KINDS:
            tickets = [ticket("a"), ticket("b", kind)]
            assert isinstance(store.backend, OneServerBackend)
            proxy.keep_once = proxy.refuse = True
            with pytest.raises(holdfast.BackendUnavailable):
                await store.backend.acquire_all(tickets, store.clock.now() + 0.5)
            proxy.refuse = False
            assert await free(store, tickets) == [False, False]
            proxy.let_go()
            assert await held(others) == {}


async def test_a_busy_answer_behind_a_lost_one_leaves_nothing(
    server: RedisServer, proxy: Proxy
) -> None:
    """Loses the request; by the time it is repeated, another client has one of the locks."""
    async with bench(proxy.url) as store, bench(server.url) as others:
        await free(store, plain("w"))
        tickets, other = plain("a", "b"), ticket("b")
        proxy.keep_once = proxy.refuse = True
        asked = Job(take, store, tickets)
        while proxy.keep_once:
            await others.backend.inspect("b", others.deadline())
        await others.grant(other)
        proxy.refuse = False
        assert isinstance(await asked.result(), Busy)
        assert await others.release(other) is True
        proxy.let_go()
        assert await held(others) == {}


async def test_out_of_memory_none_is_granted_and_all_are_released(server: RedisServer) -> None:
    async with bench(server.url) as store:
        tickets = plain("a", "b")
        assert isinstance(await take(store, tickets), list)
        server("CONFIG", "SET", "maxmemory", "1")
        for kind in ("lock", "election"):
            with pytest.raises(holdfast.BackendUnavailable, match="out of memory"):
                await take(store, [ticket("c"), ticket("d", kind)])
        assert await free(store, tickets) == [True, True]
        server("CONFIG", "SET", "maxmemory", "0")
        assert await held(store) == {}


async def test_a_release_of_several_frees_no_others(server: RedisServer) -> None:
    async with bench(server.url) as store:
        mine, theirs = plain("a", "b", "c"), ticket("b")
        assert not isinstance(await take(store, mine), Busy)
        assert await store.release(mine[1]) is True
        await store.grant(theirs)
        waiter = ticket("c", queue=True)
        assert isinstance(await store.backend.acquire(waiter, store.deadline()), Queued)
        assert await free(store, mine) == [True, False, True]
        assert {name: owner for name, (owner, _) in (await held(store)).items()} == {
            "b": theirs.owner,
            "c": waiter.owner,
        }


async def test_no_two_of_many_overlapping_sets_are_held_at_once(server: RedisServer) -> None:
    async with bench(server.url) as one, bench(server.url) as two:
        inside: dict[str, str] = {}

        async def work(store: Bench, seed: int) -> int:
            choose, done = random.Random(seed), 0
            while done < 15:
                names = choose.sample("abcdef", choose.randint(1, 4))
                tickets = [ticket(n, "semaphore" if n == "f" else "lock") for n in names]
                if isinstance(await take(store, tickets), Busy):
                    continue
                for mine in tickets:
                    if mine.name != "f":
                        assert inside.setdefault(mine.name, mine.owner) == mine.owner
                await store.backend.inspect("a", store.deadline())
                for mine in tickets:
                    if mine.name != "f":
                        del inside[mine.name]
                assert await free(store, tickets) == [True] * len(tickets)
                done += 1
            return done

        jobs = [Job(work, store, seed) for seed, store in enumerate([one, two] * 4)]
        assert [await job.result() for job in jobs] == [15] * 8
        assert await held(one) == {}


async def test_one_step_is_offered_where_one_server_has_all_locks(server: RedisServer) -> None:
    for url, offered in ((redis_watch().url, True), (redis_nodes().url, False)):
        async with bench(url) as store:
            assert hasattr(store.backend, "acquire_all") is offered
    async with bench(redis_watch().url) as store:
        tickets = plain("several-a", "several-b")
        assert isinstance(await take(store, tickets), list)
        assert await free(store, tickets) == [True, True]
