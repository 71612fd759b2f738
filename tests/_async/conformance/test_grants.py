"""Who gets a lock, with which token, and how it is given back."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import aio as holdfast
from worlds.aio import Job, eventually


async def test_a_free_lock_is_granted_with_a_token(url: str) -> None:
    async with holdfast.connect(url) as locks:
        lease = await locks.lock("invoice:42", ttl=10.0).acquire()
        assert lease.held
        assert lease.name == "invoice:42"
        assert type(lease.token) is int
        assert lease.token > 0
        assert lease.ttl == 10.0
        assert 5.0 < lease.remaining() < 10.0
        assert lease.state == "held"
        assert await lease.release() is True
        assert lease.remaining() == 0.0
        assert (lease.held, lease.state) == (False, "released")


async def test_a_held_lock_is_refused_to_others(url: str) -> None:
    async with holdfast.connect(url) as locks, holdfast.connect(url) as others:
        lease = await locks.lock("x").acquire()
        assert await locks.lock("x").try_acquire() is None
        assert await others.lock("x").try_acquire() is None
        with pytest.raises(holdfast.LockTimeout) as raised:
            await others.lock("x", timeout=0.05).acquire()
        assert raised.value.name == "x"
        assert isinstance(raised.value, TimeoutError)
        assert lease.held
        await lease.release()
        again = await others.lock("x").try_acquire()
        assert again is not None
        assert again.token > lease.token


async def test_tokens_rise_from_grant_to_grant(url: str) -> None:
    async with holdfast.connect(url) as locks, holdfast.connect(url) as others:
        tokens = []
        for turn in range(200):
            side = (locks, others)[turn % 2]
            async with side.lock("x") as lease:
                tokens.append(lease.token)
        assert tokens == sorted(set(tokens))


async def test_tokens_rise_after_expiry(url: str) -> None:
    async with holdfast.connect(url) as locks:
        first = await locks.lock("x", ttl=0.05, renew=False).acquire(timeout=10.0)
        second = await locks.lock("x").acquire(timeout=10.0)
        assert second.token > first.token
        assert not first.held
        assert await first.release() is False
        assert second.held


async def test_every_acquisition_has_an_owner_of_its_own(url: str) -> None:
    async with holdfast.connect(url) as locks:
        lock = locks.lock("x")
        owners = set()
        for _ in range(20):
            lease = await lock.acquire()
            owners.add(lease.owner)
            await lease.release()
        assert len(owners) == 20


async def test_a_second_release_answers_false(url: str) -> None:
    async with holdfast.connect(url) as locks:
        lease = await locks.lock("x").acquire()
        assert await lease.release() is True
        rival = await locks.lock("x").acquire()
        assert await lease.release() is False
        assert rival.held
        assert (await locks.inspect("x")).holders[0].owner == rival.owner


async def test_with_enters_held_and_leaves_free(url: str) -> None:
    async with holdfast.connect(url) as locks:
        async with locks.lock("x", timeout=10.0) as lease:
            assert lease.held
            assert (await locks.inspect("x")).held
        assert not (await locks.inspect("x")).held


async def test_with_raises_rather_than_enter_without_the_lock(url: str) -> None:
    async with holdfast.connect(url) as locks, locks.lock("x"):
        entered = False
        with pytest.raises(holdfast.LockTimeout):
            async with locks.lock("x", timeout=0.05):
                entered = True
        assert not entered


async def test_the_bodys_own_exception_is_not_hidden(url: str) -> None:
    async with holdfast.connect(url) as locks:
        with pytest.raises(KeyError, match="mine"):
            async with locks.lock("x"):
                raise KeyError("mine")
        assert not (await locks.inspect("x")).held


async def test_one_lock_object_serves_many_at_once(url: str) -> None:
    async with holdfast.connect(url) as locks:
        lock = locks.lock("x")
        inside = 0
        most = 0
        turns: list[int] = []

        async def work() -> None:
            nonlocal inside, most
            for _ in range(10):
                async with lock as lease:
                    inside += 1
                    most = max(most, inside)
                    turns.append(lease.token)
                    inside -= 1

        jobs = [Job(work) for _ in range(8)]
        for job in jobs:
            await job.result()
        assert most == 1
        assert len(turns) == 80
        assert turns == sorted(turns)


async def test_one_lock_object_may_be_entered_again_by_those_who_share_a_semaphore(
    url: str,
) -> None:
    async with holdfast.connect(url) as locks:
        lock = locks.semaphore("x", permits=2)
        async with lock as outer:
            async with lock as inner:
                assert outer.token != inner.token
                assert await lock.try_acquire() is None
            assert outer.held
            assert not inner.held


async def test_a_lease_is_a_context_manager_too(url: str) -> None:
    async with holdfast.connect(url) as locks:
        lease = await locks.lock("x").acquire()
        async with lease as same:
            assert same is lease
        assert lease.state == "released"


async def test_namespaces_do_not_meet(url: str) -> None:
    async with (
        holdfast.connect(url, namespace="a") as locks,
        holdfast.connect(url, namespace="a:b") as others,
    ):
        await locks.lock("b:c").acquire()
        assert await others.lock("c").try_acquire() is not None
        assert [state.name for state in await others.list()] == ["c"]
        assert [state.name for state in await locks.list()] == ["b:c"]


async def test_an_owner_from_outside_serves_once(url: str) -> None:
    async with holdfast.connect(url) as locks:
        lease = await locks.lock("x").acquire(owner="client-7")
        assert lease.owner == "client-7"
        with pytest.raises(holdfast.ConfigError, match="used before"):
            await locks.lock("x").acquire(owner="client-7")
        with pytest.raises(holdfast.ConfigError, match="used before"):
            await locks.lock("y").try_acquire(owner="client-7")
        assert lease.held
        await lease.release()  # a late copy of it must not free another lease of the same owner
        with pytest.raises(holdfast.ConfigError, match="used before"):
            await locks.lock("x").acquire(owner="client-7")


async def test_force_release_takes_it_away_and_raises_the_token(url: str) -> None:
    async with holdfast.connect(url) as locks, holdfast.connect(url) as operator:
        lease = await locks.lock("x").acquire()
        assert await operator.force_release("x") is True
        assert (await operator.inspect("x")).token > lease.token
        rival = await operator.lock("x").acquire(timeout=10.0)
        assert rival.token > lease.token + 1
        with pytest.raises(holdfast.LeaseLost):
            await lease.renew()
        assert not lease.held
        assert await lease.release() is False
        assert rival.held
        assert await operator.force_release("nobody's") is False


COUNTED = ("etcd", "zookeeper")
"""The stores whose tokens count all their writes, and which nobody can raise."""


async def test_force_release_raises_the_token_above_what_a_fence_has_seen(url: str) -> None:
    async with holdfast.connect(url) as locks:
        lease = await locks.lock("x").acquire()
        seen = lease.token + 86_400_000_000
        waiter = Job(locks.lock("x").acquire)

        async def waits() -> bool:
            return len((await locks.inspect("x")).waiters) == 1

        await eventually(waits)
        if url.partition(":")[0] in COUNTED:
            with pytest.raises(holdfast.GuaranteeError, match=f"raised above {seen}"):
                await locks.force_release("x", token_above=seen)
            assert [one.owner for one in (await locks.inspect("x")).holders] == [lease.owner]
            await lease.renew()
            assert await locks.force_release("x", token_above=lease.token) is True
            assert (await waiter.result()).token > lease.token
            return
        assert await locks.force_release("x", token_above=seen) is True
        heir = await waiter.result()
        assert heir.token > seen
        assert await locks.force_release("x", token_above=seen) is True  # it is already
        assert not await heir.release()
        assert (await locks.lock("x").acquire(timeout=10.0)).token > heir.token


async def test_the_token_of_a_free_lock_can_be_raised(url: str) -> None:
    async with holdfast.connect(url) as locks:
        async with locks.lock("x") as lease:
            pass
        above = lease.token + (0 if url.partition(":")[0] in COUNTED else 86_400_000_000)
        assert await locks.force_release("x", token_above=above) is False
        assert (await locks.lock("x").acquire(timeout=10.0)).token > above


async def test_a_token_that_no_store_could_hand_out_is_refused(url: str) -> None:
    bad: list[Any] = [-1, 2**53, True, 1.5, "7", None]
    async with holdfast.connect(url) as locks:
        lease = await locks.lock("x").acquire()
        for above in bad:
            with pytest.raises(holdfast.ConfigError, match="token_above"):
                await locks.force_release("x", token_above=above)
        assert await lease.release() is True


async def test_force_release_hands_on_to_the_next_in_line(url: str) -> None:
    async with holdfast.connect(url) as locks:
        lease = await locks.lock("x").acquire()
        waiter = Job(locks.lock("x").acquire)

        async def waits() -> bool:
            return len((await locks.inspect("x")).waiters) == 1

        await eventually(waits)
        await locks.force_release("x")
        assert (await waiter.result()).token > lease.token


async def test_close_gives_back_what_is_held(url: str) -> None:
    async with holdfast.connect(url) as others:
        locks = holdfast.connect(url)
        lease = await locks.lock("x").acquire()
        await locks.close()
        assert not lease.held
        assert await others.lock("x").try_acquire() is not None
        with pytest.raises(holdfast.LockError, match="closed"):
            await locks.lock("y").acquire()
        await locks.close()


async def test_close_ends_every_wait(url: str) -> None:
    async with holdfast.connect(url) as others:
        await others.lock("x").acquire()
        locks = holdfast.connect(url)
        waiter = Job(locks.lock("x").acquire)

        async def waits() -> bool:
            return len((await others.inspect("x")).waiters) == 1

        await eventually(waits)
        await locks.close()
        assert isinstance(await waiter.error(), holdfast.LockError)
        assert (await others.inspect("x")).waiters == ()
