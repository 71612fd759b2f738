"""A release on all nodes: what the caller is told, and what nodes are told later that missed it."""

from __future__ import annotations

from typing import Any

import pytest

from _async.redlock.scenes import LOCK
from holdfast import aio as holdfast
from holdfast.chaos.servers.proxy import Proxy
from holdfast.chaos.servers.redlock import RedlockNodes, url_of
from worlds.aio import eventually

TTL = 600.0
"""A TTL so long that nothing here ends by itself."""


def connect(url: str) -> holdfast.Locks:
    return holdfast.connect(url, max_ttl=TTL, node_timeout=1.5)


async def held_by_all(locks: holdfast.Locks, nodes: RedlockNodes) -> holdfast.Lease:
    lease = await locks.lock("x", ttl=TTL).acquire()
    await eventually(lambda: all(node("EXISTS", LOCK) for node in nodes.nodes))
    return lease


async def test_one_node_without_the_hold_does_not_decide(nodes: RedlockNodes) -> None:
    async with connect(nodes.url) as locks:
        for node in nodes.nodes:  # whichever answers first
            lease = await held_by_all(locks, nodes)
            node("DEL", LOCK)
            assert await lease.release() is True
            await eventually(lambda: not any(one("EXISTS", LOCK) for one in nodes.nodes))


async def test_what_is_not_sure_is_said_and_can_be_tried_again(nodes: RedlockNodes) -> None:
    """One has freed it, one did not have it, and one does not answer: was it still held?"""
    async with connect(nodes.url) as locks:
        lease = await held_by_all(locks, nodes)
        backend: Any = (await locks._session()).backend
        nodes.nodes[0]("DEL", LOCK)
        nodes.nodes[2].pause()
        try:
            with pytest.raises(holdfast.BackendUnavailable, match="too few nodes to be sure"):
                await lease.release()
        finally:
            nodes.nodes[2].resume()
        assert lease.owner in backend._held_rounds  # it is still known on which nodes that was
        await eventually(lambda: not any(node("EXISTS", LOCK) for node in nodes.nodes))


async def test_nodes_that_vote_and_do_not_answer_in_time_are_called_slow(
    nodes: RedlockNodes,
) -> None:
    """As on a machine with much to do: none is out, and too few votes are not what was missing."""
    async with connect(nodes.url) as locks:
        lease = await held_by_all(locks, nodes)
        backend: Any = (await locks._session()).backend
        fan_out = backend._wire.fan_out

        async def one_answers(commands: Any, on_reply: Any, *args: Any, **options: Any) -> Any:
            on_reply(0, 1)
            return []

        backend._wire.fan_out = one_answers
        with pytest.raises(holdfast.BackendUnavailable) as caught:
            await lease.release()
        backend._wire.fan_out = fan_out
        assert "(1 freed it, 0 did not have it)" in str(caught.value)
        assert "2 of 3 nodes have to answer, each within the node_timeout of 1.5 s" in str(
            caught.value
        )
        assert "vote" not in str(caught.value)
        assert await lease.release() is True


async def test_a_node_that_was_not_told_is_told_when_it_is_back(nodes: RedlockNodes) -> None:
    """The node misses the release, or is known to be out. No waiter has to wait there for the TTL."""
    proxy = Proxy(nodes.nodes[2].port)
    try:
        url = url_of([*[node.port for node in nodes.nodes[:2]], proxy.port])
        async with connect(url) as locks:
            backend: Any = (await locks._session()).backend
            table = backend._table
            for known in (False, True):
                lease = await held_by_all(locks, nodes)
                proxy.deaf = True
                if known:
                    table.report_failure(2, "for a test")
                assert await lease.release() is True
                assert nodes.nodes[2]("EXISTS", LOCK) == 1
                proxy.hang_up()  # and so what was sent is gone
                proxy.deaf = False

                async def freed() -> bool:
                    async with locks.lock("y", ttl=TTL):  # in blocking code the next one notices
                        pass
                    return not nodes.nodes[2]("EXISTS", LOCK) and table.voting_count() == 3

                await eventually(freed)
    finally:
        proxy.close()


async def test_what_a_node_is_owed_is_not_forgotten_before_it_has_answered(
    nodes: RedlockNodes,
) -> None:
    """The node votes again and is told; but on a connection that breaks, or has broken unnoticed."""
    proxy = Proxy(nodes.nodes[2].port)
    try:
        url = url_of([*[node.port for node in nodes.nodes[:2]], proxy.port])
        async with connect(url) as locks:
            backend: Any = (await locks._session()).backend
            lease = await held_by_all(locks, nodes)
            proxy.refuse = True
            proxy.hang_up()
            backend._table.report_failure(2, "for a test")
            assert await lease.release() is True
            proxy.about, proxy.keep_once = LOCK.encode(), True
            proxy.refuse = False

            async def freed() -> bool:
                async with locks.lock("y", ttl=TTL):  # in blocking code the next one notices
                    pass
                # It was told, and that got lost; and so it was told again.
                return not proxy.keep_once and not nodes.nodes[2]("EXISTS", LOCK)

            await eventually(freed)
    finally:
        proxy.close()


async def test_a_node_that_was_out_all_the_time_is_owed_nothing(nodes: RedlockNodes) -> None:
    """Otherwise a node would not be told what it has missed, after a thousand other commands."""
    async with connect(nodes.url) as locks:
        backend: Any = (await locks._session()).backend
        lease = await held_by_all(locks, nodes)
        nodes.nodes[2].kill()

        async def noticed() -> bool:
            async with locks.lock("z", ttl=TTL):
                pass
            return bool(backend._table.voting_count() == 2)

        await eventually(noticed)
        for _ in range(3):
            async with locks.lock("y", ttl=TTL):
                pass
        assert await lease.release() is True
        undelivered = b"".join(backend._undelivered._commands[2])
        assert b"{x}" in undelivered
        assert b"{y}" not in undelivered


async def test_one_of_which_nothing_is_known_here_is_given_back_all_the_same(
    nodes: RedlockNodes,
) -> None:
    """The release of a manager that has forgotten the lease: by the owner's id, on every node."""
    async with connect(nodes.url) as others, connect(nodes.url) as locks:
        lease = await held_by_all(others, nodes)
        backend: Any = (await locks._session()).backend
        assert await backend.release("x", lease.owner, backend.clock.now() + 10.0) is True
        await eventually(lambda: not any(node("EXISTS", LOCK) for node in nodes.nodes))


async def test_who_gave_up_is_forgotten(nodes: RedlockNodes) -> None:
    async with connect(nodes.url) as others, connect(nodes.url) as locks:
        await others.lock("x", ttl=TTL).acquire()
        assert await locks.lock("x", ttl=TTL).try_acquire(timeout=0.5) is None
        backend: Any = (await locks._session()).backend
        await eventually(lambda: not backend._waiters and not backend._held_rounds)
