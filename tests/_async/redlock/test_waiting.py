"""A waiter is known to one node, and to none any more once it has the lock or has left."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any, ClassVar

import pytest

from _async.redlock.scenes import LOCK, MAX_TTL, connect
from holdfast import aio as holdfast
from holdfast.chaos.servers.proxy import Proxy
from holdfast.chaos.servers.redlock import RedlockNodes, url_of
from holdfast.entries import Claim
from holdfast.errors import BackendUnavailable
from holdfast.model import GONE, Label, Queued, Renewed, Waiting, new_owner
from holdfast.stores._async.contract import Terms, Ticket
from holdfast.stores.redis.wire.protocol import Late
from holdfast.stores.redlock._async.wakeups import Waiter
from holdfast.stores.redlock.membership import NodeTable
from worlds.aio import Job, eventually
from worlds.stalls import Stalls


async def test_a_node_that_hangs_keeps_no_waiter_from_the_others(nodes: RedlockNodes) -> None:
    """A node that hangs costs its time-out; then the next is asked to wake, and has time to reply."""
    timeout = 3.0
    async with (
        connect(nodes, node_timeout=timeout) as locks,
        connect(nodes, node_timeout=timeout) as others,
    ):
        for some in (locks, others):
            async with some.lock("y", ttl=MAX_TTL):
                pass
        held = await locks.lock("x", ttl=MAX_TTL).acquire()
        # All of them, or the last may give it to the other one first: then two, with one that hangs,
        # are too few to be sure of the release.
        await eventually(lambda: all(node("EXISTS", LOCK) for node in nodes.nodes))
        nodes.nodes[0].pause()
        began = time.monotonic()
        with Stalls() as stalls:
            waiter = Job(others.lock("x", ttl=MAX_TTL).acquire)
            await eventually(lambda: waiter.done() or nodes.nodes[1]("LLEN", "holdfast:{x}:q"))
            took = time.monotonic() - began
        assert took < 1.8 * timeout + stalls.seconds
        assert await held.release() is True
        assert await (await waiter.result()).release() is True
        nodes.nodes[0].resume()


async def test_a_moment_without_a_majority_ends_no_attempt(
    nodes: RedlockNodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection that breaks as the attempt goes into the queue is made again in a moment."""
    async with connect(nodes) as locks, connect(nodes) as others:
        held = await locks.lock("x", ttl=MAX_TTL).acquire()
        await eventually(lambda: all(node("EXISTS", LOCK) for node in nodes.nodes))
        backend: Any = (await others._session()).backend
        real = backend._heartbeat
        beats: list[object] = []

        async def broken(*arguments: Any) -> Any:
            outcome = await real(*arguments)
            if not beats:
                monkeypatch.setattr(NodeTable, "voting_count", lambda self: 1)
            else:
                monkeypatch.setattr(NodeTable, "voting_count", counted)
            beats.append(outcome)
            return outcome

        counted = NodeTable.voting_count
        monkeypatch.setattr(backend, "_heartbeat", broken)
        waiter = Job(others.lock("x", ttl=MAX_TTL).acquire)
        await eventually(lambda: len(beats) > 1 or waiter.done())
        assert isinstance(beats[0], Waiting)
        assert await held.release() is True
        assert await (await waiter.result()).release() is True


async def test_a_release_wakes_also_where_the_lease_never_was(nodes: RedlockNodes) -> None:
    """The node that wakes may have been taken by a round that failed when the lease was granted."""
    async with connect(nodes, heartbeat=60.0) as locks:
        held = await locks.lock("x", ttl=MAX_TTL).acquire()
        await eventually(lambda: all(node("EXISTS", LOCK) for node in nodes.nodes))
        waiter = Job(locks.lock("x", ttl=MAX_TTL).try_acquire, 10.0)
        await eventually(lambda: nodes.nodes[0]("LLEN", "holdfast:{x}:q"))
        nodes.nodes[0]("DEL", LOCK)
        assert await held.release() is True
        assert await waiter.result() is not None


async def queued(backend: Any, name: str) -> Any:
    """Returns a new waiter, as the backend knows it."""
    ticket = Ticket(Terms(name, MAX_TTL, Label("here", 1)), new_owner())
    assert isinstance(await backend.acquire(ticket, backend.clock.now() + 20.0), Queued)
    return backend._waiters[ticket.owner]


async def test_a_heartbeat_that_set_out_before_the_grant_takes_nothing(nodes: RedlockNodes) -> None:
    """The keeper's heartbeat, for a waiter that was granted the lock since, and has released it."""
    async with connect(nodes, node_timeout=5.0) as locks:
        held = await locks.lock("x", ttl=MAX_TTL).acquire()
        backend: Any = (await locks._session()).backend
        waiter = await queued(backend, "x")
        owner, deadline = waiter.ticket.owner, backend.clock.now() + 20.0
        assert await held.release() is True

        async def granted() -> bool:
            return isinstance(
                (await backend.renew([Claim("x", owner, MAX_TTL)], deadline))[0], Renewed
            )

        await eventually(granted)
        assert isinstance(
            await backend._heartbeat(waiter, deadline), Waiting
        )  # held: not lost, not again
        assert await backend.release("x", owner, deadline) is True
        assert isinstance(await backend._heartbeat(waiter, deadline), Waiting)
        keys = [f"{LOCK}:q", LOCK]
        await eventually(lambda: not any(node("EXISTS", *keys) for node in nodes.nodes))


TRYING: Any = vars(Waiter)["trying"]


class Noted(Waiter):
    """A waiter that notes whether it was granted when another heartbeat may try."""

    __slots__ = ()
    granted_then: ClassVar[list[bool]] = []

    @property
    def trying(self) -> bool:
        answer: bool = TRYING.__get__(self)
        return answer

    @trying.setter
    def trying(self, trying: bool) -> None:
        TRYING.__set__(self, trying)
        if not trying:
            self.granted_then.append(self.granted)


async def test_one_at_a_time_tries_for_a_waiter(nodes: RedlockNodes) -> None:
    """Either the waiter itself or the keeper; and the result is known before the other may try."""
    async with connect(nodes, node_timeout=5.0) as locks:
        held = await locks.lock("x", ttl=MAX_TTL).acquire()
        backend: Any = (await locks._session()).backend
        waiter = await queued(backend, "x")
        assert await held.release() is True
        deadline = backend.clock.now() + 20.0
        waiter.trying = True
        assert isinstance(await backend._heartbeat(waiter, deadline), Waiting)
        assert waiter.retry_wanted
        assert not waiter.granted
        waiter.trying = False
        waiter.__class__ = Noted
        Noted.granted_then.clear()

        async def granted() -> bool:
            return isinstance(await backend._heartbeat(waiter, deadline), Renewed)

        await eventually(granted)
        assert Noted.granted_then[-1] is True


async def test_a_node_that_cannot_be_told_that_nobody_waits_is_told_later(
    nodes: RedlockNodes,
) -> None:
    async with connect(nodes, node_timeout=5.0) as locks, locks.lock("x", ttl=MAX_TTL):
        backend: Any = (await locks._session()).backend
        waiter = await queued(backend, "x")
        post, deadline = backend._wire.post, backend.clock.now() + 20.0
        unsent: list[bytes] = []

        def refuse(commands: list[bytes | None], *args: object) -> list[int]:
            unsent.extend(one for one in commands[:1] if one is not None)
            return [0]

        backend._wire.post = refuse
        await backend.release("x", waiter.ticket.owner, deadline)
        backend._wire.post = post
        assert unsent
        await eventually(lambda: not nodes.nodes[0]("EXISTS", f"{LOCK}:q"))
        await eventually(lambda: not backend._undelivered._commands[0])


async def test_a_heartbeat_after_leaving_leaves_nothing(nodes: RedlockNodes) -> None:
    async with connect(nodes, node_timeout=5.0) as locks, locks.lock("x", ttl=MAX_TTL):
        backend: Any = (await locks._session()).backend
        waiter = await queued(backend, "x")
        deadline = backend.clock.now() + 20.0
        register = backend._wakeups.register

        async def overtaken(one: Any, limit: float) -> Any:
            backend._wakeups.register = register
            await backend.release("x", one.ticket.owner, limit)
            one.given_up = False  # the look at it came before
            try:
                return await register(one, limit)
            finally:
                one.given_up = True

        backend._wakeups.register = overtaken
        assert await backend._heartbeat(waiter, deadline) is GONE
        await eventually(lambda: not any(node("EXISTS", f"{LOCK}:q") for node in nodes.nodes))
        assert await backend._heartbeat(waiter, deadline) is GONE
        assert not any(node("EXISTS", f"{LOCK}:q") for node in nodes.nodes)


async def test_a_heartbeat_that_fails_after_leaving_leaves_nothing(nodes: RedlockNodes) -> None:
    """The heartbeat has just moved the waiter to another node when too few are there for a round."""
    options: dict[str, Any] = {"node_timeout": 5.0, "heartbeat": 60.0}
    async with connect(nodes, **options) as locks, locks.lock("x", ttl=MAX_TTL):
        backend: Any = (await locks._session()).backend
        waiter = await queued(backend, "x")
        deadline = backend.clock.now() + 20.0
        backend._wakeups.forget(waiter)
        waiter._heartbeats = 2  # the next one tries a round

        async def failed(one: Any, limit: float, freed: bool) -> Any:
            await backend.release("x", one.ticket.owner, limit)
            one.waking_node = moved.pop()  # the release came before it was known
            raise holdfast.BackendUnavailable("too few nodes")

        register = backend._wakeups.register
        moved: list[Any] = []

        async def attended(one: Any, limit: float) -> Any:
            left = await register(one, limit)
            moved.append(one.waking_node)
            one.waking_node = None
            return left

        backend._wakeups.register, backend._rounds.try_rounds = attended, failed
        with pytest.raises(holdfast.BackendUnavailable):
            await backend._heartbeat(waiter, deadline)
        await eventually(lambda: not any(node("EXISTS", f"{LOCK}:q") for node in nodes.nodes))


async def test_a_request_to_wait_that_arrives_after_its_end_is_refused(nodes: RedlockNodes) -> None:
    """The command that ends the wait travels on another connection, and may overtake the request."""
    options: dict[str, Any] = {"node_timeout": 5.0, "heartbeat": 60.0}
    async with connect(nodes, **options) as locks, locks.lock("x", ttl=MAX_TTL):
        backend: Any = (await locks._session()).backend
        ticket = Ticket(Terms("x", MAX_TTL, Label("here", 1)), new_owner())
        deadline = backend.clock.now() + 20.0
        wire, first = backend._wakeups._wires[0], nodes.nodes[0]
        enqueue = wire.enqueue
        late: list[Any] = []

        async def given_up(*args: Any) -> Any:
            late.extend(args)
            raise KeyboardInterrupt

        wire.enqueue = given_up
        with pytest.raises(KeyboardInterrupt):
            await backend.acquire(ticket, deadline)
        assert await backend.release("x", ticket.owner, deadline) is False
        await eventually(lambda: first("EXISTS", f"{LOCK}:w:{ticket.owner}"))
        assert await enqueue(*late) < 0
        assert first("EXISTS", f"{LOCK}:q") == 0
        assert first("PTTL", f"{LOCK}:w:{ticket.owner}") > 0
        assert (await locks.inspect("x")).waiters == ()


async def test_who_waits_again_where_it_waited_before_stays_there(nodes: RedlockNodes) -> None:
    """Its connection to that node broke, and the next one leads there as well."""
    options: dict[str, Any] = {"node_timeout": 5.0, "heartbeat": 60.0}
    async with connect(nodes, **options) as locks, locks.lock("x", ttl=MAX_TTL):
        backend: Any = (await locks._session()).backend
        waiter = await queued(backend, "x")
        assert waiter.waking_node == 0
        wire = backend._wakeups._wires[0]
        call = wire.call

        async def broken(*args: Any) -> Any:
            wire.call = call
            raise holdfast.BackendUnavailable("the connection broke")

        wire.call = broken
        await backend._heartbeat(waiter, backend.clock.now() + 20.0)
        assert waiter.waking_node == 0
        assert len((await locks.inspect("x")).waiters) == 1  # behind whatever was sent to the node
        assert nodes.nodes[0]("LLEN", f"{LOCK}:q") == 1


async def test_a_node_that_was_too_slow_does_not_keep_the_waiter(nodes: RedlockNodes) -> None:
    """The node may have carried out the request, and would wake a waiter that listens elsewhere."""
    proxy = Proxy(nodes.nodes[0].port)
    try:
        url = url_of([proxy.port, *[node.port for node in nodes.nodes[1:]]])
        options: dict[str, Any] = {"max_ttl": MAX_TTL, "node_timeout": 1.0, "heartbeat": 60.0}
        async with holdfast.connect(url, **options) as locks, locks.lock("x", ttl=MAX_TTL):
            backend: Any = (await locks._session()).backend
            waiter = await queued(backend, "x")
            assert waiter.waking_node == 0
            enqueue = backend._wakeups._wires[1].enqueue

            async def meanwhile(*args: Any) -> Any:
                proxy.swallow = False
                return await enqueue(*args)

            backend._wakeups._wires[1].enqueue = meanwhile
            proxy.swallow = True
            await backend._heartbeat(waiter, backend.clock.now() + 20.0)
            assert waiter.waking_node == 1
            await eventually(lambda: not nodes.nodes[0]("EXISTS", f"{LOCK}:q"))
            assert nodes.nodes[1]("LLEN", f"{LOCK}:q") == 1
    finally:
        proxy.close()


async def test_a_heartbeat_without_any_time_costs_no_waiter_its_place(nodes: RedlockNodes) -> None:
    """Nothing was sent, so no node needs to forget it: all of them would refuse it from then on."""
    options: dict[str, Any] = {"node_timeout": 5.0, "heartbeat": 60.0}
    async with connect(nodes, **options) as locks, locks.lock("x", ttl=MAX_TTL):
        backend: Any = (await locks._session()).backend
        waiter = await queued(backend, "x")
        await backend._heartbeat(waiter, backend.clock.now() - 1.0)
        assert waiter.waking_node == 0
        await backend._heartbeat(waiter, backend.clock.now() + 20.0)
        assert waiter.waking_node == 0


async def test_a_node_that_is_late_leaves_the_next_ones_their_time(nodes: RedlockNodes) -> None:
    """The heartbeats of a crowd have little time. A node that hangs is not asked twice in it."""
    options: dict[str, Any] = {"node_timeout": 60.0, "heartbeat": 60.0}
    async with connect(nodes, **options) as locks, locks.lock("x", ttl=MAX_TTL):
        backend: Any = (await locks._session()).backend
        waiter = await queued(backend, "x")
        deadline = backend.clock.now() + 20.0
        given: list[float] = []

        async def hang(*args: Any) -> Any:
            given.append(args[-1] - backend.clock.now())
            raise Late("it did not answer in time")

        wires = backend._wakeups._wires
        wires[0].call = wires[0].enqueue = wires[1].enqueue = hang
        await backend._heartbeat(waiter, deadline)
        assert len(given) == 2  # the heartbeat, and the request to the next node
        assert max(given) <= 10.0
        assert waiter.waking_node == 2


async def test_who_has_hardly_any_time_left_puts_no_node_out(nodes: RedlockNodes) -> None:
    """The last of many heartbeats, say: its time is over, and the nodes had none to reply."""
    async with connect(nodes) as locks:
        async with locks.lock("x", ttl=MAX_TTL):
            pass
        backend: Any = (await locks._session()).backend
        for node in nodes.nodes:
            node.pause()
        try:
            ticket = Ticket(Terms("x", MAX_TTL, Label("here", 1)), new_owner(), queue=False)
            with suppress(BackendUnavailable):
                await backend.acquire(ticket, backend.clock.now() + 0.05)
            assert backend._table.voting_count() == 3
        finally:
            for node in nodes.nodes:
                node.resume()
        assert (await locks.lock("x", ttl=MAX_TTL).acquire(10.0)).held
