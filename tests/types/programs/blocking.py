"""A user's blocking code. The lines that are marked are mistakes that a type checker has to see."""

from __future__ import annotations

import asyncio
import functools
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

import redis
import redis.cluster
import redis.sentinel

import holdfast
import holdfast.metrics
import holdfast.tracing
from holdfast.adapters import RedisLock, ThreadingLock
from holdfast.clock import ManualClock
from holdfast.fences import FileFence, MemoryFence


def connects() -> None:
    holdfast.connect()
    holdfast.connect(None)
    holdfast.connect("sqlite:///var/lib/app/locks.db", namespace="billing", label="worker 1")
    holdfast.connect("redis://127.0.0.1", min_replicas=1, key="lock:*", claim_window=2.0)
    holdfast.connect("redis+sentinel://host/main", sentinel_user="me", sentinel_tls=True)
    holdfast.connect(
        "redlock://a,b,c", max_ttl=60.0, node_timeout=1, fresh="wait", appendfsync="always"
    )
    holdfast.connect("etcd://host", tls_ca=Path("ca.pem"), tls_cert="me.pem", tls_key="me.key")
    holdfast.connect("zookeeper://host", tick=2.0, sasl={"mechanism": "DIGEST-MD5"})
    holdfast.connect("memory://", clock=ManualClock())
    holdfast.connect(redis.Redis(host="127.0.0.1"))
    holdfast.connect(redis.cluster.RedisCluster(host="127.0.0.1"))
    holdfast.connect(redis.sentinel.Sentinel([("127.0.0.1", 26379)]).master_for("main"))

    holdfast.connect(42)  # expect: error
    holdfast.connect(b"memory://")  # expect: error
    holdfast.connect(Path("locks.db"))  # expect: error
    holdfast.connect("memory://", "billing")  # expect: error
    holdfast.connect("memory://", namspace="billing")  # expect: error
    holdfast.connect("memory://", purpose="correctness")  # expect: error
    holdfast.connect("redlock://a,b,c", fresh="now")  # expect: error
    holdfast.connect("memory://", heartbeat="1")  # expect: error
    holdfast.connect("memory://", on_event=print("x"), label=7)  # expect: error


def locks_of(locks: holdfast.Locks) -> None:
    locks.lock("x", ttl=30, timeout=None, fair=None, renew=True, max_hold=60)
    locks.lock("x", purpose="correctness", protects=MemoryFence())
    locks.rwlock("x", purpose="correctness", protects=FileFence()).write()
    locks.semaphore("x", permits=3, timeout=5.0)
    locks.rlock("x", fair=True)

    locks.lock("x", purpose="corectness")  # expect: error
    locks.lock("x", porpose="correctness")  # expect: error
    locks.lock("x", protects=object())  # expect: error
    locks.lock("x", ttl="30")  # expect: error
    locks.lock("x", fair="yes")  # expect: error
    locks.lock(42)  # expect: error
    locks.semaphore("x", purpose="corectness", permits=3)  # expect: error
    locks.semaphore("x")  # expect: error
    locks.rwlock("x").acquire()  # expect: error
    locks.election("x", value=7)  # expect: error


def leases(locks: holdfast.Locks) -> int:
    with locks.lock("x") as lease:
        lease.ensure(at_least=1.0)
        token: int = lease.token
    maybe = locks.lock("x").try_acquire(timeout=1.0)
    if maybe is not None:
        left: float = maybe.remaining()
        ended: bool = maybe.release()
        print(left, ended)
    certain = locks.lock("x").acquire(timeout=1.0)
    slot: int | None = certain.slot
    print(slot)

    locks.lock("x").try_acquire().release()  # expect: error
    lease.resign()  # expect: error
    text: str = lease.token  # expect: error
    print(text)
    lease.renew(ttl="10")  # expect: error
    with locks.election("x") as term:  # expect: error
        print(term)
    return token


def terms(locks: holdfast.Locks) -> None:
    election = locks.election("x", value="me")
    with election.campaign() as term:
        term.resign()
        same: holdfast.Term = term
        print(same.token)
    leader = election.leader()
    if leader is not None:
        print(leader.holders[0].label.text)
    for state in election.observe():
        print(state.token if state is not None else None)

    print(election.leader().token)  # expect: error
    term.resing()  # expect: error


def stacks(locks: holdfast.Locks) -> None:
    with ExitStack() as stack:
        print(stack.enter_context(locks.lock("x")).token + 1)
        print(stack.enter_context(locks.multi(["x", "y"])).tokens["x"] + 1)
        stack.enter_context(locks.rwlock("x").read())
    manager: AbstractContextManager[holdfast.Lease] = locks.lock("x")
    with manager as one:
        print(one.token + 1)

    stack.enter_context(locks.election("x"))  # expect: error


async def never_awaited(lease: holdfast.Lease) -> None: ...


async def event_never_awaited(event: holdfast.Event) -> None: ...


def callbacks(locks: holdfast.Locks, lease: holdfast.Lease, term: holdfast.Term) -> None:
    stop, loop, pool = threading.Event(), asyncio.new_event_loop(), ThreadPoolExecutor()
    lost: list[holdfast.Lease] = []
    events: list[holdfast.Event] = []
    lease.on_lost(lost.append)
    lease.on_lost(lambda gone: print(gone.name))
    lease.on_lost(lambda gone: stop.set())
    lease.on_lost(functools.partial(print, "lost"))
    lease.on_lost(lambda gone: loop.call_soon_threadsafe(stop.set))
    lease.on_lost(lambda gone: asyncio.run_coroutine_threadsafe(never_awaited(gone), loop))
    lease.on_lost(lambda gone: pool.submit(stop.set))
    lease.on_lost(lambda gone: sys.stderr.write("lost"))
    term.on_lost(lost.append)
    remove = locks.on_event(events.append)
    remove()
    holdfast.connect("memory://", on_event=lambda event: print(event.kind, event.token))

    lease.on_lost(never_awaited)  # expect: error
    lease.on_lost(lambda gone: never_awaited(lease))  # expect: error
    lease.on_lost(print)
    lease.on_lost(stop)  # expect: error
    lease.on_lost(events.append)  # expect: error
    locks.on_event(event_never_awaited)  # expect: error
    locks.on_call(lambda call: print(call.verb, call.duration + 1.0, call.error))
    locks.on_call(events.append)  # expect: error
    stop_counting = holdfast.metrics.Metrics(group=":", groups=5).watch(locks)
    stop_counting()
    holdfast.metrics.Metrics(group=7)  # expect: error
    holdfast.tracing.instrument(locks)()
    print(holdfast.tracing.hold_span(lease).is_recording())
    holdfast.connect("memory://", on_event=event_never_awaited)  # expect: error


def errors(locks: holdfast.Locks) -> None:
    try:
        locks.lock("x").acquire(timeout=0)
    except holdfast.LockTimeout as error:
        timeout: TimeoutError = error
        print(timeout, error.name, error.owner, error.token)
    except holdfast.BackendUnavailable as error:
        unreachable: ConnectionError = error
        print(unreachable)
    except holdfast.StaleToken as error:
        print(error.resource, error.highest)


def several_at_once(locks: holdfast.Locks) -> None:
    with locks.multi(["a", "b"], timeout=5.0) as lease:
        lease.ensure()
        print(lease.tokens["a"] + 1, lease.leases["b"].token, lease.held, lease.remaining())
    for deadlock in locks.deadlocks():
        print(deadlock.names, deadlock.participants, deadlock.since + 1.0)

    @locks.locked("report:{customer_id}", ttl=5.0)
    def report(customer_id: int) -> str:
        return str(customer_id)

    @locks.multi(["a", "b"])
    def both(number: int) -> int:
        return number

    @locks.locked("report:{customer_id}", lease_as="lease")
    def fenced(customer_id: int, lease: holdfast.Lease) -> int:
        return customer_id + lease.token

    print(fenced(7) + 1)
    locks.locked("x", lease_as=7)  # expect: error
    text: str = report(7)
    number: int = both(7)
    print(text, number, ThreadingLock(locks, "x").acquire(timeout=1), RedisLock(locks, "x").lease)

    report("seven")  # expect: error
    wrong: str = both(7)  # expect: error
    print(wrong, lease.token)  # expect: error
    locks.multi(7)  # expect: error
    locks.multi(["a"], tll=3.0)  # expect: error
