"""Packets that are cut off, lost or overtaken: every lab whose workers reach it by a network."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pytest

from chaos.workers import ProbeWorker, chance, until
from holdfast.chaos import tiers
from holdfast.chaos.campaign import Campaign
from holdfast.chaos.labs import LABS, Injury, Lab, lab_class, open_lab
from holdfast.chaos.labs.links import CUTS, LinkedLab
from holdfast.chaos.labs.nodes import NodeLab
from holdfast.chaos.labs.sentinel import SentinelLab
from holdfast.chaos.labs.zookeeper import ZooKeeperLab
from holdfast.chaos.setup import Setup
from holdfast.cli.arguments import UsageError
from holdfast.cli.chaos.request import Request

WORKER, NODE = 0.0, 0.9
"""Where the dice fall if a worker is cut off, or a node."""
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


class Loaded(Random):
    """Dice that fall on these numbers first, and on the choice with these words in it."""

    def __init__(self, words: str, *numbers: float) -> None:
        super().__init__(0)
        self._words = words
        self._numbers = list(numbers)

    def random(self) -> float:
        return self._numbers.pop(0) if self._numbers else 0.9

    def choice(self, every: Any) -> Any:
        return next((one for one in every if self._words in str(one)), every[0])


@pytest.fixture(scope="module", params=sorted(n for n in LABS if "cut" in lab_class(n).possible))
def lab(request: pytest.FixtureRequest) -> Iterator[LinkedLab]:
    with open_lab(request.param, "cut") as opened:
        assert isinstance(opened, LinkedLab)
        yield opened
        opened.heal()
        until(lambda: opened.ghosts("lab") == [], "the end of all leases")


@pytest.fixture
def workers(lab: Lab) -> Iterator[tuple[ProbeWorker, ProbeWorker]]:
    made = ProbeWorker(lab, "w1"), ProbeWorker(lab, "w2")
    for one in made:
        one.turn()
    yield made
    for one in made:
        one.end()
    lab.heal()


on_redis = pytest.mark.parametrize("lab", ["redis"], indirect=True, scope="module")


def heal(injury: Injury) -> None:
    """Mends what was broken, once it has hit something."""
    assert injury.count is not None
    until(injury.count, "a packet to which something was done")
    injury.heal()
    assert not injury.missed


def related(name: str) -> bool:
    return bool(getattr(lab_class(name), "related", False))


def test_every_store_with_a_network_has_such_a_lab() -> None:
    others = {name for name in LABS if "cut" not in lab_class(name).possible}
    assert others == {"sqlite", "redis+replica", "postgresql+standby", "mysql+replica"}


def test_a_worker_is_cut_off(lab: LinkedLab, workers: tuple[ProbeWorker, ProbeWorker]) -> None:
    cut_off(lab, workers, "passes between")


@pytest.mark.parametrize("words", ["no packet of", "no packet arrives at"])
@on_redis
def test_a_worker_is_cut_off_in_one_direction(
    lab: LinkedLab, workers: tuple[ProbeWorker, ProbeWorker], words: str
) -> None:
    cut_off(lab, workers, words)


def cut_off(lab: LinkedLab, workers: tuple[ProbeWorker, ProbeWorker], words: str) -> None:
    """Cuts the first worker off; the other one is not, nor is the first one afterwards."""
    worker, other = workers
    injury = lab.apply("cut", chance(*workers)._replace(random=Loaded(words, WORKER)))
    assert injury.lanes == ("w1",)
    assert words in injury.text
    assert "the store" in injury.text
    worker.tell("take")
    other.turn()
    said = None if worker.silent else worker.hear()  # on a busy machine it has given up already
    assert not isinstance(said, int)
    heal(injury)
    if said is None and isinstance(worker.hear(), int):
        worker.ask("give")
    worker.turn()


def test_packets_are_lost_and_overtaken(
    lab: LinkedLab, workers: tuple[ProbeWorker, ProbeWorker]
) -> None:
    injury = lab.apply("loss", chance(*workers)._replace(random=Loaded("third", WORKER)))
    assert "a third is lost" in injury.text
    for one in workers:
        one.turn()
    heal(injury)
    workers[0].turn()


@pytest.mark.parametrize("lab", sorted(filter(related, LABS)), indirect=True, scope="module")
def test_a_node_is_cut_off_from_the_others(
    lab: LinkedLab, workers: tuple[ProbeWorker, ProbeWorker]
) -> None:
    """What is special to each store: who sees that, and who still serves."""
    for *_, text in CUTS:
        dice = Loaded(text, NODE)
        before = lab.primary if isinstance(lab, SentinelLab) else None
        injury = lab.apply("cut", chance(*workers)._replace(random=dice))
        (name,) = injury.lanes
        assert injury.text == text.format(name, "the other nodes")
        assert name in lab.nodes
        if isinstance(lab, ZooKeeperLab):
            until(_not(lab.serves, name), "the server's notice of it")
        if isinstance(lab, NodeLab):
            workers[0].turn()  # by way of the others
        heal(injury)
        if isinstance(lab, SentinelLab):
            assert lab.primary is not before
        workers[0].turn()


def _not(ask: Callable[[str], bool], name: str) -> Callable[[], bool]:
    return lambda: not ask(name)


@on_redis
def test_a_server_is_cut_off_from_all_workers(
    lab: LinkedLab, workers: tuple[ProbeWorker, ProbeWorker]
) -> None:
    dice = Loaded("passes between", NODE)
    injury = lab.apply("cut", chance(*workers)._replace(random=dice))
    assert injury.text == "no packet passes between redis and the workers"
    for one in workers:
        one.tell("take")
    assert lab.ghosts("lab") == []  # the conductor is never cut off
    injury.heal()
    waiting = set(workers)
    while waiting:
        until(lambda: any(not one.silent for one in waiting), "an answer")
        for one in [one for one in waiting if not one.silent]:
            waiting.remove(one)
            if isinstance(one.hear(), int):
                one.ask("give")  # the other one waits for it
    for one in workers:
        one.turn()


@on_redis
def test_a_worker_in_a_room_has_no_links(lab: LinkedLab, workers: tuple[ProbeWorker, ...]) -> None:
    with pytest.raises(ValueError, match="have no links"):
        lab.apply("partition", chance(*workers))
    with open_lab("redis") as plain, pytest.raises(ValueError, match="rooms of their own"):
        plain.apply("cut", chance(*workers))


@pytest.mark.parametrize("fault", ["cut", "loss"])
def test_a_run(fault: str) -> None:
    setup = Setup("redis", fault, 3, duration=3.0, workers=3)
    (run,) = Campaign([setup], lambda *_: None).run()
    assert run["passed"], run
    assert run["figures"]["faults"] >= 1
    assert run["figures"]["grants"] > 3


def test_without_namespaces_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    why = "there are no network namespaces for us here: unshare failed"
    known = tiers.tier

    def tier(name: str) -> tiers.Tier:
        return tiers.Tier(name, False, why) if name == "namespaces" else known(name)

    monkeypatch.setattr(tiers, "tier", tier)
    with pytest.raises(UsageError, match="cut can be done to none of these stores here: .*" + why):
        Request({"--faults": "cut,pause"})
    request = Request({"--backend": "redis"})
    assert not {setup.fault for setup in request.setups} & {"cut", "loss"}
    text = "workers in a network of their own would not reach your store"
    with pytest.raises(UsageError, match=text):
        Request({"--url": "redis://127.0.0.1:1", "--faults": "cut"})
