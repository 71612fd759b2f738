"""A user's code in asyncio. The lines that are marked are mistakes that a type checker has to see."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path

import redis.asyncio

import holdfast.aio
import holdfast.metrics
import holdfast.tracing
from holdfast.adapters.aio import AsyncioLock, RedisLock
from holdfast.clock import ManualClock
from holdfast.fences import MemoryFence


async def connects() -> None:
    async with holdfast.aio.connect("sqlite:///var/lib/app/locks.db") as locks:
        await locks.inspect("x")
    holdfast.aio.connect(redis.asyncio.Redis(host="127.0.0.1"))
    holdfast.aio.connect(redis.asyncio.RedisCluster(host="127.0.0.1"))
    holdfast.aio.connect("memory://", clock=ManualClock())

    holdfast.aio.connect(42)  # expect: error
    holdfast.aio.connect(Path("locks.db"))  # expect: error
    holdfast.aio.connect("memory://", porpose="correctness")  # expect: error
    with holdfast.aio.connect("memory://") as wrong:  # expect: error
        print(wrong)


async def locks_of(locks: holdfast.aio.Locks) -> None:
    async with locks.lock("x", purpose="correctness", protects=MemoryFence()) as lease:
        await lease.renew(ttl=10)
        print(lease.token + 1, lease.held, lease.remaining())
    maybe = await locks.lock("x").try_acquire()
    if maybe is not None:
        await maybe.release()
    async with await locks.election("x").campaign() as term:
        await term.resign()
        same: holdfast.aio.Term = term
        print(same.token)
    async for leader in locks.election("x").observe():
        print(leader)

    locks.lock("x", purpose="corectness")  # expect: error
    locks.lock("x").acquire()  # expect: error
    lease.release()  # expect: error
    lease.resign()  # expect: error
    with locks.lock("x") as wrong:  # expect: error
        print(wrong)
    if (await locks.lock("x").try_acquire()).held:  # expect: error
        pass


async def stacks(locks: holdfast.aio.Locks) -> None:
    async with AsyncExitStack() as stack:
        lease = await stack.enter_async_context(locks.lock("x"))
        print(lease.token + 1)
        several = await stack.enter_async_context(locks.multi(["x", "y"]))
        print(several.tokens["x"] + 1)
        await stack.enter_async_context(locks.rlock("x"))
        await stack.enter_async_context(locks.semaphore("x", permits=2))
        await stack.enter_async_context(locks.rwlock("x").read())
        await stack.enter_async_context(await locks.lock("x").acquire())
        await stack.enter_async_context(await locks.multi(["x"]).acquire())
        await stack.enter_async_context(await locks.election("x").campaign())
        await stack.enter_async_context(locks)
    manager: AbstractAsyncContextManager[holdfast.aio.Lease] = locks.lock("x")
    async with manager as one:
        print(one.token + 1)

    wrong: int = await stack.enter_async_context(locks.lock("x"))  # expect: error
    print(wrong)
    await stack.enter_async_context(locks.election("x"))  # expect: error


async def never_awaited(lease: holdfast.aio.Lease) -> None: ...


async def event_never_awaited(event: holdfast.aio.Event) -> None: ...


async def callbacks(locks: holdfast.aio.Locks, lease: holdfast.aio.Lease) -> None:
    stop = asyncio.Event()
    task = asyncio.ensure_future(stop.wait())
    lease.on_lost(lambda gone: stop.set())
    lease.on_lost(lambda gone: task.cancel())
    lease.on_lost(lambda gone: asyncio.create_task(never_awaited(gone)))
    lease.on_lost(lambda gone: asyncio.get_running_loop().call_soon(stop.set))
    locks.on_event(lambda event: asyncio.create_task(event_never_awaited(event)))

    lease.on_lost(never_awaited)  # expect: error
    lease.on_lost(lambda gone: never_awaited(lease))  # expect: error
    await lease.on_lost(print)  # expect: error
    locks.on_event(event_never_awaited)  # expect: error
    holdfast.metrics.Metrics(group=lambda name: name[:3]).watch(locks)
    holdfast.tracing.instrument(locks)
    holdfast.metrics.Metrics().watch(lease)  # expect: error
    holdfast.aio.connect("memory://", on_event=event_never_awaited)  # expect: error


async def several_at_once(locks: holdfast.aio.Locks) -> None:
    async with locks.multi(["a", "b"], timeout=5.0) as lease:
        lease.ensure()
        await lease.renew()
        print(lease.tokens["a"] + 1, lease.leases["b"].token, lease.held, lease.remaining())
    for deadlock in await locks.deadlocks():
        print(deadlock.names, deadlock.participants, deadlock.since + 1.0)

    @locks.locked("report:{customer_id}", ttl=5.0)
    async def report(customer_id: int) -> str:
        return str(customer_id)

    @locks.locked("report:{customer_id}", lease_as="lease")
    async def fenced(customer_id: int, lease: holdfast.aio.Lease) -> int:
        return customer_id + lease.token

    print(await fenced(7) + 1)
    text: str = await report(7)
    print(text, await AsyncioLock(locks, "x").acquire(), await RedisLock(locks, "x").acquire())

    await report("seven")  # expect: error
    wrong: str = report(7)  # expect: error
    print(wrong, lease.token)  # expect: error

    @locks.lock("x")  # expect: error
    def plain() -> None: ...
