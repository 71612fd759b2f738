"""Servers of the ensemble that are killed, restarted, paused and cut off, with locks held."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.chaos.servers.zookeeper import ZooKeeperEnsemble
from stores import zookeeper, zookeeper_ensemble
from worlds.threads import Job, eventually

LAB = ["unshare", "-Unpf", "--map-current-user", "--keep-caps", "--mount-proc", "--kill-child"]


@pytest.fixture
def ensemble() -> ZooKeeperEnsemble:
    made = zookeeper_ensemble()
    made.ready()
    return made


@pytest.fixture
def url(ensemble: ZooKeeperEnsemble) -> Iterator[str]:
    with zookeeper() as made:
        yield made


class Watched:
    """Locks that are held, each with a rival that waits; nothing of it may change."""

    def __init__(self, url: str, number: int = 5) -> None:
        self.events: list[holdfast.Event] = []
        self.locks = holdfast.connect(url, on_event=self.events.append)
        self.others = holdfast.connect(url)
        self.names = [f"x{one}" for one in range(number)]
        self.leases = [self.locks.lock(name, ttl=20.0).acquire() for name in self.names]
        self.rivals = [Job(self.others.lock(name).acquire) for name in self.names]
        for name in self.names:
            eventually(partial(self._waited_for, name))

    def check(self) -> None:
        """Checks that all locks are still held by the same leases, and the ensemble says so too."""
        for lease in self.leases:
            eventually(partial(self._renewed, lease))
            assert lease.held
            eventually(partial(self._holds, lease))
        assert "lost" not in [event.kind for event in self.events]
        assert not any(rival.done() for rival in self.rivals)

    def _renewed(self, lease: holdfast.Lease) -> bool:
        try:
            lease.renew()
        except holdfast.BackendUnavailable:
            return False  # a connection has just been lost
        return True

    def _holds(self, lease: holdfast.Lease) -> bool:
        try:
            (holder,) = self.others.inspect(lease.name).holders
        except holdfast.BackendUnavailable:
            return False
        return (holder.owner, holder.token) == (lease.owner, lease.token)

    def _waited_for(self, name: str) -> bool:
        return len(self.others.inspect(name).waiters) == 1

    def end(self) -> None:
        for lease, rival in zip(self.leases, self.rivals, strict=True):
            assert lease.release() is True
            assert rival.result().token > lease.token
        self.locks.close()
        self.others.close()


def test_every_server_is_killed_and_restarted_in_turn_and_nothing_is_lost(
    ensemble: ZooKeeperEnsemble, url: str
) -> None:
    watched = Watched(url)
    leader = ensemble.leader()
    for node in [leader, *(one for one in ensemble.nodes if one is not leader)]:
        node.kill()
        try:
            watched.check()  # two of three go on
        finally:
            node.start()
        ensemble.ready()
        watched.check()
    watched.end()


def test_a_leader_that_is_paused_and_comes_back(ensemble: ZooKeeperEnsemble, url: str) -> None:
    leader = ensemble.leader()
    others = [node for node in ensemble.nodes if node is not leader]
    watched = Watched(url)  # some sessions are on this server, some on others
    leader.pause()
    try:
        ensemble.until(lambda: any(node.leads() for node in others))
        watched.check()
    finally:
        leader.resume()
    ensemble.ready()
    watched.check()
    watched.end()


def _waiters(locks: holdfast.Locks) -> int:
    """Returns the number of those who wait; none, if the servers were too slow to say."""
    with suppress(holdfast.BackendUnavailable):
        return len(locks.inspect("x").waiters)
    return 0


def test_slow_disks(ensemble: ZooKeeperEnsemble, url: str) -> None:
    """Makes a majority of the servers take 50 ms for each write: slow, and nothing else."""
    leader = ensemble.leader()
    other = next(node for node in ensemble.nodes if node is not leader)
    with holdfast.connect(url) as locks, holdfast.connect(url) as others:
        locks.lock("x").acquire().release()  # the sessions are made
        others.lock("x").acquire().release()
        with leader.slow_disk(0.05), other.slow_disk(0.05):
            lease = locks.lock("x", ttl=8.0).acquire(timeout=30.0)
            waiter = Job(others.lock("x", ttl=8.0).acquire)
            eventually(lambda: _waiters(locks))
            assert lease.wait_lost(timeout=lease.ttl + 1.0) is False  # it was renewed
            assert lease.release() is True
            assert waiter.result().token > lease.token
            assert leader.slow_writes() > 0
            assert other.slow_writes() > 0


@pytest.fixture(scope="module")
def seen() -> dict[str, Any]:
    """Returns the lab's report."""
    done = subprocess.run(
        [*LAB, sys.executable, "-m", "zookeeper.lab"],
        cwd=Path(__file__).parent.parent,
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    result: dict[str, Any] = json.loads(done.stdout)
    return result


@pytest.mark.parametrize("role", ["follower", "leader"])
def test_a_holder_on_a_server_that_is_cut_off_is_told_before_its_rival_is_granted(
    seen: dict[str, Any], role: str
) -> None:
    scene = seen[role]
    assert scene["held when the rival was granted"] is False
    assert scene["tokens"][0] < scene["tokens"][1]


@pytest.mark.parametrize("world", ["aio", "threads"])
def test_a_forked_child_holds_nothing_and_starts_afresh(url: str, world: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "zookeeper.forking", url, world],
        cwd=Path(__file__).parent.parent,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
