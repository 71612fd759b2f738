"""What is special to one lab: a failover that forgets, members cut off from each other, clocks."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from random import Random
from typing import Any

import pytest

import holdfast
from chaos.workers import ProbeWorker, chance, until
from holdfast.chaos.labs import lab_class
from holdfast.chaos.labs.etcd import EtcdLab
from holdfast.chaos.labs.redis import RedisLab
from holdfast.chaos.labs.redlock import RedlockLab
from holdfast.chaos.labs.sentinel import SentinelLab
from holdfast.chaos.labs.sqlite import SqliteLab
from holdfast.chaos.labs.zookeeper import DISTURBANCES, ZooKeeperLab


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


def test_a_member_of_etcd_is_cut_off_from_the_others() -> None:
    with EtcdLab() as lab:
        worker = ProbeWorker(lab, "w1")
        worker.turn()
        injury = lab.apply("partition", chance(worker)._replace(random=Loaded()))
        (name,) = injury.lanes
        alone = lab.places()[name]
        locks = holdfast.connect(f"etcd://127.0.0.1:{alone}", namespace="lab")
        with pytest.raises(holdfast.BackendUnavailable):
            locks.inspect("x")
        worker.turn()  # by way of the others
        injury.heal()
        assert locks.inspect("x").holders == ()
        locks.close()
        worker.end()


def test_a_server_of_zookeeper_is_cut_off_from_the_others() -> None:
    with ZooKeeperLab() as lab:
        worker = ProbeWorker(lab, "w1")
        worker.turn()
        for *_, text in DISTURBANCES:
            dice = Loaded(text)
            injury = lab.apply("partition", chance(worker)._replace(random=dice))
            (name,) = injury.lanes
            assert injury.text == text.format(name)
            if "a third" not in text:
                until(partial(_is_out, lab, name), "the server's notice of it")
            injury.heal()
            assert lab.serves(name)
            worker.turn()
        worker.end()


def _is_out(lab: ZooKeeperLab, name: str) -> bool:
    return not lab.serves(name)


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
