"""Answers that get lost, requests that come too late, and steps that race: on both databases."""

from __future__ import annotations

import random
from typing import Any

import pytest

from _async.conformance.test_contract import LABEL, Bench, bench
from _async.conformance.test_verbs import alike, candidate, observer, permit, reader, writer
from _async.sql_scenes import each_database, proxied, rows_of
from holdfast import aio as holdfast
from holdfast.model import GONE, Busy, Gone, Granted, Queued, new_owner
from holdfast.stores._async.contract import Terms, Ticket
from worlds.aio import Job, pause

pytestmark = each_database


async def acquire_all(store: Bench, tickets: list[Ticket]) -> Any:
    backend: Any = store.backend
    return await backend.acquire_all(tickets, store.deadline())


@pytest.mark.parametrize(
    "step", [b"amend", b"detach", b"adopt", b"acquire_all", b"observe", b"release"]
)
async def test_a_lost_answer_is_found_again(url: str, step: bytes) -> None:
    proxy, through = proxied(url)
    try:
        async with bench(through) as store:
            backend, deadline = store.backend, store.deadline()
            leader, watching = candidate("one"), observer()
            first = await store.grant(leader)
            proxy.about, proxy.reset_once = b"holdfast_" + step, True
            assert await backend.amend("x", leader.owner, deadline, text="two") is True
            seen = await backend.observe(watching, first.token, deadline)
            assert [change.label.text for change in seen.changes] == ["two"]
            assert await backend.detach("x", leader.owner, 60.0, deadline) is True
            heir = alike(leader)
            second = await backend.adopt(heir, leader.owner, deadline)
            assert isinstance(second, Granted)
            assert second.token > first.token
            seen = await backend.observe(watching, seen.changes[-1].number, deadline)
            assert [change.owner for change in seen.changes] == [heir.owner]
            assert await store.release(heir) is True
            tickets = [store.ticket(name) for name in "cab"]
            grants = await acquire_all(store, tickets)
            assert [state.token for state in await backend.list("", deadline)] == [
                grants[place].token for place in (1, 2, 0)
            ]
            for ticket in tickets:
                assert await store.release(ticket) is True
            assert not proxy.reset_once
            assert await backend.list("", deadline) == []
    finally:
        proxy.close()


@pytest.mark.parametrize("make", [permit, reader, writer])
async def test_an_acquire_that_arrives_after_its_lease_was_adopted_is_refused(
    url: str, make: Any
) -> None:
    """A copy of it, sent as the answer was lost: a second heir could adopt what it is granted."""
    async with bench(url) as store, bench(url) as others:
        giver = make()
        await store.grant(giver)
        heir, second = alike(giver), alike(giver)
        grant = await others.backend.adopt(heir, giver.owner, others.deadline())
        assert isinstance(grant, Granted)
        with pytest.raises(holdfast.LockError, match="given up"):
            await store.backend.acquire(giver, store.deadline())
        assert await others.backend.adopt(second, giver.owner, others.deadline()) == GONE
        assert await others.release(heir) is True
        assert (await store.backend.inspect("x", store.deadline())).holders == ()


@pytest.mark.parametrize("step", ["adopt", "acquire_all"])
async def test_a_request_that_arrives_after_its_copy_was_granted_and_freed_is_refused(
    url: str, step: str
) -> None:
    proxy, through = proxied(url)
    try:
        async with bench(through) as store:
            giver = store.ticket()
            await store.grant(giver)
            proxy.about, proxy.keep_once = b"holdfast_" + step.encode(), True
            ticket = alike(giver)
            if step == "adopt":
                answer = await store.backend.adopt(ticket, giver.owner, store.deadline())
                assert isinstance(answer, Granted)
            else:
                await store.release(giver)
                assert len(await acquire_all(store, [ticket, store.ticket("y")])) == 2
                assert await store.backend.force_release("y", "test", store.deadline()) is True
            assert not proxy.keep_once
            assert await store.release(ticket) is True
            proxy.let_go()
            assert await store.backend.list("", store.deadline()) == []
    finally:
        proxy.close()


async def test_an_adoption_that_arrives_after_it_was_given_up_is_refused(url: str) -> None:
    proxy, through = proxied(url)
    try:
        async with bench(url) as store, bench(through) as other:
            giver = store.ticket()
            grant = await store.grant(giver)
            heir = alike(giver)
            await other.backend.inspect("x", other.deadline())
            proxy.about, proxy.keep_once, proxy.refuse = b"holdfast_adopt", True, True
            with pytest.raises(holdfast.BackendUnavailable):
                await other.backend.adopt(heir, giver.owner, other.clock.now() + 0.3)
            proxy.refuse = False
            assert await other.release(heir) is False
            proxy.let_go()
            state = await store.backend.inspect("x", store.deadline())
            assert [(one.owner, one.token) for one in state.holders] == [(giver.owner, grant.token)]
    finally:
        proxy.close()


async def test_an_adoption_races_the_giver_and_a_waiter(url: str) -> None:
    chance = random.Random(7)
    seen = set()
    async with bench(url) as store, bench(url) as other, bench(url) as third:
        for turn in range(40):
            giver, waiter = store.ticket(f"x{turn}"), store.ticket(f"x{turn}")
            first = await store.grant(giver)
            assert isinstance(await third.ask(waiter), Queued)
            heir = alike(giver)
            releasing = Job(store.release, giver)
            if chance.random() < 0.5:
                await pause(chance.random() * 0.002)
            adopting = Job(other.backend.adopt, heir, giver.owner, other.deadline())
            beating = Job(third.renew, waiter)
            answer, freed = await adopting.result(), await releasing.result()
            await beating.result()
            seen.add(freed)
            state = await store.backend.inspect(giver.name, store.deadline())
            expected = waiter.owner if freed else heir.owner
            assert [one.owner for one in state.holders] == [expected]
            assert (answer == GONE) is freed
            assert state.holders[0].token > first.token
            assert await store.renew(giver) == GONE
            assert await other.release(heir) is not freed
            assert await third.release(waiter) is True
        assert await store.backend.list("", store.deadline()) == []


async def test_a_lease_is_adopted_once(url: str) -> None:
    async with bench(url) as store, bench(url) as other:
        for turn in range(10):
            giver = permit()
            await store.grant(giver)
            heirs = [alike(giver) for _ in range(6)]
            jobs = [
                Job(backend.adopt, heir, giver.owner, store.deadline())
                for heir, backend in zip(heirs, [store.backend, other.backend] * 3, strict=True)
            ]
            answers = [await job.result() for job in jobs]
            assert sum(isinstance(answer, Granted) for answer in answers) == 1, turn
            assert sum(isinstance(answer, Gone) for answer in answers) == 5
            state = await store.backend.inspect("x", store.deadline())
            assert len(state.holders) == 1
            for heir in heirs:
                await store.release(heir)


async def test_what_is_counted_stays_right_whatever_races(url: str) -> None:
    """Writers become readers, pass their lease on, let it end, and leave, all at once."""
    chance = random.Random(3)

    async def use(store: Bench) -> None:
        for _ in range(15):
            ticket = writer() if chance.random() < 0.5 else reader()
            if not isinstance(await store.ask(ticket), Granted):
                await store.release(ticket)
                continue
            deadline = store.deadline()
            jobs: list[Job[Any]] = [Job(store.renew, ticket)]
            if chance.random() < 0.6:
                jobs.append(Job(store.backend.amend, "x", ticket.owner, deadline, 1))
            if chance.random() < 0.3:
                jobs.append(Job(store.backend.detach, "x", ticket.owner, 0.05, deadline))
            if chance.random() < 0.3:
                jobs.append(Job(store.release, ticket))
            for job in jobs:
                await job.result()
            await store.release(ticket)

    async with bench(url) as store, bench(url) as other:
        jobs = [Job(use, one) for one in (store, other) * 3]
        for job in jobs:
            await job.result()
        last = writer()
        while not isinstance(await store.ask(last), Granted):
            await pause(0.02)
        ((used, weights),) = rows_of(
            url, "SELECT used, (SELECT sum(weight) FROM holdfast_entry) FROM holdfast_lock"
        )
        assert used == weights == last.weight


async def test_sets_that_overlap_are_taken_whole_and_without_deadlocks(url: str) -> None:
    chance = random.Random(5)
    before = deadlocks(url)
    taken = []

    async def use(store: Bench) -> None:
        for _ in range(20):
            names = chance.sample("abcdefgh", 3)
            tickets = [store.ticket(name, queue=False) for name in names]
            answer = await acquire_all(store, tickets)
            mine = [ticket.owner for ticket in tickets]
            if isinstance(answer, Busy):
                states = await store.backend.list("", store.deadline())
                assert not {one.owner for state in states for one in state.holders} & set(mine)
                continue
            taken.append(names)
            for ticket in tickets:
                assert await store.release(ticket) is True

    async with bench(url) as store, bench(url) as other, bench(url) as third:
        jobs = [Job(use, one) for one in (store, other, third) * 2]
        for job in jobs:
            await job.result()
        assert taken
        assert await store.backend.list("", store.deadline()) == []
    assert deadlocks(url) == before


def deadlocks(url: str) -> int:
    """Returns how many deadlocks the server has ended."""
    if url.startswith("postgresql"):
        statement = "SELECT sum(deadlocks) FROM pg_stat_database"
    else:
        statement = (
            "SELECT count FROM information_schema.innodb_metrics WHERE name = 'lock_deadlocks'"
        )
    return int(rows_of(url, statement)[0][0])


async def test_a_set_is_refused_as_one_lock_is(url: str) -> None:
    async with bench(url) as store:
        await store.grant(permit())
        with pytest.raises(holdfast.ConfigError, match="semaphore of 3"):
            await acquire_all(store, [store.ticket("a"), store.ticket("x")])
        states = await store.backend.list("", store.deadline())
        assert [state.name for state in states] == ["x"]


async def test_a_lock_is_handed_over_for_the_delay_too(url: str) -> None:
    async with bench(url) as store:
        holder = store.ticket()
        await store.grant(holder)
        waiter = Ticket(Terms("x", 60.0, LABEL, delay=20.0), new_owner())
        assert isinstance(await store.ask(waiter), Queued)
        await store.release(holder)
        window = store.backend.claim_window
        assert window + 15.0 < await store.remaining() <= window + 20.0


async def test_a_manager_that_may_not_clean_renews_all_the_same(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with holdfast.connect(url) as locks:
        lease = await locks.lock("x").acquire()
        backend: Any = (await locks._session()).backend
        store = backend._store
        call = store._keeping.call
        asked: list[str] = []

        def refuse(procedure: str, *arguments: Any) -> Any:
            asked.append(procedure)
            if procedure == "clean":
                raise holdfast.ConfigError("permission denied")
            return call(procedure, *arguments)

        monkeypatch.setattr(store._keeping, "call", refuse)
        store._clean_at = 0.0
        await lease.renew()
        assert asked.count("clean") == 1
