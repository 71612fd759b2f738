"""Three members, of which one is killed, paused, cut off or slow: nothing that is held is lost."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from holdfast import aio as holdfast
from holdfast.chaos.servers.etcd import EtcdCluster, Member, trio
from worlds.aio import Job, eventually, pause


@pytest.fixture
def cluster() -> Iterator[EtcdCluster]:
    members = trio()
    members.wipe()
    yield members
    members.heal()


async def waiters(locks: holdfast.Locks, name: str = "x") -> bool:
    return len((await locks.inspect(name)).waiters) > 0


async def goes_on(cluster: EtcdCluster, upset: Member, how: str) -> None:
    """A holder, a waiter and a newcomer while `upset` is; the lock stays held, and changes hands."""
    others = [member for member in cluster.members if member is not upset]
    # Clients that know all members, and begin with the one that is upset.
    url = "etcd://" + ",".join(f"127.0.0.1:{one.port}" for one in [upset, *others])
    async with (
        holdfast.connect(url) as locks,
        holdfast.connect(url) as waiting,
        holdfast.connect(url) as newcomers,
    ):
        # Much longer than the upset: a leader that was paused past a TTL revokes living leases when it
        # wakes up, before etcd 3.5.8 (etcd#15247). That has a test of its own.
        lease = await locks.lock("x", ttl=30.0).acquire()
        waiter = Job(waiting.lock("x", ttl=30.0).acquire)

        async def queued() -> bool:
            return await waiters(locks)

        await eventually(queued)
        getattr(upset, how)() if how != "cut_off" else cluster.cut_off(upset)
        await lease.renew()  # on another member by now
        assert lease.held
        assert await newcomers.lock("x").try_acquire() is None
        assert not waiter.done()
        assert await lease.release() is True
        second = await waiter.result()
        assert second.token > lease.token
        cluster.heal()
        await second.renew()
        assert second.held
        assert (await locks.inspect("x")).token == second.token


@pytest.mark.parametrize("how", ["kill", "pause", "cut_off"])
async def test_the_leader_is_upset(cluster: EtcdCluster, how: str) -> None:
    await goes_on(cluster, cluster.leader(), how)


# unasync: aio-only
async def test_a_follower_that_clients_talk_to_is_paused(cluster: EtcdCluster) -> None:
    leader = cluster.leader()
    follower = next(member for member in cluster.members if member is not leader)
    await goes_on(cluster, follower, "pause")


# unasync: end


async def test_the_holder_on_the_minoritys_side_is_told_before_a_rival_is_granted(
    cluster: EtcdCluster,
) -> None:
    leader = cluster.leader()
    minority = next(member for member in cluster.members if member is not leader)
    majority = [member for member in cluster.members if member is not minority]
    rivals_url = "etcd://" + ",".join(f"127.0.0.1:{member.port}" for member in majority)
    async with (
        holdfast.connect(f"etcd://127.0.0.1:{minority.port}") as locks,
        holdfast.connect(rivals_url) as rivals,
    ):
        lease = await locks.lock("x", ttl=2.0).acquire()
        lost: list[object] = []
        clock = lease._hold._session.clock
        lease.on_lost(lost.append)
        cluster.cut_off(minority)
        rival = await rivals.lock("x").acquire(timeout=20.0)
        assert not lease.held, "a rival holds it, and so does the holder"
        await eventually(lambda: lost)
        assert rival.token > lease.token
        with pytest.raises(holdfast.BackendUnavailable, match=r"no leader|did not answer in time"):
            # What this member still knows is not asked for: no stale read decides.
            await locks._live.backend.inspect("x", clock.now() + 1.6)  # type: ignore[union-attr]
        cluster.heal()


async def test_a_leader_that_wakes_up_after_the_ttl_may_revoke_but_never_unnoticed(
    cluster: EtcdCluster,
) -> None:
    leader = cluster.leader()
    others = [member for member in cluster.members if member is not leader]
    url = "etcd://" + ",".join(f"127.0.0.1:{member.port}" for member in others)
    async with holdfast.connect(url) as locks:
        lease = await locks.lock("x", ttl=1.0).acquire(timeout=10.0)
        leader.pause()
        await pause(1.5)  # renewed by the new leader, or lost if the election took too long
        leader.resume()
        cluster.wait_ready()

        async def agree() -> bool:
            holders = (await locks.inspect("x")).holders
            return lease.held == ([one.token for one in holders] == [lease.token])

        await eventually(agree)
        assert lease.held or lease.state == "lost"


async def test_every_member_restarts_in_turn_and_nothing_is_lost(cluster: EtcdCluster) -> None:
    async with holdfast.connect(cluster.url) as locks:
        leases = [await locks.lock(f"n{number}", ttl=15.0).acquire() for number in range(20)]
        lost: list[object] = []
        for lease in leases:
            lease.on_lost(lost.append)
        for member in cluster.members:
            member.kill()
            member.start()
            cluster.wait_ready(member)
        for lease in leases:
            await lease.renew()
        assert lost == []
        tokens = {lease.name: lease.token for lease in leases}
        assert {state.name: state.token for state in await locks.list()} == tokens
