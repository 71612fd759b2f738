"""Holders and waiters in processes of their own: forked, killed, frozen; members with slow disks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import holdfast
from holdfast.chaos.servers.etcd import EtcdCluster
from stores import etcd_cluster
from worlds.threads import Job, eventually

TESTS = Path(__file__).parents[1]


@pytest.fixture
def cluster() -> EtcdCluster:
    cluster = etcd_cluster()
    cluster.wipe()
    return cluster


@contextmanager
def scene(name: str, url: str) -> Iterator[subprocess.Popen[str]]:
    environment = {**os.environ, "PYTHONPATH": str(TESTS)}
    command = [sys.executable, "-m", "etcd_processes.scenes", name, url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("world", ["blocking", "aio"])
def test_fork(cluster: EtcdCluster, world: str) -> None:
    with scene(world, cluster.url) as process:
        assert process.wait(timeout=170.0) == 0


def test_children_of_a_parent_whose_threads_are_busy(cluster: EtcdCluster) -> None:
    with scene("busy", cluster.url) as process:
        assert process.wait(timeout=170.0) == 0


def test_a_signal_handler_that_raises_leaves_nobody_stuck(cluster: EtcdCluster) -> None:
    with scene("interrupted", cluster.url) as process:
        assert process.wait(timeout=170.0) == 0
        assert process.stdout is not None
        assert int(process.stdout.read()) > 50


def test_a_killed_holder_makes_room_when_its_ttl_is_over(cluster: EtcdCluster) -> None:
    with holdfast.connect(cluster.url) as locks, scene("hold", cluster.url) as process:
        assert process.stdout is not None
        token = int(process.stdout.readline())
        waiter = Job(locks.lock("x").acquire)
        eventually(lambda: locks.inspect("x").waiters or waiter.done())
        process.kill()
        assert waiter.result().token > token


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_dead_or_frozen_waiter_is_passed_over(
    cluster: EtcdCluster, number: signal.Signals
) -> None:
    """Its place, and a lock that was handed to it, last for its claim window, not for its TTL."""
    with holdfast.connect(cluster.url) as locks:
        lease = locks.lock("x").acquire()
        with scene("wait", cluster.url) as process:
            _passed_over(locks, lease, process, number)


def _passed_over(
    locks: holdfast.Locks,
    lease: holdfast.Lease,
    process: subprocess.Popen[str],
    number: signal.Signals,
) -> None:
    eventually(lambda: locks.inspect("x").waiters)
    behind = Job(locks.lock("x").acquire)
    eventually(lambda: len(locks.inspect("x").waiters) == 2)
    process.send_signal(number)
    lease.release()
    assert behind.result().token > lease.token


def test_slow_disks(tmp_path: Path) -> None:
    """Each write to the disk takes 50 ms: slow, and nothing else."""
    slow = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace=fdatasync"]
    cluster = EtcdCluster(wrapper=[*slow, "-e", "inject=fdatasync:delay_enter=50000"], hasty=False)
    try:
        with holdfast.connect(cluster.url) as locks, holdfast.connect(cluster.url) as others:
            lease = locks.lock("x", ttl=3.0).acquire()
            waiter = Job(others.lock("x").acquire)
            eventually(lambda: locks.inspect("x").waiters)
            events: list[holdfast.Event] = []
            locks.on_event(events.append)
            eventually(lambda: len(events) >= 2)
            assert {event.kind for event in events} == {"renewed"}
            assert lease.release() is True
            assert waiter.result().token > lease.token
    finally:
        cluster.stop()
