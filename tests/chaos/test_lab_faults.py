"""Every lab: it starts, each of its faults does what it says, and is undone; then nothing is left."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from random import Random
from typing import Any

import pytest

from chaos.workers import TTL, ProbeWorker, chance, until
from holdfast.chaos.faults import FAULTS
from holdfast.chaos.labs import LABS, Lab, lab_class, open_lab
from holdfast.chaos.labs.links import LinkedLab
from holdfast.chaos.labs.nodes import NodeLab
from holdfast.chaos.servers.errors import ServerError
from holdfast.chaos.servers.processes import state_of
from holdfast.chaos.tiers import tier

DISK = ("slow-disk", "disk-error")
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


@pytest.fixture(scope="module", params=sorted(LABS))
def lab(request: pytest.FixtureRequest) -> Iterator[Lab]:
    with open_lab(request.param) as opened:
        yield opened
        opened.heal()
        until(lambda: opened.ghosts("lab") == [], "the end of all leases")


@pytest.fixture
def worker(lab: Lab) -> Iterator[ProbeWorker]:
    made = ProbeWorker(lab, "w1")
    made.turn()
    yield made
    made.end()
    lab.heal()


def on_labs_with(*faults: str) -> pytest.MarkDecorator:
    """Runs a test on each lab that has these faults."""
    names = [name for name in sorted(LABS) if set(faults) <= set(lab_class(name).possible)]
    return pytest.mark.parametrize("lab", names, indirect=True, scope="module")


class Loaded(Random):
    """Dice that fall on the choice with these words in it, and else on the first one."""

    def __init__(self, words: str) -> None:
        super().__init__(0)
        self._words = words

    def random(self) -> float:
        return 0.0

    def choice(self, every: Any) -> Any:
        return next((one for one in every if self._words in str(one)), every[0])


def test_a_fault_that_a_lab_cannot_do_is_refused(lab: Lab, worker: ProbeWorker) -> None:
    for fault in set(FAULTS) - set(lab.possible):
        with pytest.raises(ValueError, match="cannot be done here"):
            lab.apply(fault, chance(worker))
    with pytest.raises(ValueError, match="unknown fault 'flood'"):
        lab.apply("flood", chance(worker))


@on_labs_with("pause")
def test_pause(lab: Lab, worker: ProbeWorker) -> None:
    injury = lab.apply("pause", chance(worker))
    assert injury.lanes == ("w1",)
    assert state_of(worker.pid) == "T"
    injury.heal()
    injury.heal()  # does no harm
    worker.turn()


@on_labs_with("holder-crash")
def test_holder_crash(lab: Lab, worker: ProbeWorker) -> None:
    injury = lab.apply("holder-crash", chance(worker))
    assert worker.process.wait(10) == -9
    assert injury.killed == ("w1",)


@on_labs_with("partition")
def test_a_worker_is_cut_off(lab: Lab, worker: ProbeWorker) -> None:
    cut_off(lab, worker, "is cut off from the store")


@pytest.mark.parametrize("words", ["sends arrives", "answers arrives"])
@pytest.mark.parametrize("lab", ["redis"], indirect=True, scope="module")
def test_a_worker_is_cut_off_in_one_direction(lab: Lab, worker: ProbeWorker, words: str) -> None:
    cut_off(lab, worker, words)  # the proxies are the same on every store


def cut_off(lab: Lab, worker: ProbeWorker, words: str) -> None:
    """Cuts a worker off, in the way that has these words; another one is not, nor is it afterwards."""
    assert isinstance(lab, LinkedLab)
    injury = lab.apply("partition", chance(worker)._replace(random=Loaded(words)))
    assert words in injury.text
    assert injury.lanes == ("w1",)
    links = lab.links_of("w1").values()
    assert all(link.holds for link in links)
    other = ProbeWorker(lab, "w2")  # which is not
    other.turn()
    other.end()
    worker.tell("take")
    said = None if worker.silent else worker.hear()  # on a busy machine it has given up already
    assert not isinstance(said, int)
    injury.heal()
    assert not any(link.holds for link in links)
    if said is None and isinstance(worker.hear(), int):
        worker.ask("give")
    worker.turn()


@on_labs_with("delay")
def test_a_request_arrives_late(lab: Lab, worker: ProbeWorker) -> None:
    injury = lab.apply("delay", chance(worker))
    assert injury.lanes == ("w1",)
    if isinstance(lab, LinkedLab):
        links = lab.links_of("w1").values()
        worker.tell("take")
        until(lambda: any(link.kept for link in links), "the keeping of a request")
        injury.heal()
        assert not any(link.kept or link.keep_once for link in links)
        if isinstance(worker.hear(), int):
            worker.ask("give")
    worker.turn()


@on_labs_with("lost-reply")
def test_a_reply_is_lost(lab: Lab, worker: ProbeWorker) -> None:
    assert isinstance(lab, LinkedLab)
    links = lab.links_of("w1").values()
    injury = lab.apply("lost-reply", chance(worker))
    worker.tell("take")
    until(lambda: not all(link.mute_once for link in links), "a request without a reply")
    injury.heal()
    assert not any(link.mute_once for link in links)
    if isinstance(worker.hear(), int):
        worker.ask("give")
    worker.turn()


@on_labs_with("reset")
def test_connections_are_reset(lab: Lab, worker: ProbeWorker) -> None:
    assert isinstance(lab, LinkedLab)
    links = lab.links_of("w1").values()
    injury = lab.apply("reset", chance(worker))
    worker.tell("take")
    until(lambda: not all(link.reset_once for link in links), "the reset after a request")
    injury.heal()
    if isinstance(worker.hear(), int):
        worker.ask("give")
    worker.turn()


@on_labs_with("store-pause")
def test_a_node_stands_still(lab: Lab, worker: ProbeWorker) -> None:
    assert isinstance(lab, NodeLab)
    injury = lab.apply("store-pause", chance(worker))
    (node,) = [one for one in lab.servers if one.name in injury.lanes]
    assert {state_of(pid) for pid in node.pids()} == {"T"}
    injury.heal()
    assert "T" not in {state_of(pid) for pid in node.pids()}
    worker.turn()


@on_labs_with("store-crash")
def test_a_node_is_killed_and_has_its_data_again(lab: Lab, worker: ProbeWorker) -> None:
    before = worker.turn()
    injury = lab.apply("store-crash", chance(worker))
    if isinstance(lab, NodeLab):
        (node,) = [one for one in lab.servers if one.name in injury.lanes]
        assert not node.lives
        injury.heal()
        assert node.lives
    injury.heal()
    assert worker.turn() > before


@on_labs_with("amnesia")
def test_a_node_comes_back_without_its_data(lab: Lab, worker: ProbeWorker) -> None:
    assert isinstance(worker.ask("take"), int)
    injury = lab.apply("amnesia", chance(worker))
    injury.heal()
    lab.wait_ready()
    if len(lab.nodes) == 1:
        assert lab.ghosts("lab") == [], "the holder was not forgotten"
    else:
        assert len(lab.ghosts("lab")) == 1, "the others have forgotten the holder"
    worker.ask("give")
    worker.turn()


@on_labs_with("clock")
def test_a_clock_is_stepped(lab: Lab, worker: ProbeWorker) -> None:
    if lab.name == "etcd" and not tier("vdso").available:  # as on another processor
        with pytest.raises(ValueError, match="cannot be done here"):
            lab.apply("clock", chance(worker))
        return
    injury = lab.apply("clock", chance(worker))
    worker.turn()
    injury.heal()
    worker.turn()


@pytest.mark.parametrize("lab", ["mysql", "postgresql"], indirect=True, scope="module")
def test_a_server_that_ends_as_its_clock_jumps_is_started_again(
    lab: Lab, worker: ProbeWorker
) -> None:
    assert isinstance(lab, NodeLab)
    injury = lab.apply("clock", chance(worker))
    (node,) = lab.servers
    node.kill()
    with pytest.raises(ServerError, match="ended without being told to"):
        lab.apply("store-pause", chance(worker))
    injury.heal()
    worker.turn()
    node.kill()  # a moment after that
    lab.apply("clock", chance(worker))
    worker.turn()
    node.kill()
    lab.heal()
    worker.turn()


@pytest.mark.parametrize("fault", DISK)
@on_labs_with(*DISK)
def test_a_disk_is_slow_or_fails(lab: Lab, worker: ProbeWorker, fault: str) -> None:
    other = ProbeWorker(lab, "w2")
    other.turn()
    injury = lab.apply(fault, chance(worker))
    worker.tell("take")
    other.tell("take")
    assert injury.count is not None
    until(injury.count, "a system call to which something was done")
    injury.heal()
    assert not injury.missed
    assert injury.count() > 0  # it is still known
    for one in (worker, other):
        if isinstance(one.hear(), int):
            one.ask("give")
    other.end()
    worker.turn()


@on_labs_with("kill-at-call")
def test_a_worker_is_killed_at_a_call(lab: Lab, worker: ProbeWorker) -> None:
    injury = lab.apply("kill-at-call", chance(worker))
    with suppress(BrokenPipeError):
        for _ in range(20):
            worker.tell("take")
            worker.tell("give")
    assert worker.process.wait(30) == -9
    injury.heal()
    assert not injury.missed
    assert injury.killed == ("w1",)


@pytest.mark.parametrize("fault", [*DISK, "kill-at-call", "lost-reply"])
@pytest.mark.parametrize("lab", ["redis"], indirect=True, scope="module")
def test_a_fault_that_hit_nothing_says_so(lab: Lab, worker: ProbeWorker, fault: str) -> None:
    """The worker does nothing meanwhile, and so the server has nothing to write."""
    until(lambda: lab.ghosts("lab") == [], "the end of all leases")
    worker.end()
    idle = ProbeWorker(lab, "w3")  # which has not connected yet
    assert idle.ask("give") is False  # but has started: it reads nothing any more
    injury = lab.apply(fault, chance(idle))
    injury.heal()
    assert injury.missed
    assert injury.killed == ()
    idle.turn()  # it lives
    idle.end()


def test_faults_are_drawn_from_the_seed() -> None:
    with open_lab("redis") as one:
        texts = [
            [one.duration(fault, chance(seed=7)) for fault in FAULTS],
            [one.duration(fault, chance(seed=7)) for fault in FAULTS],
        ]
    assert texts[0] == texts[1]
    assert all(0 <= length <= 2 * TTL for length in texts[0])
