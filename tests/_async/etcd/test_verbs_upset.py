"""Leases are amended, detached, adopted and observed while the leader of the cluster is upset."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from _async.etcd.scenes import backend_of
from holdfast import aio as holdfast
from holdfast.chaos.servers.etcd import EtcdCluster, trio
from holdfast.model import Granted, Label, new_owner
from holdfast.stores._async.contract import Terms, Ticket


@pytest.fixture
def cluster() -> Iterator[EtcdCluster]:
    members = trio()
    members.wipe()
    yield members
    members.heal()


def asks(kind: str, capacity: int = 1) -> Ticket:
    terms = Terms("x", 60.0, Label("here", 1, "a"), capacity=capacity, kind=kind)
    return Ticket(terms, new_owner())


def by(backend: Any) -> float:
    deadline: float = backend.clock.now() + 20.0
    return deadline


@pytest.mark.parametrize("how", ["kill", "pause", "cut_off"])
async def test_nothing_is_lost_or_done_twice(cluster: EtcdCluster, how: str) -> None:
    upset = cluster.leader()
    others = [member for member in cluster.members if member is not upset]
    url = "etcd://" + ",".join(f"127.0.0.1:{one.port}" for one in [upset, *others])
    async with holdfast.connect(url) as locks, holdfast.connect(url) as heirs:
        backend, theirs = await backend_of(locks), await backend_of(heirs)
        leader = asks("election")
        grant = await backend.acquire(leader, by(backend))
        assert isinstance(grant, Granted)
        eye = asks("election")
        (first,) = (await theirs.observe(eye, 0, by(theirs))).changes
        cluster.cut_off(upset) if how == "cut_off" else getattr(upset, how)()
        assert await backend.amend("x", leader.owner, by(backend), text="b") is True
        assert await backend.detach("x", leader.owner, 60.0, by(backend)) is True
        heir = asks("election")
        adopted = await theirs.adopt(heir, leader.owner, by(theirs))
        assert isinstance(adopted, Granted)
        assert adopted.token > grant.token
        assert await theirs.release("x", heir.owner, by(theirs)) is True
        seen = (await theirs.observe(eye, first.number, by(theirs))).changes
        assert [(one.owner, one.label.text) for one in seen] == [
            (leader.owner, "b"),
            (heir.owner, "a"),
            ("", ""),
        ]
        cluster.heal()
        permits = [asks("semaphore", 2), asks("semaphore", 2)]
        assert [(await backend.acquire(one, by(backend))).slot for one in permits] == [0, 1]


async def test_a_cluster_that_does_not_answer_is_told_in_time(cluster: EtcdCluster) -> None:
    async with holdfast.connect(cluster.url) as locks:
        backend = await backend_of(locks)
        leader = asks("election")
        assert isinstance(await backend.acquire(leader, by(backend)), Granted)
        for member in cluster.members:
            member.pause()
        calls: list[tuple[Any, tuple[Any, ...], dict[str, Any]]] = [
            (backend.amend, ("x", leader.owner), {"text": "b"}),
            (backend.detach, ("x", leader.owner, 60.0), {}),
            (backend.adopt, (asks("election"), leader.owner), {}),
            (backend.observe, (asks("election"), 0), {}),
        ]
        for verb, words, options in calls:
            began = backend.clock.now()
            with pytest.raises(holdfast.BackendUnavailable):
                await verb(*words, deadline=began + 1.0, **options)
            assert backend.clock.now() < began + 3.0
        cluster.heal()
        state = await backend.inspect("x", by(backend))
        assert [one.owner for one in state.holders] == [leader.owner]
