"""Observed elections on etcd: notes of changes, and one watch stream for all observers."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from _async.etcd.scenes import backend_of, soon, through
from holdfast import aio as holdfast
from holdfast.chaos.servers.etcd import EtcdCluster
from holdfast.chaos.servers.proxy import Proxy
from holdfast.model import Granted, Label, Queued, new_owner
from holdfast.stores._async.contract import Terms, Ticket
from holdfast.stores.etcd._async import change_log, observation
from worlds.aio import Job, eventually


def candidate(text: str = "a", name: str = "x", ttl: float = 30.0) -> Ticket:
    return Ticket(Terms(name, ttl, Label("here", 1, text), kind="election"), new_owner())


async def lead(backend: Any, ticket: Ticket) -> Granted:
    answer = await backend.acquire(ticket, soon(backend))
    assert isinstance(answer, Granted)
    return answer


async def release(backend: Any, ticket: Ticket) -> None:
    assert await backend.release(ticket.name, ticket.owner, soon(backend)) is True


async def changes(backend: Any, eye: Ticket, after: int) -> list[Any]:
    return list((await backend.observe(eye, after, soon(backend))).changes)


def notes(cluster: EtcdCluster) -> list[str]:
    return cluster.ctl("get", "--prefix", "--keys-only", "/holdfast/holdfast/change/").split()


async def test_a_thousand_elections_are_observed_on_one_stream(cluster: EtcdCluster) -> None:
    async with holdfast.connect(cluster.url) as locks, holdfast.connect(cluster.url) as others:
        backend, theirs = await backend_of(locks), await backend_of(others)
        streams: list[object] = []
        watch = backend._wire.watch

        def opened(*args: Any) -> Any:
            streams.append(args)
            return watch(*args)

        backend._wire.watch = opened
        eyes = [candidate(name=f"x{number}") for number in range(1000)]
        for eye in eyes:
            assert await changes(backend, eye, 0) == []
        assert len(streams) == 1
        for number in (0, 500, 999):
            before = await changes(backend, eyes[number], 0)
            await backend.wait(eyes[number], backend.clock.now())  # not told of anything yet
            grant = await lead(theirs, candidate("b", f"x{number}"))
            await backend.wait(eyes[number], backend.clock.now() + 20.0)
            (change,) = await changes(backend, eyes[number], 0)
            assert before == []
            assert (change.token, change.label.text) == (grant.token, "b")
        assert not any(eye._told for eye in eyes if eye.name not in ("x0", "x500", "x999"))
        assert len(streams) == 1
        for eye in eyes:
            await backend.unobserve(eye, soon(backend))
        assert backend._observer._watched == {}
        assert backend._watches._watches == {}


async def test_whoever_does_not_ask_again_is_forgotten(
    cluster: EtcdCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with holdfast.connect(cluster.url) as locks:
        backend = await backend_of(locks)
        first, second = candidate(name="y"), candidate()
        monkeypatch.setattr(observation, "OBSERVED_FOR", 0.0)
        await changes(backend, first, 0)
        await changes(backend, second, 0)
        observer = backend._observer
        assert list(observer._tickets) == ["x"]
        assert list(observer._watched) == ["x"]


async def test_one_of_many_observers_notes_that_a_leader_ran_out(cluster: EtcdCluster) -> None:
    managers = [holdfast.connect(cluster.url) for _ in range(3)]
    backends = [await backend_of(locks) for locks in managers]
    leader = candidate()
    grant = await lead(backends[0], leader)
    eyes = [candidate() for _ in managers]
    for backend, eye in zip(backends, eyes, strict=True):
        (change,) = await changes(backend, eye, 0)
        assert change.number == grant.token
    assert await backends[0].detach("x", leader.owner, 1.0, soon(backends[0])) is True

    async def told(backend: Any, eye: Ticket) -> Any:
        while True:
            seen = await changes(backend, eye, grant.token)
            if seen:
                return seen
            await backend.wait(eye, backend.clock.now() + 20.0)

    jobs = [Job(told, backend, eye) for backend, eye in zip(backends, eyes, strict=True)]
    first, *rest = [await job.result() for job in jobs]
    assert [(one.owner, one.token) for one in first] == [("", grant.token)]
    assert rest == [first, first]
    for locks in managers:
        await locks.close()


async def test_a_candidate_that_waits_follows_a_leader_that_ran_out(cluster: EtcdCluster) -> None:
    async with holdfast.connect(cluster.url) as locks, holdfast.connect(cluster.url) as others:
        backend, theirs = await backend_of(locks), await backend_of(others)
        leader, follower = candidate(), candidate("b")
        grant = await lead(backend, leader)
        assert isinstance(await theirs.acquire(follower, soon(theirs)), Queued)
        assert await backend.detach("x", leader.owner, 1.0, soon(backend)) is True
        eye = candidate()

        async def followed() -> bool:
            seen = await changes(backend, eye, grant.token)
            assert [change.label.text for change in seen] in ([], ["b"])
            return bool(seen)

        await eventually(followed)


async def test_changes_survive_a_compaction_and_a_broken_stream(
    cluster: EtcdCluster, proxy: Proxy
) -> None:
    async with holdfast.connect(cluster.url) as others, through(proxy) as locks:
        backend, theirs = await backend_of(locks), await backend_of(others)
        eye = candidate()
        assert await changes(backend, eye, 0) == []
        await eventually(lambda: backend._observer._watched["x"].confirmed)
        proxy.refuse = True
        proxy.hang_up()
        after = 0
        for text in ("a", "b", "c"):
            leader = candidate(text)
            after = after or (await lead(theirs, leader)).token - 1
            if text != "a":
                await lead(theirs, leader)
            await release(theirs, leader)
        revision = (await lead(theirs, candidate("d"))).token
        cluster.ctl("compact", str(revision))
        proxy.refuse = False
        await backend.wait(eye, backend.clock.now() + 20.0)
        seen = await changes(backend, eye, after)
        assert [change.label.text for change in seen] == ["a", "", "b", "", "c", "", "d"]
        assert [change.number for change in seen] == sorted({change.number for change in seen})


async def test_notes_are_kept_for_a_day_and_not_for_ever(
    cluster: EtcdCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with holdfast.connect(cluster.url) as watcher:
        async with holdfast.connect(cluster.url) as locks:
            backend = await backend_of(locks)
            leader = candidate()
            await lead(backend, leader)
            await release(backend, leader)
        kept = cluster.ctl("get", "--prefix", "/holdfast/holdfast/change/", "-w", "fields")
        (lease,) = {line for line in kept.splitlines() if line.startswith('"Lease"')}
        number = int(lease.split(" : ")[1])
        lives = cluster.ctl("lease", "timetolive", f"{number:x}")
        assert int(lives.rpartition("remaining(")[2].rstrip("s)\n")) > 86400
        monkeypatch.setattr(change_log, "KEPT", 2.0)
        theirs = await backend_of(watcher)
        await lead(theirs, candidate(name="y"))
        assert any("/change/y/" in key for key in notes(cluster))
        await eventually(lambda: not any("/change/y/" in key for key in notes(cluster)))


async def test_a_leader_that_has_led_for_days_is_seen(cluster: EtcdCluster) -> None:
    """The notes are gone by then."""
    async with holdfast.connect(cluster.url, token_base=5000) as locks:
        backend = await backend_of(locks)
        first, leader = candidate(), candidate()
        await lead(backend, first)
        await release(backend, first)
        grant = await lead(backend, leader)
        for gone in (f"x/{leader.owner}.leads", "x/"):
            (change,) = await changes(backend, candidate(), 0)
            assert change.number == grant.token - 5000
            assert (change.owner, change.token) == (leader.owner, grant.token)
            assert await changes(backend, candidate(), change.number) == []
            cluster.ctl("del", "--prefix", f"/holdfast/holdfast/change/{gone}")
        (change,) = await changes(backend, candidate(), 0)
        assert change.owner == leader.owner
        assert await backend.amend("x", leader.owner, soon(backend), text="b") is True
        (change,) = await changes(backend, candidate(), grant.token - 5000)
        assert change.label.text == "b"
        await release(backend, leader)
        assert [one.owner for one in await changes(backend, candidate(), change.number)] == [""]


async def test_a_name_that_is_used_for_another_kind_since(cluster: EtcdCluster) -> None:
    async with holdfast.connect(cluster.url) as locks:
        backend = await backend_of(locks)
        leader = candidate()
        grant = await lead(backend, leader)
        assert await backend.detach("x", leader.owner, 1.0, soon(backend)) is True

        async def free() -> bool:
            return not (await locks.inspect("x")).held

        await eventually(free)
        lease = await locks.lock("x").acquire()
        observed = await backend.observe(candidate(), grant.token, soon(backend))
        assert [one.owner for one in observed.changes] == [""]
        assert observed.remaining == 0.0
        await lease.release()


async def test_the_oldest_of_too_many_notes_are_deleted(
    cluster: EtcdCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(change_log, "MOST", 32)
    async with holdfast.connect(cluster.url) as locks:
        backend = await backend_of(locks)
        for number in range(30):
            leader = candidate(str(number))
            await lead(backend, leader)
            await release(backend, leader)
        assert 32 <= len(notes(cluster)) <= 34
        seen = await changes(backend, candidate(), 1)
        assert [change.label.text for change in seen][-4:] == ["28", "", "29", ""]


async def test_other_locks_leave_no_notes(cluster: EtcdCluster) -> None:
    async with holdfast.connect(cluster.url) as locks:
        for lock in (locks.lock("x"), locks.semaphore("y", permits=2), locks.rwlock("z").read()):
            await (await lock.acquire()).release()
        assert notes(cluster) == []


@pytest.mark.usefixtures("unwatched")
async def test_a_term_whose_end_had_its_reply_lost_ends_once(
    cluster: EtcdCluster, proxy: Proxy
) -> None:
    async with holdfast.connect(cluster.url) as others, through(proxy) as locks:
        backend, theirs = await backend_of(locks), await backend_of(others)
        leader = candidate()
        grant = await lead(backend, leader)
        proxy.about = b".ended"
        proxy.reset_once = True
        await release(backend, leader)
        assert not proxy.reset_once
        (change,) = await changes(theirs, candidate(), grant.token)
        assert (change.owner, change.token) == ("", grant.token)


async def test_candidates_that_come_and_go_leave_nothing_out(cluster: EtcdCluster) -> None:
    """A term never ends without the next while somebody waits, however they race."""
    managers = [holdfast.connect(cluster.url) for _ in range(3)]
    tokens: list[int] = []

    async def campaign(locks: holdfast.Locks) -> None:
        for _ in range(8):
            term = await locks.election("x", value="v").campaign()
            tokens.append(term.token)
            await term.resign()

    jobs = [Job(campaign, locks) for locks in managers for _ in range(2)]
    for job in jobs:
        await job.result()
    backend = await backend_of(managers[0])
    seen = await changes(backend, candidate(), 1)
    led = [one.token for one in seen if one.owner]
    assert led == tokens[-len(led) :]
    assert not seen[-1].owner
    for before, change in pairwise(seen):
        assert before.owner or change.owner  # never nobody twice
        if not change.owner:
            assert change.token == before.token
    for locks in managers:
        await locks.close()
