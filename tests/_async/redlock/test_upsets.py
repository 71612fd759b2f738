"""Real nodes that are upset in the middle of something, and clients that are."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from holdfast import aio as holdfast
from servers.redlock import RedlockNodes
from worlds.aio import eventually

MAX_TTL = 20.0
COUNTERS = "holdfast:redlock:counters"


@pytest.fixture
def nodes() -> Iterator[RedlockNodes]:
    made = RedlockNodes(3, "--appendonly", "no")
    try:
        yield made
    finally:
        made.stop()


def connect(nodes: RedlockNodes, **options: Any) -> holdfast.Locks:
    return holdfast.connect(nodes.url, **{"max_ttl": MAX_TTL, "node_timeout": 1.5} | options)


def out_of_step(nodes: RedlockNodes) -> None:
    """Whichever nodes are counted, the next grant needs phase 2."""
    stripe, value = nodes.nodes[0]("HGETALL", COUNTERS)[:2]
    for number, node in enumerate(nodes.nodes):
        node("HSET", COUNTERS, stripe, int(value) + 1000 * (number + 1))


async def test_phase_2_does_not_reach_a_later_run_of_the_server(nodes: RedlockNodes) -> None:
    """A snapshot has the marker and our hold, which may have ended since, and others come after it."""
    async with connect(nodes) as locks:
        async with locks.lock("x", ttl=MAX_TTL):
            pass
        out_of_step(nodes)
        backend: Any = (await locks._session()).backend
        ask = backend._rounds._raise
        stood: list[bool] = []

        async def late(ballot: Any, below: Any, *rest: Any) -> None:
            if not stood:
                for index in below:
                    nodes.nodes[index]("SAVE")
                    nodes.nodes[index].kill()
                    nodes.nodes[index].start()
                    assert nodes.nodes[index]("EXISTS", "holdfast:{x}") == 1
                # unasync: aio-only
                # Blocking code does not notice, and makes its next connections when it needs them.
                seats = [backend._board.seats[index] for index in below]
                await eventually(lambda: all("it has restarted" in seat.out for seat in seats))
                # unasync: end
            await ask(ballot, below, *rest)
            stood.append(ballot.stands())

        backend._rounds._raise = late
        with suppress(holdfast.BackendUnavailable):  # two of three may be out by then
            await locks.lock("x", ttl=MAX_TTL).try_acquire()
        assert stood[0] is False


async def test_one_server_under_two_names_is_refused(nodes: RedlockNodes) -> None:
    """It would have two votes: a majority that no other has to know of."""
    first, second = nodes.nodes[0].port, nodes.nodes[1].port
    url = f"redlock://127.0.0.1:{first},localhost:{first},127.0.0.1:{second}"
    with pytest.raises(holdfast.ConfigError, match="one and the same server") as raised:
        async with holdfast.connect(url, max_ttl=MAX_TTL) as locks:
            await locks.lock("x", ttl=MAX_TTL).acquire()
    assert f"localhost:{first}" in str(raised.value)
    assert nodes.nodes[0]("EXISTS", "holdfast:redlock:marker") == 0


async def test_tries_that_found_it_busy_leave_nothing_behind(nodes: RedlockNodes) -> None:
    """Who asks often would fill the nodes with tombstones: a node that has answered needs none."""
    async with connect(nodes, node_timeout=5.0) as locks, connect(nodes) as others:
        async with locks.lock("x", ttl=MAX_TTL):
            for _ in range(10):
                assert await others.lock("x", ttl=MAX_TTL).try_acquire() is None
            found = [len(node("KEYS", "holdfast:{x}:x:*")) for node in nodes.nodes]
        # A majority has answered each; in blocking code the last node may not have, by then.
        assert sum(found) <= 10
        # unasync: aio-only
        assert found == [0, 0, 0]
        # unasync: end
