"""A real cluster: slots that move while locks are held and waited for, servers that fail over."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from _async.conformance.test_contract import bench
from holdfast import aio as holdfast
from holdfast.chaos.servers.cluster import Cluster, ClusterNode, slot_of
from holdfast.chaos.servers.proxy import Proxy
from holdfast.chaos.servers.redis import RedisServer
from holdfast.stores.redis.cluster import SLOTS, ClusterNaming, slot_of_command, tag_of
from holdfast.stores.redis.cluster import slot_of as slot_of_key
from holdfast.stores.redis.commands import Commands
from stores import redis_nodes
from worlds.aio import Job, eventually, pause

from .test_observers import Eye, candidate


@pytest.fixture
def cluster() -> Cluster:
    made = redis_nodes()
    made.flush()
    return made


@pytest.fixture
def failing(cluster: Cluster) -> Iterator[Cluster]:
    """Returns a cluster whose first server the test may kill."""
    cluster.hurry()
    yield cluster
    cluster.heal()


@pytest.fixture
def moving(cluster: Cluster) -> Move:
    return Move(cluster)


class Move:
    """The move of a lock, with its slot, from the second server to the third."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.source, self.target = cluster.nodes[1], cluster.nodes[2]
        self.name = cluster.name_at(self.source, "moving")
        self.slot = slot_of(self.name)
        self.key = f"holdfast:{{{self.name}}}"

    def begin(self) -> None:
        self._cluster.begin_move(self.slot, self.source, self.target)

    def move(self, *keys: str) -> None:
        self.source("MIGRATE", "127.0.0.1", self.target.port, "", 0, 5000, "KEYS", *keys)

    def end(self) -> None:
        self._cluster.end_move(self.slot, self.source, self.target)


async def waits(locks: holdfast.Locks, name: str, number: int = 1) -> None:
    async def there() -> bool:
        try:
            return len((await locks.inspect(name)).waiters) == number
        except holdfast.BackendUnavailable:
            return False

    await eventually(there)


async def served(waiters: list[Job[holdfast.Lease]]) -> list[int]:
    """Returns the tokens of the waiters, each of which is granted the lock and releases it."""
    tokens = []
    while waiters:
        await eventually(lambda: any(job.done() for job in waiters))
        done, *more = [job for job in waiters if job.done()]
        assert not more, [await job.error() or await job.result() for job in [done, *more]]
        waiters.remove(done)
        granted = await done.result()
        tokens.append(granted.token)
        assert await granted.release() is True
    return tokens


def test_every_slot_has_a_tag_and_every_key_of_a_lock_its_slot(cluster: Cluster) -> None:
    node = cluster.nodes[0]
    for slot in range(0, SLOTS, 997):
        assert node("CLUSTER", "KEYSLOT", b"holdfast:token:{%b}" % tag_of(slot)) == slot
    assert len({tag_of(slot) for slot in range(SLOTS)}) == SLOTS
    for form in (None, "lock:*", "lock:{*}"):
        naming = ClusterNaming("na{me}:space", form)
        for name in ("x", "a{b", "{", "}{", "{}", "{user}:1", "ü\n%7D", "n" * 500):
            keys = naming.of(name)
            slots = {node("CLUSTER", "KEYSLOT", key) for key in [*keys, naming.audit_of(name)]}
            assert slots == {slot_of_key(keys.lock)}
            assert {slot_of_command(Commands(naming, 1.0, 2.0).inspect(name))} == slots


async def test_locks_live_on_all_servers_and_leave_only_counters(cluster: Cluster) -> None:
    async with holdfast.connect(cluster.url) as locks:
        leases = [await locks.lock(f"order:{number}").acquire() for number in range(60)]
        assert all(node("DBSIZE") for node in cluster.primaries)
        assert [state.name for state in await locks.list("order:")] == sorted(
            lease.name for lease in leases
        )
        for lease in leases:
            await lease.renew()
            assert await lease.release() is True
        assert await locks.list() == []
        left = {key for node in cluster.primaries for key in node("KEYS", "*")}
        assert all(key.startswith(b"holdfast:token:{") for key in left)


async def test_a_lock_moves_while_it_is_held_and_waited_for(cluster: Cluster, moving: Move) -> None:
    async with (
        holdfast.connect(cluster.url, heartbeat=0.2) as locks,
        holdfast.connect(cluster.url, heartbeat=0.2) as others,
    ):
        lease = await locks.lock(moving.name).acquire()
        waiters = [Job(others.lock(moving.name).acquire) for _ in range(2)]
        await waits(locks, moving.name, 2)
        moving.begin()
        await lease.renew()
        moving.move(moving.key)  # the rest stays for now
        await lease.renew()  # by ASK
        releasing = Job(lease.release)
        await pause(0.1)
        assert not releasing.done()
        moving.end()
        assert await releasing.result() is True
        tokens = await served(waiters)
        assert [lease.token, *tokens] == sorted([lease.token, *tokens])
        assert moving.target("EXISTS", moving.key) == 0


async def test_a_waiter_keeps_its_place_when_its_lock_has_moved(
    cluster: Cluster, moving: Move
) -> None:
    async with (
        holdfast.connect(cluster.url) as locks,
        holdfast.connect(cluster.url, heartbeat=0.1) as others,
    ):
        lease = await locks.lock(moving.name).acquire()
        first = Job(others.lock(moving.name).acquire)
        await waits(locks, moving.name)
        owner = (await locks.inspect(moving.name)).waiters[0].owner
        moving.begin()
        moving.end()
        # It listens where its lock lives now.
        await eventually(lambda: moving.target("PUBSUB", "CHANNELS", "holdfast:wake:*"))
        (waiter,) = (await locks.inspect(moving.name)).waiters
        assert waiter.owner == owner
        second = Job(locks.lock(moving.name).acquire)
        await waits(locks, moving.name, 2)
        await lease.release()
        granted = await first.result()
        assert granted.owner == owner
        assert not second.done()
        await granted.release()
        assert (await second.result()).token > granted.token


async def test_a_place_that_was_lost_is_not_given_back_after_it_was_got_anew(
    cluster: Cluster, moving: Move, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lets a heartbeat find the place gone while the waiter enrols again and is granted."""
    async with (
        holdfast.connect(cluster.url) as locks,
        holdfast.connect(cluster.url, heartbeat=30.0) as others,
    ):
        lease = await locks.lock(moving.name).acquire()
        waiter = Job(others.lock(moving.name).acquire)
        await waits(locks, moving.name)
        (owner,) = [one.owner for one in (await locks.inspect(moving.name)).waiters]
        session = await others._session()
        router = session.backend._router  # type: ignore[attr-defined]
        acquire, call_each = router.acquire, router.call_each
        seen: set[str] = set()

        async def late(*args: Any) -> Any:
            seen.add("enrols")
            await eventually(lambda: "gone" in seen)
            answer = await acquire(*args)
            seen.add("enrolled")
            return answer

        async def later(*args: Any) -> Any:
            replies = await call_each(*args)
            if -1 in replies:
                seen.add("gone")
                await eventually(lambda: "enrolled" in seen)
            return replies

        monkeypatch.setattr(router, "acquire", late)
        monkeypatch.setattr(router, "call_each", later)
        moving.begin()
        moving.end()
        session.look_at([owner])  # it is told that its lock has moved
        await eventually(lambda: "enrols" in seen)
        assert await lease.release() is True  # nobody listens there: it is passed over
        session.look_at([owner])
        granted = await waiter.result()
        assert granted.owner == owner
        deadline = granted._hold._deadline
        await eventually(lambda: granted._hold._deadline > deadline or not granted.held)
        assert granted.held
        assert [one.owner for one in (await locks.inspect(moving.name)).holders] == [owner]


async def test_an_observer_sees_on_when_its_election_has_moved(
    cluster: Cluster, moving: Move
) -> None:
    async with bench(cluster.url) as store, bench(cluster.url) as others:
        eye = Eye(store, moving.name)
        leader = candidate("a", moving.name)
        await others.grant(leader)
        assert await eye.look() == ["a"]
        moving.begin()
        moving.end()
        assert await others.release(leader) is True
        # It is known to the new server, which tells it through the others.
        assert await eye.woken()
        assert await eye.look() == ["nobody"]
        await others.grant(candidate("b", moving.name))
        assert await eye.woken()
        assert await eye.look() == ["b"]
        await store.backend.unobserve(eye.ticket, store.deadline())


async def test_no_step_sees_half_of_a_lock(cluster: Cluster, moving: Move) -> None:
    """Asks for a semaphore whose holders are still here, while its queue and counter are there."""
    async with holdfast.connect(cluster.url, heartbeat=30.0) as locks:
        pool = locks.semaphore(moving.name, permits=1)
        lease = await pool.acquire()
        waiter = Job(pool.acquire)
        await waits(locks, moving.name)
        moving.begin()
        (counter,) = moving.source("KEYS", "holdfast:token:*")
        moving.move(moving.key, f"{moving.key}:q", counter.decode())
        async with holdfast.connect(cluster.url) as hasty:
            (await hasty._session()).patience = 3.0
            same = hasty.semaphore(moving.name, permits=1)
            asked = (same, hasty.rwlock(moving.name).write(), hasty.lock(moving.name))
            for job in [Job(lock.try_acquire) for lock in asked]:
                error = await job.error()
                assert isinstance(error, holdfast.BackendUnavailable)
                assert "on the move" in str(error)
        moving.end()
        assert await pool.try_acquire() is None
        assert await lease.release() is True
        assert (await waiter.result()).token > lease.token


async def test_a_map_that_is_old_is_followed_and_learned_anew(
    cluster: Cluster, moving: Move
) -> None:
    async with holdfast.connect(cluster.url) as locks:
        lease = await locks.lock(moving.name).acquire()
        moving.begin()
        moving.end()
        await lease.renew()
        assert await locks.lock(moving.name).try_acquire() is None
        assert await lease.release() is True


async def test_holders_and_waiters_outlive_a_failover(failing: Cluster) -> None:
    first = failing.nodes[0]
    name, far = failing.name_at(first), failing.name_at(failing.nodes[2])
    async with holdfast.connect(failing.url, heartbeat=0.2) as locks:
        lease = await locks.lock(name, ttl=30.0).acquire()
        other = await locks.lock(far, ttl=2.1).acquire()
        waiters = [Job(locks.lock(name).acquire) for _ in range(2)]
        await waits(locks, name, 2)
        await eventually(lambda: failing.replica("DBSIZE") == first("DBSIZE"))
        first.kill()
        second = await locks.lock(failing.name_at(first, "new"), ttl=30.0).acquire()
        assert second.token > lease.token
        assert failing.owner(slot_of(name)) is failing.replica
        await lease.renew()
        await waits(locks, name, 2)
        assert await lease.release() is True
        tokens = await served(waiters)
        assert [lease.token, *tokens] == sorted([lease.token, *tokens])
        assert other.held  # renewed all the time, on a server that was never away


async def test_a_failover_that_forgets_is_declared_and_tokens_go_on_rising(
    failing: Cluster,
) -> None:
    name = failing.name_at(failing.nodes[0])
    async with holdfast.connect(failing.url, heartbeat=0.2) as locks:
        assert "forget" in locks.guarantees.consistency
        failing.cut_off_replica()
        lease = await locks.lock(name, ttl=30.0).acquire()
        failing.nodes[0].kill()
        second = await locks.lock(name).acquire(timeout=10.0)
        assert second.token > lease.token
        with pytest.raises(holdfast.LeaseLost):
            await lease.renew()


async def test_a_server_that_stands_still_holds_up_nobody_elses_renewals(
    cluster: Cluster,
) -> None:
    slow: ClusterNode = cluster.nodes[1]
    async with holdfast.connect(cluster.url) as locks:
        # Due at the same time, and asked for together.
        near = await locks.lock(cluster.name_at(slow), ttl=2.1).acquire()
        far = await locks.lock(cluster.name_at(cluster.nodes[2]), ttl=2.1).acquire()
        slow.pause()
        try:
            await eventually(lambda: not near.held)
            assert far.held
            await far.renew()
        finally:
            slow.resume()
        cluster.await_(lambda: all(node.knows("cluster_state:ok") for node in cluster.nodes))


async def test_what_is_named_must_be_a_cluster() -> None:
    server = RedisServer()
    try:
        with pytest.raises(holdfast.ConfigError, match="and not part of a cluster: redis://"):
            async with holdfast.connect(f"redis+cluster://127.0.0.1:{server.port}"):
                pass
    finally:
        server.stop()
    with pytest.raises(holdfast.BackendUnavailable, match="cannot reach"):
        async with holdfast.connect("redis+cluster://u:s3cret@127.0.0.1:1,127.0.0.1:2"):
            pass


async def test_no_lock_has_the_key_of_a_counter() -> None:
    for part in ("token", "never", "audit"):
        with pytest.raises(holdfast.ConfigError, match=f":{part}"):
            holdfast.connect("redis+cluster://host", namespace=f"shop:{part}")


@pytest.mark.parametrize(
    "url",
    [
        "redis+cluster://",
        "redis+cluster://host:0",
        "redis+cluster://host,",
        "redis+cluster://host/1",
        "redis+cluster://u:s3cret@",
        "redis+cluster://u:s3cret@h1,u:s3cret@h2",
        "redis+cluster://host?db=1",
        "redis+cluster://host?tls=yes",
    ],
)
async def test_a_bad_url_is_refused_without_showing_a_secret(url: str) -> None:
    with pytest.raises(holdfast.ConfigError) as raised:
        holdfast.connect(url)
    assert "s3cret" not in str(raised.value)


async def test_servers_that_are_only_slow_are_waited_for(cluster: Cluster) -> None:
    line = Proxy(cluster.nodes[0].port)
    line.delay = 0.8  # longer than a server has, while there are others to be asked
    try:
        async with holdfast.connect(f"redis+cluster://127.0.0.1:{line.port}") as locks:
            assert (await locks.lock("x").acquire(timeout=10.0)).held
    finally:
        line.close()
