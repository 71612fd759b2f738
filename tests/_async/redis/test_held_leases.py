"""Leases that are amended, detached and adopted: lost replies, late requests, races, refusals."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from _async.conformance.test_contract import LABEL, Bench, bench
from holdfast import aio as holdfast
from holdfast.chaos.servers.proxy import Proxy
from holdfast.chaos.servers.redis import RedisServer
from holdfast.model import GONE, Gone, Granted, Queued, Renewed, new_owner
from holdfast.stores._async.contract import Terms, Ticket
from worlds.aio import Job, eventually

KINDS = {"lock": 1, "semaphore": 3, "rwlock": 2**31 - 1, "election": 1}


@pytest.fixture
def proxy(server: RedisServer) -> Iterator[Proxy]:
    made = Proxy(server.port)
    made.about = b"EVALSHA"
    yield made
    made.close()


def ticket(kind: str = "lock", queue: bool = True, delay: float = 0.0) -> Ticket:
    terms = Terms("x", 30.0 + delay, LABEL, capacity=KINDS[kind], kind=kind, delay=delay)
    return Ticket(terms, new_owner(), queue)


async def holders(store: Bench) -> dict[str, int]:
    state = await store.backend.inspect("x", store.deadline())
    return {holder.owner: holder.token for holder in state.holders}


@pytest.mark.parametrize("kind", KINDS)
async def test_a_verb_whose_reply_was_lost_is_done_once(
    server: RedisServer, proxy: Proxy, kind: str
) -> None:
    async with bench(proxy.url) as store, bench(server.url) as others:
        giver, heir = ticket(kind), ticket(kind, queue=False)
        given = await store.grant(giver)
        proxy.reset_once = True
        assert await store.backend.amend("x", giver.owner, store.deadline(), text="new") is True
        proxy.reset_once = True
        assert await store.backend.detach("x", giver.owner, 40.0, store.deadline()) is True
        assert 30.0 < await others.remaining() < 40.1
        state = await others.backend.inspect("x", store.deadline())
        assert [holder.label.text for holder in state.holders] == ["new"]
        proxy.reset_once = True
        grant = await store.backend.adopt(heir, giver.owner, store.deadline())
        assert isinstance(grant, Granted)
        assert grant.token > given.token
        assert await holders(others) == {heir.owner: grant.token}
        assert await store.release(giver) is False
        assert await store.release(heir) is True
        assert not proxy.reset_once


@pytest.mark.parametrize("kind", KINDS)
async def test_an_amended_lease_ends_when_it_would_have_ended(
    server: RedisServer, kind: str
) -> None:
    async with bench(server.url) as store:
        one = ticket(kind)
        await store.grant(one)
        assert await store.backend.detach("x", one.owner, 20.0, store.deadline()) is True
        assert await store.backend.amend("x", one.owner, store.deadline(), text="new") is True
        assert 0 < server("PTTL", "holdfast:{x}") <= 20_001
        assert 0.0 < await store.remaining() <= 20.1
        assert await store.release(one) is True


async def test_a_change_whose_reply_was_lost_is_one_change(
    server: RedisServer, proxy: Proxy
) -> None:
    async with bench(proxy.url) as store:
        leader, eye = ticket("election"), ticket("election")
        await store.grant(leader)
        before = (await store.backend.observe(eye, 0, store.deadline())).changes[-1]
        proxy.reset_once = True
        assert await store.backend.amend("x", leader.owner, store.deadline(), text="new") is True
        seen = (await store.backend.observe(eye, before.number, store.deadline())).changes
        assert [(change.owner, change.label.text) for change in seen] == [(leader.owner, "new")]
        assert seen[0].token == before.token


@pytest.mark.parametrize("kind", KINDS)
async def test_an_adoption_that_arrives_after_it_was_given_up_is_refused(
    server: RedisServer, proxy: Proxy, kind: str
) -> None:
    async with bench(proxy.url) as store, bench(server.url) as others:
        giver, heir = ticket(kind), ticket(kind, queue=False)
        given = await others.grant(giver)
        assert await store.backend.detach("x", new_owner(), 1.0, store.deadline()) is False
        proxy.keep_once = proxy.refuse = True
        with pytest.raises(holdfast.BackendUnavailable):
            await store.backend.adopt(heir, giver.owner, store.clock.now() + 0.5)
        proxy.refuse = False
        assert await store.release(heir) is False
        proxy.let_go()
        assert await holders(others) == {giver.owner: given.token}
        assert isinstance(await others.renew(giver), Renewed)
        assert await others.release(giver) is True


async def test_an_adoption_that_arrives_twice_does_not_come_back_after_its_release(
    server: RedisServer, proxy: Proxy
) -> None:
    async with bench(proxy.url) as store, bench(server.url) as others:
        giver, heir = ticket(), ticket(queue=False)
        await others.grant(giver)
        assert await store.backend.detach("x", new_owner(), 1.0, store.deadline()) is False
        proxy.keep_once = True
        grant = await store.backend.adopt(heir, giver.owner, store.deadline())
        assert isinstance(grant, Granted)
        assert await store.release(heir) is True
        proxy.let_go()
        assert await holders(others) == {}


@pytest.mark.parametrize("kind", KINDS)
async def test_an_acquire_that_arrives_after_its_lease_was_adopted_is_refused(
    server: RedisServer, proxy: Proxy, kind: str
) -> None:
    """Otherwise the giver has the lock once more, and a second heir can adopt it."""
    async with bench(proxy.url) as store, bench(server.url) as others:
        giver, heir = ticket(kind), ticket(kind, queue=False)
        assert await store.backend.detach("x", new_owner(), 1.0, store.deadline()) is False
        proxy.keep_once = True
        await store.grant(giver)
        grant = await others.backend.adopt(heir, giver.owner, others.deadline())
        assert isinstance(grant, Granted)
        proxy.let_go()
        assert await holders(others) == {heir.owner: grant.token}
        second = ticket(kind, queue=False)
        assert await others.backend.adopt(second, giver.owner, others.deadline()) == GONE
        assert await others.release(heir) is True
        assert await holders(others) == {}


@pytest.mark.parametrize("kind", KINDS)
async def test_an_adoption_races_the_giver_and_those_who_wait(
    server: RedisServer, kind: str
) -> None:
    """Lets the giver's release, two heirs, a waiter and heartbeats meet: one step decides."""
    async with bench(server.url) as store, bench(server.url) as one, bench(server.url) as two:
        full = KINDS[kind]
        for _ in range(30):
            terms = Terms("x", 30.0, LABEL, weight=full, capacity=full, kind=kind)
            giver, waiter = Ticket(terms, new_owner()), Ticket(terms, new_owner())
            heirs = [Ticket(terms, new_owner(), queue=False) for _ in range(2)]
            given = await store.grant(giver)
            assert isinstance(await two.ask(waiter), Queued)
            adoptions = [
                Job(where.backend.adopt, heir, giver.owner, store.deadline())
                for where, heir in zip((one, two), heirs, strict=True)
            ]
            release, heartbeat = Job(store.release, giver), Job(two.renew, waiter)
            grants = [await job.result() for job in adoptions]
            await heartbeat.result()
            freed = await release.result()
            won = [heir for heir, grant in zip(heirs, grants, strict=True) if grant != GONE]
            assert len(won) == (0 if freed else 1)
            tokens = [grant.token for grant in grants if isinstance(grant, Granted)]
            for where, heir in zip((one, two), heirs, strict=True):
                assert await where.release(heir) is (heir in won)
            last = await two.told(waiter)
            assert [given.token, *tokens, last] == sorted({given.token, *tokens, last})
            assert await two.release(waiter) is True


async def test_a_semaphore_goes_on_granting_each_slot_once_while_permits_are_adopted(
    server: RedisServer,
) -> None:
    async with bench(server.url) as store:
        permits = KINDS["semaphore"]
        held = [ticket("semaphore") for _ in range(permits)]
        slots = {}
        for one in held:
            slots[one.owner] = (await store.grant(one)).token % permits
        for turn in range(40):
            giver, heir = held.pop(0), ticket("semaphore", queue=False)
            grant = await store.backend.adopt(heir, giver.owner, store.deadline())
            assert isinstance(grant, Granted)
            assert grant.token % permits == slots[giver.owner]
            slots[heir.owner] = slots[giver.owner]
            held.append(heir)
            if turn % 5 == 4:
                assert await store.release(held.pop(0)) is True
                held.append(ticket("semaphore"))
                slots[held[-1].owner] = (await store.grant(held[-1])).token % permits
            assert {slots[one.owner] for one in held} == set(range(permits))
            state = await store.backend.inspect("x", store.deadline())
            assert {holder.slot for holder in state.holders} == set(range(permits))


async def test_an_adopted_permit_keeps_its_slot_though_others_are_free(
    server: RedisServer,
) -> None:
    async with bench(server.url) as store:
        giver = Ticket(Terms("x", 30.0, LABEL, capacity=8, kind="semaphore"), new_owner())
        slot = (await store.grant(giver)).token % 8
        for _ in range(10):
            heir = Ticket(giver.terms, new_owner(), queue=False)
            grant = await store.backend.adopt(heir, giver.owner, store.deadline())
            assert isinstance(grant, Granted)
            assert grant.token % 8 == slot
            giver = heir


async def test_a_waiter_is_no_heir(server: RedisServer) -> None:
    async with bench(server.url) as store:
        giver, waiter = ticket(), ticket()
        given = await store.grant(giver)
        assert isinstance(await store.ask(waiter), Queued)
        assert isinstance(await store.backend.adopt(waiter, giver.owner, store.deadline()), Gone)
        assert await holders(store) == {giver.owner: given.token}


async def test_a_detached_permit_that_ends_frees_its_place_for_a_waiter(
    server: RedisServer,
) -> None:
    async with bench(server.url, heartbeat=0.2) as store:
        held = [ticket("semaphore") for _ in range(3)]
        for one in held:
            await store.grant(one)
        waiter = ticket("semaphore")
        assert isinstance(await store.ask(waiter), Queued)
        assert await store.backend.detach("x", held[1].owner, 0.3, store.deadline()) is True
        await eventually(lambda: _is_held(store, waiter))
        assert set(await holders(store)) == {held[0].owner, held[2].owner, waiter.owner}


async def _is_held(store: Bench, waiter: Ticket) -> bool:
    return isinstance(await store.renew(waiter), Renewed)


async def test_a_server_out_of_memory_detaches_and_refuses_the_rest_in_words(
    server: RedisServer,
) -> None:
    async with bench(server.url) as store:
        for kind in ("lock", "semaphore"):
            giver, heir = ticket(kind), ticket(kind, queue=False)
            given = await store.grant(giver)
            server("CONFIG", "SET", "maxmemory", "1")
            assert await store.backend.detach("x", giver.owner, 50.0, store.deadline()) is True
            with pytest.raises(holdfast.BackendUnavailable, match="out of memory"):
                await store.backend.amend("x", giver.owner, store.deadline(), text="new")
            if kind == "lock":
                with pytest.raises(holdfast.BackendUnavailable, match="out of memory"):
                    await store.backend.adopt(heir, giver.owner, store.deadline())
                assert await holders(store) == {giver.owner: given.token}
            server("CONFIG", "SET", "maxmemory", "0")
            assert await store.release(giver) is True


async def test_a_delay_is_added_to_what_a_waiter_is_handed(server: RedisServer) -> None:
    async with bench(server.url, claim_window=2.0) as store:
        first, second = ticket(), ticket(delay=20.0)
        await store.grant(first)
        assert isinstance(await store.ask(second), Queued)
        assert await store.release(first) is True
        await store.told(second)
        assert 12.0 < await store.remaining() <= 22.0
        assert isinstance(await store.renew(second), Renewed)
        assert 40.0 < await store.remaining() <= 50.0


async def test_what_is_detached_for_long_ends_by_itself(server: RedisServer) -> None:
    async with bench(server.url) as store:
        week = 7 * 86400.0
        for kind in ("lock", "semaphore"):
            one = ticket(kind)
            await store.grant(one)
            assert await store.backend.detach("x", one.owner, week, store.deadline()) is True
            left = [server("PTTL", key) for key in server("KEYS", "holdfast:{x}*")]
            assert all(0 < ms <= week * 1000 + 2 for ms in left)
            assert await store.release(one) is True
            assert server("KEYS", "holdfast:{x}*") == []
