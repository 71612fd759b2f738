"""Several locks as one."""

from __future__ import annotations

import random
from typing import Any

import pytest

from _async.waiting import until_waiting
from holdfast import aio as holdfast
from worlds.aio import Job, eventually, pause


async def nothing_is_held(locks: holdfast.Locks, *beside: str) -> None:
    """Returns once nobody holds a lock or waits for one, except for those named."""

    async def free() -> bool:
        return [state.name for state in await locks.list() if not state.waiters] == [*beside]

    await eventually(free)


async def test_all_are_held_and_all_are_given_back(url: str) -> None:
    async with holdfast.connect(url) as locks, holdfast.connect(url) as others:
        async with locks.multi(["c", "a", "b", "a"], ttl=20.0) as lease:
            assert lease.names == ("a", "b", "c")
            assert list(lease.leases) == list(lease.tokens) == ["a", "b", "c"]
            for name, part in lease.leases.items():
                assert part.name == name
                state = await others.inspect(name)
                assert [holder.token for holder in state.holders] == [lease.tokens[name]]
                assert await others.lock(name).try_acquire() is None
            assert lease.held
            assert lease.state == "held"
            assert (
                10.0
                < lease.remaining()
                == pytest.approx(min(part.remaining() for part in lease.leases.values()), abs=1.0)
            )
            lease.ensure(at_least=1.0)
            tokens = lease.tokens
        assert not lease.held
        assert lease.state == "released"
        with pytest.raises(holdfast.LeaseLost, match="released"):
            lease.ensure()
        assert await lease.release() is False
        await nothing_is_held(others)
        again = await locks.multi(("b", "a")).acquire()
        assert again.tokens["a"] > tokens["a"]
        assert await again.release() is True
        await nothing_is_held(others)


async def test_one_that_is_busy_leaves_none(url: str) -> None:
    async with holdfast.connect(url) as locks, holdfast.connect(url) as others:
        held = await others.lock("b").acquire()
        several = locks.multi(["a", "b", "c"])
        assert await several.try_acquire() is None
        await nothing_is_held(others, "b")
        assert await several.try_acquire(timeout=0.4) is None
        await nothing_is_held(others, "b")
        for timeout in (0, 0.4):
            with pytest.raises(holdfast.LockTimeout, match="not granted together") as caught:
                await several.acquire(timeout=timeout)
            assert caught.value.name in ("b", None)
        await nothing_is_held(others, "b")
        with pytest.raises(holdfast.LockTimeout, match="'a', 'b'"):
            async with locks.multi(["b", "a"], timeout=0.1):
                pytest.fail("it was entered")
        await held.release()
        lease = await several.try_acquire(timeout=10.0)
        assert lease is not None
        assert await lease.release() is True


async def test_it_waits_until_the_last_is_free(url: str) -> None:
    async with holdfast.connect(url) as locks, holdfast.connect(url) as others:
        first = await others.lock("a").acquire()
        last = await others.lock("b").acquire()
        job = Job(locks.multi(["a", "b"]).acquire)
        await until_waiting(others, name="a")
        await first.release()
        await until_waiting(others, name="b")
        assert not job.done()
        await last.release()
        lease = await job.result()
        assert lease.held
        assert await lease.release() is True
        await nothing_is_held(others)


async def test_while_it_waits_it_gives_back_what_it_has_from_time_to_time(url: str) -> None:
    """Somebody who takes them in another order, one inside the other, gets on."""
    async with holdfast.connect(url) as locks, holdfast.connect(url) as others:
        outer = await others.lock("b").acquire()
        job = Job(locks.multi(["a", "b"]).acquire)
        await until_waiting(others, name="b")  # and holds "a"
        inner = await others.lock("a").acquire(timeout=15.0)
        await inner.release()
        await outer.release()
        lease = await job.result()
        assert await lease.release() is True


async def test_lists_in_opposite_order_do_not_block_each_other(url: str) -> None:
    async with holdfast.connect(url) as locks, holdfast.connect(url) as others:
        inside: list[int] = []

        async def take(manager: holdfast.Locks, names: list[str]) -> None:
            for _ in range(5):
                async with manager.multi(names, timeout=60.0):
                    inside.append(1)
                    assert len(inside) == 1
                    await pause(0.001)
                    inside.pop()

        jobs = [Job(take, locks, ["a", "b", "c"]), Job(take, others, ["c", "b", "a"])]
        for job in jobs:
            await job.result()
        await nothing_is_held(others)


@pytest.mark.parametrize("waits", [False, True], ids=["at-once", "one-by-one"])
async def test_one_that_is_lost_loses_the_whole(url: str, waits: bool) -> None:
    """The body is told first, and has ended, before the rest is free."""
    async with holdfast.connect(url) as others, holdfast.connect(url) as locks:
        order: list[str] = []
        leases: list[holdfast.MultiLease] = []

        async def body() -> None:
            async with locks.multi(["a", "b"], ttl=30.0) as lease:
                leases.append(lease)
                lease.on_lost(lambda lost: order.append("told"))
                try:
                    await lease.wait_lost(20.0)
                    await pause(0.3)  # in asyncio it is cancelled here, or before
                finally:
                    await pause(0.3)
                    order.append("out")

        async def rival() -> None:
            await others.lock("b").acquire()
            order.append("rival")

        before = await others.lock("a").acquire() if waits else None
        job = Job(body)
        if before is not None:
            await until_waiting(others, name="a")
            await before.release()
        await eventually(lambda: leases)
        waiting = Job(rival)
        await until_waiting(others, name="b")
        await others.force_release("a")
        (await locks._session()).look_at([leases[0].leases["a"].owner])
        error = await job.error()
        assert isinstance(error, holdfast.LeaseLost)
        assert error.name == "a"
        await waiting.result()
        assert order == ["told", "out", "rival"]
        assert leases[0].state == "lost"
        assert "taken with" in str(leases[0].leases["b"]._hold._loss())
        with pytest.raises(holdfast.LeaseLost, match="'a'"):
            leases[0].ensure()
        assert await leases[0].release() is False


async def test_without_a_body_the_rest_is_given_back_at_once(url: str) -> None:
    async with holdfast.connect(url) as locks, holdfast.connect(url) as others:
        lease = await locks.multi(["a", "b", "c"], ttl=30.0).acquire()
        told: list[holdfast.MultiLease] = []
        lease.on_lost(told.append)
        await others.force_release("b")
        with pytest.raises(holdfast.LeaseLost, match="'b'"):
            await lease.renew()
        assert await lease.wait_lost(10.0) is True
        assert told == [lease]
        lease.on_lost(told.append)  # at once: it is lost
        assert told == [lease, lease]
        assert not lease.held
        assert lease.remaining() == 0.0
        await nothing_is_held(others)


async def test_it_is_renewed_as_one(url: str) -> None:
    async with holdfast.connect(url) as locks:
        lease = await locks.multi(["a", "b"], ttl=3.0).acquire()
        ends = {name: part._hold._deadline for name, part in lease.leases.items()}
        await pause(0.05)
        await lease.renew()
        assert all(part._hold._deadline >= ends[name] for name, part in lease.leases.items())
        assert lease.ttl >= 3.0
        renewed: set[str] = set()
        locks.on_event(lambda event: renewed.add(event.name) if event.kind == "renewed" else None)
        await eventually(lambda: renewed == {"a", "b"})
        assert await lease.wait_lost(0.01) is False
        assert lease.held
        assert await lease.release() is True


async def test_a_part_that_is_released_alone_is_not_held_any_more(url: str) -> None:
    async with holdfast.connect(url) as locks, holdfast.connect(url) as others:
        lease = await locks.multi(["a", "b"]).acquire()
        assert await lease.leases["a"].release() is True
        assert not lease.held
        assert lease.leases["b"].held
        with pytest.raises(holdfast.LeaseLost, match="released"):
            lease.ensure()
        await nothing_is_held(others, "b")
        assert await lease.release() is False
        await nothing_is_held(others)


async def test_close_gives_all_back(url: str) -> None:
    async with holdfast.connect(url) as others:
        locks = holdfast.connect(url)
        held = await others.lock("z").acquire()
        lease = await locks.multi(["a", "b"]).acquire()
        waiting = Job(locks.multi(["x", "z"]).acquire)
        await until_waiting(others, name="z")
        await locks.close()
        assert lease.state == "released"
        assert isinstance(await waiting.error(), holdfast.LockError)
        await nothing_is_held(others, "z")
        assert held.held


async def test_close_tells_the_body_and_waits_for_its_end(url: str) -> None:
    async with holdfast.connect(url) as others:
        locks = holdfast.connect(url)
        order: list[str] = []

        async def body() -> None:
            async with locks.multi(["a", "b"]) as lease:
                order.append("in")
                try:
                    await lease.wait_lost(20.0)
                    await pause(0.3)
                finally:
                    await pause(0.3)
                    order.append("out")

        async def rival(name: str) -> None:
            await others.lock(name).acquire()
            order.append("rival")

        job = Job(body)
        await eventually(lambda: order)
        rivals = [Job(rival, name) for name in ("a", "b")]
        for name in ("a", "b"):
            await until_waiting(others, name=name)
        await locks.close()
        error = await job.error()
        assert isinstance(error, holdfast.LeaseLost)
        assert "closed" in str(error)
        for one in rivals:
            await one.result()
        assert order == ["in", "out", "rival", "rival"]


async def test_it_may_be_entered_by_hand_once_at_a_time(url: str) -> None:
    async with holdfast.connect(url) as locks, holdfast.connect(url) as others:
        several = locks.multi(["a", "b"], timeout=5.0)
        await several.__aenter__()
        assert await others.multi(["b"]).try_acquire() is None
        await several.__aexit__(None, None, None)
        await nothing_is_held(others)
        with pytest.raises(holdfast.LockNotOwned, match="was not entered"):
            await several.__aexit__(None, None, None)
        lease = await several.acquire()
        async with lease, lease as inner:
            assert inner is lease
        await nothing_is_held(others)


@pytest.mark.parametrize(
    ("names", "says"),
    [
        ([], "no name"),
        ((), "no name"),
        ("ab", "list of names"),
        (b"ab", "list of names"),
        (7, "list of names"),
        (None, "list of names"),
        ([""], "empty"),
        (["a", 7], "must be a str"),
        (["a", "b\n"], "control character"),
        ([str(number) for number in range(129)], "more than 128"),
    ],
)
async def test_bad_names_are_refused_in_words(names: Any, says: str) -> None:
    async with holdfast.connect("memory://") as locks:
        with pytest.raises(holdfast.ConfigError, match=says):
            locks.multi(names)
        with pytest.raises(TypeError, match="no option"):
            locks.multi(["a"], tll=3.0)  # type: ignore[call-arg]
        with pytest.raises(holdfast.ConfigError, match="ttl"):
            locks.multi(["a"], ttl=0)
        with pytest.raises(holdfast.GuaranteeError, match="'a'"):
            locks.multi(["a", "b"], purpose="correctness")
        with pytest.raises(holdfast.ConfigError, match="timeout"):
            await locks.multi(["a"]).acquire(timeout=-1)


async def test_one_name_and_the_most_names(url: str) -> None:
    async with holdfast.connect(url) as locks, holdfast.connect(url) as others:
        async with locks.multi({"only"}) as lease:
            assert list(lease.tokens) == ["only"]
        async with locks.multi(f"n{number}" for number in range(128)) as lease:
            assert len(lease.tokens) == 128
            assert len(await others.list("n")) == 128
        await nothing_is_held(others)


async def test_another_kind_under_one_of_the_names_is_refused(url: str) -> None:
    async with holdfast.connect(url) as locks, holdfast.connect(url) as others:
        if not locks.guarantees.fair:
            return
        await others.semaphore("b", permits=2).acquire()
        with pytest.raises(holdfast.ConfigError, match="in use as a semaphore"):
            await locks.multi(["a", "b", "c"]).acquire(timeout=5.0)
        await nothing_is_held(others, "b")


async def test_a_part_that_is_lost_while_another_is_waited_for_is_taken_again(url: str) -> None:
    async with holdfast.connect(url) as locks, holdfast.connect(url) as others:
        held = await others.lock("b").acquire()
        job = Job(locks.multi(["a", "b"]).acquire)
        await until_waiting(others, name="b")
        session = await locks._session()
        heard: dict[str, str] = {}
        locks.on_event(lambda event: heard.update({event.owner: event.kind}))

        async def lost() -> bool:
            """It gives "a" back by itself from time to time: then that is tried again."""
            if await others.force_release("a"):
                heard.clear()
                owners = list(session.leases)
                session.look_at(owners)
                await eventually(lambda: all(owner in heard for owner in owners))
            return "lost" in heard.values()

        await eventually(lost)
        await held.release()
        lease = await job.result()
        lease.ensure()
        for name, token in lease.tokens.items():
            assert [holder.token for holder in (await others.inspect(name)).holders] == [token]
        assert await lease.release() is True


@pytest.mark.parametrize("seed", range(4))
async def test_random_sets_of_many_tasks_are_all_served(seed: int) -> None:
    url = f"memory://multi-{seed}"
    chance = random.Random(seed)
    holders: dict[str, int] = {}

    async def work(number: int, sets: list[list[str]]) -> None:
        async with holdfast.connect(url) as locks:
            for names in sets:
                async with locks.multi(names, timeout=60.0) as lease:
                    for name in lease.names:
                        assert holders.setdefault(name, number) == number
                    await pause(0.0)
                    for name in lease.names:
                        del holders[name]

    jobs = []
    for number in range(20):
        sets = [chance.sample([f"n{i}" for i in range(8)], chance.randint(1, 5)) for _ in range(10)]
        jobs.append(Job(work, number, sets))
    for job in jobs:
        await job.result()
    assert not holders
    async with holdfast.connect(url) as locks:
        assert not await locks.list()
