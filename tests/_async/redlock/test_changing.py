"""Leases that are amended, detached, adopted and observed, on nodes that fail meanwhile."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.chaos.servers.redlock import RedlockNodes
from holdfast.errors import BackendUnavailable, ConfigError, GuaranteeError
from holdfast.model import GONE, Gone, Granted, Label, Renewed, new_owner
from holdfast.stores._async.contract import Terms, Ticket
from worlds.aio import Job, eventually

from ..conformance.test_contract import Bench
from .scenes import connect

LABEL = Label("host", 7, "test")
READERS = 100
OBSERVED = 1000


def ticket(kind: str = "lock", weight: int = 1, capacity: int = 1, name: str = "x") -> Ticket:
    terms = Terms(name, 10.0, LABEL, weight=weight, capacity=capacity, kind=kind)
    return Ticket(terms, new_owner(), queue=False)


async def test_a_writer_becomes_a_reader_also_where_a_node_was_away(nodes: RedlockNodes) -> None:
    # The other two are not said to be out where this machine stands still for a moment.
    async with connect(nodes, node_timeout=5.0) as locks:
        backend: Any = (await locks._session()).backend
        store = Bench(backend)
        writer = ticket("rwlock", READERS, READERS)
        await store.grant(writer)

        def held_by_all() -> bool:
            backend._wire.read_late_replies()
            return len(backend._held_rounds[writer.owner].begins) == 3

        await eventually(held_by_all)
        nodes.nodes[0].pause()
        assert await store.backend.amend("x", writer.owner, store.deadline(), weight=1) is True
        await store.grant(ticket("rwlock", 1, READERS))
        nodes.nodes[0].resume()

        def alike() -> bool:
            return not nodes.nodes[0]("HEXISTS", "holdfast:{x}:h", "w")

        await eventually(alike)  # it is told when it is back
        assert isinstance(await store.renew(writer), Renewed)


async def test_what_too_few_nodes_can_do_is_not_said_to_be_done(nodes: RedlockNodes) -> None:
    async with connect(nodes, node_timeout=0.3) as locks:
        store = Bench((await locks._session()).backend)
        mine = ticket()
        await store.grant(mine)
        heir = ticket()
        for node in nodes.nodes[:2]:
            node.kill()
        backend, soon = store.backend, store.clock.now() + 1.0
        calls: list[tuple[Any, ...]] = [
            (backend.amend, "x", mine.owner, soon, 0, "b"),
            (backend.detach, "x", mine.owner, 5.0, soon),
            (backend.adopt, heir, mine.owner, soon),
            (backend.observe, ticket("election"), 0, soon),
        ]
        for call, *arguments in calls:
            with pytest.raises(BackendUnavailable):
                await call(*arguments)


async def test_a_lease_is_not_detached_for_longer_than_nodes_wait(nodes: RedlockNodes) -> None:
    async with connect(nodes) as locks:
        store = Bench((await locks._session()).backend)
        assert locks.guarantees.longest_detached == 20.0
        mine = ticket()
        await store.grant(mine)
        with pytest.raises(ConfigError, match="max_ttl"):
            await store.backend.detach("x", mine.owner, 21.0, store.deadline())
        assert await store.backend.detach("x", mine.owner, 20.0, store.deadline()) is True


async def test_a_weight_that_does_not_add_up_is_refused(nodes: RedlockNodes) -> None:
    async with connect(nodes) as locks:
        store = Bench((await locks._session()).backend)
        with pytest.raises(GuaranteeError, match="add up"):
            await store.ask(ticket("share", 2, 5))
        writer = ticket("rwlock", READERS, READERS)
        await store.grant(writer)
        with pytest.raises(GuaranteeError, match="add up"):
            await store.backend.amend("x", writer.owner, store.deadline(), weight=2)


async def test_one_of_many_heirs_gets_the_lease(nodes: RedlockNodes) -> None:
    async with connect(nodes) as locks, connect(nodes) as others:
        here = Bench((await locks._session()).backend)
        there = Bench((await others._session()).backend)
        for _ in range(10):
            giver = ticket()
            given = await here.grant(giver)
            heirs = [ticket() for _ in range(4)]
            jobs = [
                Job(side.backend.adopt, heir, giver.owner, here.deadline())
                for side, heir in zip((here, there) * 2, heirs, strict=True)
            ]
            answers = [await job.result() for job in jobs]
            won = [one for one in zip(heirs, answers, strict=True) if one[1] is not GONE]
            # Their votes may be split: then all of it is given back, and nobody has it.
            assert len(won) <= 1
            for heir, answer in won:
                assert isinstance(answer, Granted)
                assert answer.token > given.token
                side = here if heirs.index(heir) % 2 == 0 else there
                assert await side.release(heir) is True
            assert isinstance(await here.renew(giver), Gone)
            await here.release(giver)

            async def free() -> bool:
                return not (await locks.inspect("x")).holders

            await eventually(free)


async def test_an_adoption_races_the_release_of_the_giver(nodes: RedlockNodes) -> None:
    async with connect(nodes) as locks, connect(nodes) as others:
        here = Bench((await locks._session()).backend)
        there = Bench((await others._session()).backend)
        for _ in range(20):
            giver, heir = ticket("semaphore", 1, 2), ticket("semaphore", 1, 2)
            given = await here.grant(giver)
            adopting = Job(there.backend.adopt, heir, giver.owner, here.deadline())
            releasing = Job(here.release, giver)
            answer, released = await adopting.result(), await releasing.result()
            if isinstance(answer, Granted):
                assert released is False
                assert answer.slot == given.slot
                assert answer.token > given.token
                assert await there.release(heir) is True
            async with await locks.semaphore("x", permits=2, ttl=10.0).acquire(timeout=10.0):
                pass


async def test_an_heir_whose_request_was_lost_asks_again(nodes: RedlockNodes) -> None:
    """Two nodes have done it, and their replies did not come; the next request finds that."""
    async with connect(nodes) as locks, connect(nodes) as others:
        here = Bench((await locks._session()).backend)
        backend: Any = (await others._session()).backend
        giver, heir = ticket(), ticket()
        given = await here.grant(giver)
        adopted = await backend.adopt(heir, giver.owner, here.deadline())
        assert isinstance(adopted, Granted)
        backend._held_rounds.clear()  # as if it had heard of nothing
        again = await backend.adopt(heir, giver.owner, here.deadline())
        assert again == adopted
        assert again.token > given.token


async def test_a_thousand_observed_elections_are_looked_at_together(nodes: RedlockNodes) -> None:
    async with connect(nodes) as locks, connect(nodes) as others:
        here = Bench((await locks._session()).backend)
        there = Bench((await others._session()).backend)
        before = len(nodes.nodes[0]("CLIENT", "LIST").split(b"\n"))
        eyes = [ticket("election", name=f"e{number}") for number in range(OBSERVED)]
        for eye in eyes:
            assert await there.backend.observe(eye, 0, there.deadline()) == ((), 0.0)
        assert len(nodes.nodes[0]("CLIENT", "LIST").split(b"\n")) <= before + 4
        for eye in (eyes[0], eyes[500], eyes[-1]):
            leader = ticket("election", name=eye.name)
            grant = await here.grant(leader)
            await there.backend.wait(eye, there.clock.now() + 15.0)
            (change,) = (await there.backend.observe(eye, 0, there.deadline())).changes
            assert (change.owner, change.token) == (leader.owner, grant.token)
            assert await here.backend.amend(eye.name, leader.owner, here.deadline(), text="new")
            await there.backend.wait(eye, there.clock.now() + 15.0)
            (value,) = (await there.backend.observe(eye, change.number, there.deadline())).changes
            assert value.label.text == "new"
            assert value.number > change.number
            assert await here.release(leader) is True
            await there.backend.wait(eye, there.clock.now() + 15.0)
            (gone,) = (await there.backend.observe(eye, value.number, there.deadline())).changes
            assert (gone.owner, gone.token) == ("", grant.token)
            assert gone.number > value.number
            assert not (await there.backend.observe(eye, gone.number, there.deadline())).changes
        for eye in eyes:
            await there.backend.unobserve(eye, there.deadline())
        assert not any(b"{e" in key for key in nodes.nodes[0]("KEYS", "*"))


async def test_observers_end_with_their_backend(nodes: RedlockNodes) -> None:
    async with connect(nodes) as locks:
        backend: Any = (await locks._session()).backend
        await backend.observe(ticket("election"), 0, backend.clock.now() + 10.0)
    assert backend._observing._routine is None
