"""Faults of real nodes and of clients, in the middle of something."""

from __future__ import annotations

import time
from contextlib import suppress

# unasync: aio-only
from functools import partial

# unasync: end
from typing import Any

import pytest

from _async.redlock.scenes import LOCK, MAX_TTL, connect
from holdfast import aio as holdfast
from holdfast.chaos.servers.proxy import Proxy
from holdfast.chaos.servers.redlock import RedlockNodes, url_of
from holdfast.entries import Claim
from holdfast.model import UNKNOWN, Gone, Renewed
from holdfast.stores.redis.wire.protocol import pack
from holdfast.stores.redlock._async.rejoin import Rejoin
from holdfast.stores.redlock.membership import read_known, read_marker, run_id_of
from worlds.aio import eventually
from worlds.stalls import Stalls

COUNTERS = "holdfast:redlock:counters"
MARKER = "holdfast:redlock:marker"
BEGINNING = "holdfast:redlock:beginning"


def out_of_step(nodes: RedlockNodes) -> None:
    """Raises counters so that the next grant needs phase 2, whichever nodes are counted."""
    counter = nodes.nodes[0]("LINDEX", COUNTERS, 0)
    value = nodes.nodes[0]("GET", counter)
    for number, node in enumerate(nodes.nodes):
        node("SET", counter, int(value) + 1000 * (number + 1))


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
                states = [backend._table.nodes[index] for index in below]
                await eventually(
                    lambda: all("it has restarted" in state.out_reason for state in states)
                )
                # unasync: end
            await ask(ballot, below, *rest)
            stood.append(ballot.stands())

        backend._rounds._raise = late
        with suppress(holdfast.BackendUnavailable):  # two of three may be out by then
            await locks.lock("x", ttl=MAX_TTL).try_acquire()
        assert stood[0] is False


async def test_one_server_under_two_names_is_refused(nodes: RedlockNodes) -> None:
    """The server would have two votes: a majority that no other node has to know of."""
    first, second = nodes.nodes[0].port, nodes.nodes[1].port
    url = f"redlock://127.0.0.1:{first},localhost:{first},127.0.0.1:{second}"
    with pytest.raises(holdfast.ConfigError, match="are the same server") as raised:
        async with holdfast.connect(url, max_ttl=MAX_TTL) as locks:
            await locks.lock("x", ttl=MAX_TTL).acquire()
    assert f"localhost:{first}" in str(raised.value)
    assert nodes.nodes[0]("EXISTS", MARKER) == 0


async def test_tries_that_found_it_busy_leave_nothing_behind(nodes: RedlockNodes) -> None:
    """A client that tries often would fill the nodes with tombstones: not one that has replied."""
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


async def test_a_first_start_that_was_interrupted_is_completed(
    nodes: RedlockNodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One node votes already: too few to bring the others back by reading."""
    admit = Rejoin._admit
    marked: list[list[int]] = []

    async def interrupted(self: Any, state: Any, *rest: Any) -> None:
        if len(marked) == 1:
            marked.append([node("EXISTS", MARKER) for node in nodes.nodes])
            raise holdfast.BackendUnavailable("for a test")
        marked.append([])
        await admit(self, state, *rest)

    monkeypatch.setattr(Rejoin, "_admit", interrupted)
    async with connect(nodes) as locks:
        lease = await locks.lock("x", ttl=MAX_TTL).acquire(timeout=15.0)
        assert await lease.release() is True
        await eventually(lambda: all(node("EXISTS", MARKER) for node in nodes.nodes))
    assert marked[1] == [1, 0, 0]


async def test_a_node_that_has_restarted_is_not_read_for_another(nodes: RedlockNodes) -> None:
    """Its snapshot's marker names the incarnation in which it last voted, and its counters are old."""
    async with connect(nodes) as locks:
        async with locks.lock("x", ttl=MAX_TTL):
            pass
        backend: Any = (await locks._session()).backend
        table, recovery = backend._table, backend._recovery
        node = nodes.nodes[1]
        was = table.nodes[1].incarnation
        node("SAVE")
        node.kill()
        node.start()
        table.report_failure(1, "for a test")  # it is looked after, and so reached, and waits
        await eventually(lambda: "it has restarted" in table.nodes[1].out_reason)
        table.nodes[1].incarnation = was  # somebody has looked before this was known
        replies = await recovery._rejoin._seal(table.nodes[0], table.nodes[1:], 0)
        assert [reply.name for reply in replies] == [table.nodes[2].name]


async def test_a_node_that_hangs_does_not_keep_us_from_closing(nodes: RedlockNodes) -> None:
    locks = connect(nodes, node_timeout=3.0)
    async with locks.lock("x", ttl=MAX_TTL):
        pass
    backend: Any = (await locks._session()).backend
    state = backend._table.nodes[2]
    nodes.nodes[2].pause()
    state.put_out("for a test")
    backend._recovery.look_after()  # somebody asks it now, and has four times the time-out for that
    await eventually(lambda: 2 in backend._recovery._routines)
    began = time.monotonic()
    with Stalls() as stalls:
        await locks.close()
    took = time.monotonic() - began
    nodes.nodes[2].resume()
    assert took < 6.0 + stalls.seconds


async def test_what_a_minority_still_holds_is_not_held(nodes: RedlockNodes) -> None:
    async with connect(nodes, node_timeout=5.0) as locks:

        async def all_hold() -> bool:
            return all(node("EXISTS", "holdfast:{x}") for node in nodes.nodes)

        lease = await locks.lock("x", ttl=MAX_TTL).acquire()
        await eventually(all_hold)
        for node in nodes.nodes[:2]:
            node("DEL", "holdfast:{x}")
        assert await lease.release() is False
        lease = await locks.lock("x", ttl=MAX_TTL).acquire()
        await eventually(all_hold)
        for node in nodes.nodes[:2]:
            node("DEL", "holdfast:{x}")
        with pytest.raises(holdfast.LeaseLost):
            await lease.renew()
        # And nobody has to wait for what a minority has.
        await eventually(lambda: not nodes.nodes[2]("EXISTS", "holdfast:{x}"))


async def test_a_node_that_was_not_there_counts_as_one_without_a_hold(nodes: RedlockNodes) -> None:
    """So a lease that cannot have a majority any more is known to be lost, and not only uncertain."""
    async with connect(nodes) as locks:
        async with locks.lock("y", ttl=MAX_TTL):
            pass
        backend: Any = (await locks._session()).backend
        nodes.nodes[2].pause()
        backend._table.report_failure(2, "for a test")
        lease = await locks.lock("x", ttl=MAX_TTL).acquire()
        nodes.nodes[2].resume()
        await eventually(lambda: backend._table.voting_count() == 3)
        assert nodes.nodes[2]("EXISTS", "holdfast:{x}") == 0
        await lease.renew()
        nodes.nodes[1]("DEL", "holdfast:{x}")
        with pytest.raises(holdfast.LeaseLost):
            await lease.renew()


# unasync: aio-only
def all_in(begins: dict[int, int], nodes: RedlockNodes) -> bool:
    return len(begins) == len(nodes.nodes)


# unasync: end
async def test_an_answer_that_was_not_waited_for_counts_when_it_is_renewed(
    nodes: RedlockNodes,
) -> None:
    """Two of three were enough for the grant. If one of them forgets it, the third has it, too."""
    async with connect(nodes, node_timeout=5.0) as locks:
        for node in nodes.nodes:
            lease = await locks.lock("x", ttl=MAX_TTL).acquire()
            await eventually(lambda: all(one("EXISTS", LOCK) for one in nodes.nodes))
            for one in nodes.nodes:
                one("PING")  # so what it answered before is on its way
            # unasync: aio-only
            backend: Any = (await locks._session()).backend
            begins = backend._held_rounds[lease.owner].begins
            await eventually(partial(all_in, begins, nodes))
            # unasync: end
            node("DEL", LOCK)
            await lease.renew()
            assert await lease.release() is True


async def test_what_too_few_nodes_can_say_is_not_known(nodes: RedlockNodes) -> None:
    """The lease is not lost for that: its own deadline says when it is."""
    async with connect(nodes) as locks:
        lease = await locks.lock("x", ttl=MAX_TTL).acquire()
        backend: Any = (await locks._session()).backend
        backend._wire.read_late_replies()
        table = backend._table
        incarnations = [state.incarnation for state in table.nodes]
        claim = Claim("x", lease.owner, MAX_TTL)

        async def no_wait(deadline: float) -> None:
            """Does not wait until they are back."""

        backend._recovery.wait_for_reconnection = no_wait
        for state in table.nodes[1:]:
            state.incarnation = b""
        table.refresh()
        deadline = backend.clock.now() + 10.0
        (outcome,) = await backend.renew([claim], deadline)
        assert outcome is UNKNOWN
        for state, incarnation in zip(table.nodes, incarnations, strict=True):
            state.incarnation = incarnation
        table.refresh()
        await lease.renew()
        assert await lease.release() is True


async def test_a_round_that_fails_leaves_nothing_on_those_that_granted(nodes: RedlockNodes) -> None:
    async with connect(nodes) as locks:
        async with locks.lock("x", ttl=MAX_TTL):
            pass
        await eventually(lambda: not any(node("EXISTS", LOCK) for node in nodes.nodes))
        for node in nodes.nodes[:2]:
            node("SET", LOCK, "somebody else's", "PX", 60_000)
        assert await locks.lock("x", ttl=MAX_TTL).try_acquire() is None
        await eventually(lambda: not nodes.nodes[2]("EXISTS", LOCK))


async def test_a_request_that_arrives_after_its_clean_up_is_refused(nodes: RedlockNodes) -> None:
    """The connection breaks; the clean-up comes on another one, as soon as there is one."""
    proxy = Proxy(nodes.nodes[0].port)
    try:
        url = url_of([proxy.port, *[node.port for node in nodes.nodes[1:]]])
        async with holdfast.connect(url, max_ttl=MAX_TTL, node_timeout=5.0) as locks:
            async with locks.lock("x", ttl=MAX_TTL):
                pass
            await eventually(lambda: not any(node("EXISTS", LOCK) for node in nodes.nodes))
            for node in nodes.nodes[1:]:
                node("SET", LOCK, "somebody else's", "PX", 60_000)
            proxy.keep_once = True
            assert await locks.lock("x", ttl=MAX_TTL).try_acquire() is None
            await eventually(lambda: proxy._kept)
            (_, request) = proxy._kept[0]
            given_up: list[bytes] = []

            async def told() -> bool:
                async with locks.lock("y", ttl=MAX_TTL):  # in blocking code the next one notices
                    pass
                tombstones = nodes.nodes[0]("KEYS", f"{LOCK}:x:*")
                rounds = [name.rpartition(b":")[2] for name in tombstones]
                given_up[:] = [one for one in rounds if b"\r\n%b\r\n" % one in request]
                return bool(given_up)

            await eventually(told)
            proxy.let_go()
            holder = nodes.nodes[0]("GET", LOCK) or b""
            # It may have had another round, whose hold is on its way out.
            assert not holder.startswith(b"rl1\x1f%b\x1f" % given_up[0])
    finally:
        proxy.close()


async def test_what_is_owed_reaches_a_node_that_has_come_back_already(nodes: RedlockNodes) -> None:
    """A command that could not be sent is noted only when the node votes again."""
    async with connect(nodes) as locks:
        async with locks.lock("y", ttl=MAX_TTL):
            pass
        backend: Any = (await locks._session()).backend
        backend._undelivered.add(0, pack(b"SET", b"told", b"1"), MAX_TTL)
        await eventually(lambda: nodes.nodes[0]("EXISTS", "told"))


async def test_who_comes_back_has_a_number_that_others_know(nodes: RedlockNodes) -> None:
    """Above all that are known; or the one that another client has proposed already."""
    names = [f"127.0.0.1:{node.port}" for node in nodes.nodes]
    node = nodes.nodes[0]
    async with connect(nodes, max_ttl=1.5) as locks:
        async with locks.lock("x", ttl=1.5):
            pass

        async def votes() -> bool:
            async with locks.lock("x", ttl=1.5):
                pass
            return node("GET", MARKER) is not None

        proposed = 7_000_000_000_000
        for is_proposed in (False, True):
            node.kill()
            node.start()
            backend: Any = (await locks._session()).backend
            backend._table.report_failure(0, "for a test")
            if is_proposed:
                await eventually(lambda: node("EXISTS", BEGINNING))
                run, started, how, _, roster = node("GET", BEGINNING).split(b"\x1f")
                number = b"%d" % proposed
                node("SET", BEGINNING, b"\x1f".join((run, started, how, number, roster)))
            await eventually(votes)
            life = read_marker(node("GET", MARKER)).life
            assert life == proposed if is_proposed else 1 < life < proposed
            for other in nodes.nodes[1:]:
                assert read_known(read_marker(other("GET", MARKER)).known) == {names[0]: life}


@pytest.mark.parametrize("roster", [b"ff", b""])
async def test_one_that_was_noted_with_another_roster_comes_back_by_reading(
    nodes: RedlockNodes, roster: bytes
) -> None:
    """The node may have voted with the life that the others know, and have forgotten it."""
    node = nodes.nodes[2]
    async with connect(nodes) as locks, locks.lock("x", ttl=MAX_TTL):
        pass
    node.kill()
    node.start()
    run_id = run_id_of(node("INFO", "server"))
    started = node("TIME")[0] + b"000"
    noted = (run_id + b".1", started, b"first", b"0", roster)
    node("SET", BEGINNING, b"\x1f".join(noted))
    async with connect(nodes) as locks:

        async def known() -> bool:
            return any("it has restarted" in text for text in (await locks.inspect("x")).out)

        await eventually(known)
    assert node("EXISTS", MARKER) == 0


async def test_a_release_on_another_connection_than_an_unanswered_request_leaves_a_tombstone(
    nodes: RedlockNodes,
) -> None:
    """Otherwise that request, if it arrives after all, would take the lock for no one."""
    async with connect(nodes) as locks:
        lease = await locks.lock("x", ttl=MAX_TTL).acquire()
        backend: Any = (await locks._session()).backend
        hold = backend._held_rounds[lease.owner]

        def all_answered() -> bool:
            backend._wire.read_late_replies()
            return len(hold.begins) == 3

        await eventually(all_answered)
        del hold.begins[2]
        hold.connections = [object()] * 3
        assert await lease.release() is True
        grave = f"{LOCK}:x:{lease.owner}"
        await eventually(lambda: [node("EXISTS", grave) for node in nodes.nodes] == [0, 0, 1])


async def test_something_else_in_place_of_one_lock_is_no_loss_of_the_others(
    nodes: RedlockNodes,
) -> None:
    async with connect(nodes) as locks:
        leases = [await locks.lock(name, ttl=MAX_TTL).acquire() for name in ("a", "b", "c")]
        backend = (await locks._session()).backend
        for node in nodes.nodes:
            node("DEL", "holdfast:{b}")
            node("LPUSH", "holdfast:{b}", "theirs")
        claims = [Claim(lease.name, lease.owner, MAX_TTL) for lease in leases]
        outcomes = await backend.renew(claims, backend.clock.now() + 5.0)
        assert [type(outcome) for outcome in outcomes] == [Renewed, Gone, Renewed]
