"""Elections that are observed: lost connections, lost replies, leaders that die, and what is left."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from _async.conformance.test_contract import LABEL, Bench, bench
from holdfast.chaos.servers.proxy import Proxy
from holdfast.chaos.servers.zookeeper import TICK, lock_path, raw_client
from holdfast.model import Change, Label, Queued, new_owner
from holdfast.stores._async.contract import Terms, Ticket
from holdfast.stores.zookeeper import observers
from holdfast.stores.zookeeper._async import elections
from stores import zookeeper_ensemble
from worlds.aio import Job, eventually

MANY = 1000


def candidate(text: str, name: str = "x", ttl: float = 30.0) -> Ticket:
    return Ticket(Terms(name, ttl, Label("host", 7, text), kind="election"), new_owner())


def observer(name: str = "x") -> Ticket:
    return Ticket(Terms(name, 30.0, LABEL, kind="election"), new_owner())


async def see(store: Bench, ticket: Ticket, after: int = 0) -> list[Change]:
    observation = await store.backend.observe(ticket, after, store.deadline())
    return list(observation.changes)


def values(changes: list[Change]) -> list[str]:
    return [change.label.text if change.owner else "nobody" for change in changes]


def record_path(url: str, name: str = "x") -> str:
    return lock_path(url, name).replace("/locks/", "/elections/")


async def test_an_observer_that_was_cut_off_misses_nothing(
    url: str, through: str, proxy: Proxy
) -> None:
    async with bench(url) as store, bench(through, tick=TICK) as elsewhere:
        eye, first = observer(), candidate("a")
        await store.grant(first)
        (seen,) = await see(elsewhere, eye)
        proxy.stalled = True
        assert await store.release(first) is True
        second = candidate("b")
        grant = await store.grant(second)
        proxy.stalled = False
        proxy.hang_up()
        await elsewhere.backend.wait(eye, elsewhere.clock.now() + 15.0)
        changes = await see(elsewhere, eye, seen.number)
        assert values(changes) == ["nobody", "b"]
        assert changes[-1].token == grant.token
        # And from then on it is told again.
        assert await store.release(second) is True
        assert values(await told(elsewhere, eye, changes[-1].number)) == ["nobody"]


async def told(store: Bench, ticket: Ticket, after: int) -> list[Change]:
    """Returns the changes after `after`, once there are any; looks only when it is told to."""
    while True:
        changes = await see(store, ticket, after)
        if changes:
            return changes
        began = store.clock.now()
        await store.backend.wait(ticket, began + 20.0)
        assert store.clock.now() < began + 19.0


@pytest.mark.parametrize("where", ["request", "answer"])
async def test_a_leader_is_noted_once_though_a_message_is_lost(
    url: str, through: str, proxy: Proxy, where: str
) -> None:
    async with bench(url) as others, bench(through, tick=TICK) as store:
        await store.grant(candidate("warm", "warm"))
        first = candidate("a")
        eye = observer()
        assert await see(others, eye) == []
        proxy.about = b"[[0, 0, "  # the step that writes the first change
        if where == "request":
            proxy.keep_once = True
        else:
            proxy.reset_once = True
        grant = await store.grant(first)
        assert (proxy.keep_once, proxy.reset_once) == (False, False)
        if where == "request":
            proxy.let_go(answered=False)
        (seen,) = await see(others, eye)
        assert (seen.owner, seen.token, seen.label.text) == (first.owner, grant.token, "a")
        proxy.about = b'"b"'
        proxy.reset_once = True
        assert await store.backend.amend("x", first.owner, store.deadline(), text="b") is True
        assert not proxy.reset_once
        changes = await see(others, eye, seen.number)
        assert values(changes) == ["b"]
        assert changes[0].token == grant.token
        assert await store.release(first) is True
        assert values(await see(others, eye, changes[0].number)) == ["nobody"]


async def test_a_leader_whose_session_ended_is_seen_to_be_gone_by_all_once(url: str) -> None:
    async with bench(url) as store, bench(url, tick=TICK) as doomed:
        first = candidate("a", ttl=5.0)
        await doomed.grant(first)
        eyes = [observer() for _ in range(20)]
        after = {(await see(store, eye))[0].number for eye in eyes}
        assert len(after) == 1
        backend: Any = doomed.backend
        attempt = backend._attempts._attempts[first.owner]
        with raw_client(zookeeper_ensemble().hosts, client_id=attempt.session.client.client_id):
            pass  # leaving closes the session
        jobs = [Job(told, store, eye, next(iter(after))) for eye in eyes]
        seen = [await job.result() for job in jobs]
        assert [values(changes) for changes in seen] == [["nobody"]] * len(eyes)
        assert len({changes[0].number for changes in seen}) == 1


async def test_a_thousand_elections_are_observed_on_one_connection(url: str) -> None:
    async with bench(url) as store, bench(url) as elsewhere:
        eyes = [observer(f"x{number}") for number in range(MANY)]
        for start in range(0, MANY, 100):
            jobs = [Job(see, elsewhere, eye) for eye in eyes[start : start + 100]]
            for job in jobs:
                assert await job.result() == []
        backend: Any = elsewhere.backend
        sessions = backend._attempts._sessions.values()
        assert len(sessions) == 1
        leaders = [candidate("a", eye.name) for eye in eyes[::50]]
        for leader in leaders:
            await store.grant(leader)
        for eye in eyes[::50]:
            assert values(await told(elsewhere, eye, 1)) == ["a"]
        assert len(sessions) == 1
        for eye in eyes:
            await elsewhere.backend.unobserve(eye, elsewhere.deadline())
        (session,) = sessions
        assert not session.observers
        assert not session._watches


async def test_observers_that_do_not_ask_again_are_forgotten(url: str) -> None:
    async with bench(url) as store:
        eye = observer()
        await see(store, eye)
        backend: Any = store.backend
        known: observers.Observers = backend._attempts.observers
        known.expire()
        assert list(known._observers) == [eye.owner]
        known._observers[eye.owner].until = 0.0
        known.expire()
        assert not known._observers
        await store.backend.unobserve(eye, store.deadline())


async def test_the_record_of_an_election_that_is_over_is_removed_and_numbers_go_on(
    url: str, raw: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with bench(url) as store:
        eye, first = observer(), candidate("a")
        await store.grant(first)
        backend: Any = store.backend
        sweep = backend._elections.sweep
        with monkeypatch.context() as patch:
            patch.setattr(elections, "CHANGES_KEPT_FOR", 0.0)
            await sweep(store.deadline())
            assert raw.exists(record_path(url))  # it is led
        assert await store.release(first) is True
        (last,) = await see(store, eye)
        assert values([last]) == ["nobody"]
        await sweep(store.deadline())
        assert raw.exists(record_path(url))  # a day is not over
        monkeypatch.setattr(elections, "CHANGES_KEPT_FOR", 0.0)

        async def removed() -> bool:
            await sweep(store.deadline())
            return not raw.exists(record_path(url))

        await eventually(removed)
        await store.grant(candidate("b"))
        changes = await see(store, eye, last.number)
        assert values(changes) == ["b"]


async def test_only_the_last_changes_are_kept(url: str) -> None:
    async with bench(url) as store:
        eye, leader = observer(), candidate("0")
        grant = await store.grant(leader)
        for number in range(1, 101):
            text = str(number)
            assert await store.backend.amend("x", leader.owner, store.deadline(), text=text) is True
        changes = await see(store, eye, 1)
        assert 32 <= len(changes) <= 64
        assert values(changes) == [str(number) for number in range(101)][-len(changes) :]
        assert {change.token for change in changes} == {grant.token}


async def test_every_term_is_seen_once_and_in_order(url: str) -> None:
    """Stands for candidates that come and go at the same time, on several machines."""
    granted: list[int] = []
    async with bench(url) as first, bench(url) as second, bench(url) as elsewhere:
        eye = observer()
        await see(elsewhere, eye)

        async def stand(store: Bench) -> None:
            for _ in range(8):
                ticket = candidate("a")
                answer = await store.ask(ticket)
                if isinstance(answer, Queued):
                    granted.append(await store.told(ticket))
                else:
                    granted.append(answer.token)  # type: ignore[union-attr]
                assert await store.release(ticket) is True

        jobs = [Job(stand, store) for store in (first, second) for _ in range(2)]
        seen: list[Change] = []
        while len({change.token for change in seen}) < 32 or seen[-1].owner:
            changes = await see(elsewhere, eye, seen[-1].number if seen else 1)
            seen += changes
            if not changes:
                await elsewhere.backend.wait(eye, elsewhere.clock.now() + 1.0)
        for job in jobs:
            await job.result()
        led = [change.token for change in seen if change.owner]
        assert led == sorted(granted)
        numbers = [change.number for change in seen]
        assert numbers == sorted(set(numbers))
        owners = [change.owner for change in seen]
        assert all(one != other for one, other in pairwise(owners))
