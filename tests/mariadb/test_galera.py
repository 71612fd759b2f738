"""Two servers of a Galera cluster: grants of both at once are a conflict at the commit."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

import holdfast
from servers.galera import GaleraNode
from worlds.threads import Job


@pytest.fixture(scope="module")
def nodes() -> Iterator[tuple[GaleraNode, GaleraNode]]:
    first = GaleraNode()
    try:
        second = GaleraNode(first)
        yield first, second
        second.stop()
    finally:
        first.stop()


def conflicts(node: GaleraNode) -> int:
    """Returns how many transactions were given up because of the other server's."""
    with node.connect() as connection, connection.cursor() as cursor:
        cursor.execute(
            "SELECT SUM(variable_value) FROM information_schema.global_status WHERE variable_name IN "
            "('WSREP_LOCAL_CERT_FAILURES', 'WSREP_LOCAL_BF_ABORTS')"
        )
        ((number,),) = cursor.fetchall()
    return int(number)


def test_locks_of_both_servers_are_one(nodes: tuple[GaleraNode, GaleraNode]) -> None:
    inside: list[int] = []
    tokens: list[int] = []
    enough, until = threading.Event(), time.monotonic() + 15.0

    def contend(url: str) -> None:
        with holdfast.connect(url) as locks:
            while not enough.is_set():
                with locks.lock("x", ttl=10.0, timeout=30.0) as lease:
                    inside.append(1)
                    assert len(inside) == 1
                    assert not tokens or lease.token > tokens[-1]
                    tokens.append(lease.token)
                    inside.pop()
                if len(tokens) >= 50 and sum(map(conflicts, nodes)) > 2:
                    enough.set()
                elif time.monotonic() > until:
                    enough.set()  # conflicts are rare where the machine has other things to do

    jobs = [Job(contend, node.url) for node in (*nodes, *nodes)]
    for job in jobs:
        job.result()
    assert tokens == sorted(set(tokens))


def test_a_lock_that_is_held_on_one_server_is_held_on_the_other(
    nodes: tuple[GaleraNode, GaleraNode],
) -> None:
    first, second = nodes
    with holdfast.connect(first.url) as locks, holdfast.connect(second.url) as others:
        lease = locks.lock("y").acquire()
        waiter = Job(others.lock("y").acquire)
        while not locks.inspect("y").waiters:
            assert not waiter.done()
        assert lease.release() is True
        assert waiter.result().token > lease.token
