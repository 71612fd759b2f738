"""What is special to one lab: a failover that forgets, members cut off from each other, clocks."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

import holdfast
from chaos.workers import ProbeWorker, chance, until
from holdfast.chaos.labs import lab_class
from holdfast.chaos.labs.cluster import ClusterLab
from holdfast.chaos.labs.etcd import EtcdLab
from holdfast.chaos.labs.links import _address
from holdfast.chaos.labs.redis import RedisLab
from holdfast.chaos.labs.redlock import RedlockLab
from holdfast.chaos.labs.sentinel import SentinelLab
from holdfast.chaos.labs.sqlite import SqliteLab
from holdfast.chaos.servers.cluster import ClusterNode
from holdfast.chaos.tiers import tier


class Loaded(Random):
    """Dice that fall on the last of what there is, or on what has these words in it."""

    def __init__(self, words: str = "") -> None:
        super().__init__(0)
        self._words = words

    def random(self) -> float:
        return 0.9

    def choice(self, every: Any) -> Any:
        return next((one for one in every if self._words and self._words in str(one)), every[-1])


@pytest.fixture(scope="module")
def sentinel() -> Iterator[SentinelLab]:
    with SentinelLab() as lab:
        yield lab


def test_a_failover_forgets(sentinel: SentinelLab) -> None:
    old = sentinel.primary
    holder, rival = ProbeWorker(sentinel, "w1"), ProbeWorker(sentinel, "w2")
    rival.turn()
    first = holder.ask("take")
    injury = sentinel.apply("failover", chance(holder, rival))
    assert injury.lanes == (sentinel.name_of(old),)
    assert not old.running
    injury.heal()
    assert old.running
    assert sentinel.primary is not old
    assert rival.turn() > first
    for worker in (holder, rival):
        worker.end()


@pytest.mark.parametrize("name", ["redis+replica", "postgresql+standby", "mysql+replica"])
def test_a_replica_that_takes_over_forgets(name: str) -> None:
    with lab_class(name)() as lab:
        holder, rival = ProbeWorker(lab, "w1"), ProbeWorker(lab, "w2")
        rival.turn()
        first, old = holder.ask("take"), lab.direct_url
        injury = lab.apply("failover", chance(holder, rival))
        assert lab.direct_url != old
        assert rival.turn() > first  # the new primary knows nothing of the holder's renewals
        injury.heal()  # it is followed in its turn
        assert rival.turn() > first
        for worker in (holder, rival):
            worker.end()


def test_a_primary_is_cut_off_from_the_sentinels(sentinel: SentinelLab) -> None:
    old = sentinel.primary
    with holdfast.connect(sentinel.direct_url, namespace="lab") as locks:
        worker = ProbeWorker(sentinel, "w1")
        worker.turn()
        injury = sentinel.apply("partition", chance(worker)._replace(random=Loaded()))
        assert injury.lanes == (sentinel.name_of(old),)
        until(lambda: sentinel.primary is not old, "the promotion of the replica")
        assert old("ROLE")[0] == b"master"  # it does not know
        injury.heal()
        until(lambda: old("ROLE")[0] == b"slave", "its return as a replica")
        worker.turn()
        assert locks.inspect("x").holders == ()
        worker.end()


@pytest.fixture(scope="module")
def cluster() -> Iterator[ClusterLab]:
    with ClusterLab() as lab:
        yield lab


def test_a_failover_of_a_cluster_forgets(cluster: ClusterLab) -> None:
    old = cluster.primary
    holder, rival = ProbeWorker(cluster, "w1"), ProbeWorker(cluster, "w2")
    rival.turn()
    first = holder.ask("take")
    injury = cluster.apply("failover", chance(holder, rival))
    assert injury.lanes == (cluster.name_of(old),)
    assert not old.running
    injury.heal()
    assert old.running
    assert cluster.primary is not old
    assert cluster.ghosts("lab") == []  # the new primary knows nothing of the holder's renewals
    assert rival.turn() > first
    for worker in (holder, rival):
        worker.end()


def test_a_replica_of_which_its_primary_has_not_heard_yet_is_waited_for(
    cluster: ClusterLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: list[list[bytes]] = [[]]

    class Unaware(ClusterNode):
        def __call__(self, *words: str | bytes | int) -> Any:
            if "REPLICAS" in words and answers:
                return answers.pop()
            return super().__call__(*words)

    primary = cluster.primary
    monkeypatch.setattr(primary, "__class__", Unaware)
    replica = cluster._cluster.replica_of(primary)
    assert answers == []
    assert replica("ROLE")[2] == primary.known_port


def test_a_killed_primary_of_a_cluster_is_replaced(cluster: ClusterLab) -> None:
    old = cluster.primary
    worker = ProbeWorker(cluster, "w1")
    before = worker.turn()
    injury = cluster.apply("store-crash", chance(worker))
    assert not old.running
    injury.heal()
    assert cluster.primary is not old
    assert old("ROLE")[0] == b"slave"
    assert worker.turn() > before
    worker.end()


def test_a_primary_is_cut_off_from_its_cluster(cluster: ClusterLab) -> None:
    old = cluster.primary
    worker = ProbeWorker(cluster, "w1")
    worker.turn()
    injury = cluster.apply("partition", chance(worker)._replace(random=Loaded()))
    assert injury.lanes == (cluster.name_of(old),)
    until(lambda: old.knows("cluster_state:fail"), "its notice of that")
    injury.heal()
    until(lambda: old("ROLE")[0] == b"slave", "its return as a replica")
    assert cluster.primary is not old
    worker.turn()
    worker.end()


def test_a_member_of_etcd_is_cut_off_from_the_others() -> None:
    with EtcdLab() as lab:
        worker = ProbeWorker(lab, "w1")
        worker.turn()
        injury = lab.apply("partition", chance(worker)._replace(random=Loaded()))
        (name,) = injury.lanes
        locks = holdfast.connect(f"etcd://{_address(lab.places()[name])}", namespace="lab")
        with pytest.raises(holdfast.BackendUnavailable):
            locks.inspect("x")
        worker.turn()  # by way of the others
        injury.heal()
        assert locks.inspect("x").holders == ()
        locks.close()
        worker.end()


def test_nodes_of_redlock_are_cut_off_and_a_clock_is_stepped() -> None:
    with RedlockLab() as lab:
        worker = ProbeWorker(lab, "w1")
        worker.turn()
        injury = lab.apply("partition", chance(worker)._replace(random=Loaded("nodes")))
        assert set(injury.lanes) < set(lab.nodes)
        links = lab.links_of("w1")
        assert {name for name, link in links.items() if link.holds} == set(injury.lanes)
        worker.turn()  # by way of the others, which are a majority
        injury.heal()
        assert not any(link.holds for link in links.values())
        worker.end()


def test_the_clock_of_a_redis_is_stepped() -> None:
    with RedisLab() as lab:
        worker = ProbeWorker(lab, "w1")
        injury = lab.apply("clock", chance(worker))
        until(lambda: abs(lab.time() - time.time()) > 5, "the step")
        injury.heal()
        until(lambda: abs(lab.time() - time.time()) < 5, "the step back")
        worker.end()


def test_the_clock_of_a_member_of_etcd_is_stepped() -> None:
    with EtcdLab() as lab:
        worker = ProbeWorker(lab, "w1")
        worker.turn()
        if not tier("vdso").available:
            with pytest.raises(ValueError, match="cannot be done here"):
                lab.apply("clock", chance(worker))
            worker.end()
            return
        for _ in range(3):  # sooner or later of a leader
            injury = lab.apply("clock", chance(worker))
            (name,) = injury.lanes
            assert abs(lab.time(name) - time.time()) > 5
            others = [lab.time(node) for node in lab.nodes if node != name]
            assert all(abs(other - time.time()) < 5 for other in others)
            worker.turn()
            injury.heal()
            assert abs(lab.time(name) - time.time()) < 5
        worker.end()


def test_the_wall_clock_of_a_worker_is_stepped() -> None:
    """There is no server on the embedded store that has a clock."""
    with SqliteLab() as lab:
        worker = ProbeWorker(lab, "w1")
        injury = lab.apply("clock", chance(worker))
        command = [sys.executable, "-I", "-S", "-c", "import time; print(time.time())"]
        environment = lab.environment_for("w1")
        said = subprocess.run(command, env=environment, capture_output=True, check=True).stdout
        assert abs(float(said) - time.time()) > 5
        injury.heal()
        worker.turn()
        worker.end()
