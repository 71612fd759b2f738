"""Sessions that end, znodes that a foreign hand removes, locks that are cleaned up, TTLs."""

from __future__ import annotations

from typing import Any

import pytest

from _async.many import TTL, hold_many
from _async.waiting import until_waiting
from holdfast import aio as holdfast
from holdfast.chaos.servers.zookeeper import TICK, ZooKeeperEnsemble, lock_path, raw_client
from holdfast.entries import Claim
from holdfast.stores.zookeeper import connection
from stores import zookeeper_ensemble
from worlds.aio import Job, eventually


async def expire(locks: holdfast.Locks) -> None:
    """Ends every session of this manager, as the ensemble does with one that it does not hear of."""
    backend: Any = (await locks._session()).backend
    for session in backend._attempts._sessions.values():
        identity = session.client.client_id
        with raw_client(zookeeper_ensemble().hosts, client_id=identity):
            pass  # leaving closes the session, for all clients that have it


async def test_a_lease_whose_session_ended_is_lost_at_once(url: str) -> None:
    async with holdfast.connect(url) as locks, holdfast.connect(url) as others:
        lease = await locks.lock("x").acquire()
        rival = Job(others.lock("x").acquire)
        await until_waiting(others, 1)
        await expire(locks)
        assert (await rival.result()).token > lease.token
        await eventually(lambda: not lease.held)
        assert await lease.release() is False
        again = await locks.lock("y").acquire()  # on a new session
        assert again.held


async def test_an_ensemble_that_lost_its_data_is_used_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It refuses whoever has seen later writes, with no word."""
    monkeypatch.setattr(connection, "LONGEST_REFUSAL", 0.5)
    ensemble = ZooKeeperEnsemble([("127.0.0.1", ())])
    try:
        async with holdfast.connect(ensemble.url, tick=TICK) as locks:
            lease = await locks.lock("x", ttl=2.0).acquire(timeout=10.0)
            for _ in range(20):
                await (await locks.lock("y", ttl=2.0).acquire()).release()
            (node,) = ensemble.nodes
            node.kill()
            node.wipe()
            node.start()
            ensemble.ready()
            await eventually(lambda: not lease.held)

            async def granted() -> bool:
                try:
                    return await locks.lock("x", ttl=2.0).try_acquire() is not None
                except holdfast.BackendUnavailable:
                    return False

            await eventually(granted)
    finally:
        ensemble.stop()


async def test_a_late_report_of_a_lost_connection_is_ignored(url: str) -> None:
    async with holdfast.connect(url) as locks:
        lease = await locks.lock("x").acquire()
        backend: Any = (await locks._session()).backend
        for session in backend._attempts._sessions.values():
            session._on_lost()  # from a thread that was held up until there was another connection
        await lease.renew()
        assert await lease.release() is True


async def test_a_waiter_whose_session_ended_enrols_again(url: str) -> None:
    async with holdfast.connect(url) as locks, holdfast.connect(url) as others:
        lease = await others.lock("x").acquire()
        waiter = Job(locks.lock("x").acquire)
        await until_waiting(others, 1)
        (before,) = (await others.inspect("x")).waiters
        await expire(locks)

        async def enrolled() -> bool:
            present = (await others.inspect("x")).waiters
            return [one.owner for one in present] not in ([], [before.owner])

        await eventually(enrolled)
        await lease.release()
        second = await waiter.result()
        assert second.token > lease.token
        (holder,) = (await others.inspect("x")).holders
        assert holder.owner == second.owner != before.owner


async def test_a_waiter_whose_znode_was_removed_enrols_again(url: str, raw: Any) -> None:
    async with holdfast.connect(url) as locks, holdfast.connect(url) as others:
        lease = await others.lock("x").acquire()
        waiter = Job(locks.lock("x").acquire)
        await until_waiting(others, 1)
        path = lock_path(url, "x")
        for child in raw.get_children(path):
            if not child.startswith(lease.owner):
                raw.delete(f"{path}/{child}")
        await until_waiting(others, 1)
        await lease.release()
        second = await waiter.result()
        (holder,) = (await others.inspect("x")).holders
        assert holder.owner == second.owner
        (holder,) = (await locks.inspect("x")).holders
        assert (holder.owner, holder.token) == (second.owner, second.token)


async def test_a_holder_whose_znode_was_removed_is_told_at_once(url: str, raw: Any) -> None:
    async with holdfast.connect(url) as locks:
        lease = await locks.lock("x", ttl=30.0).acquire()
        await lease.renew()  # from the first renewal on it is watched
        path = lock_path(url, "x")
        raw.delete(f"{path}/{raw.get_children(path)[0]}")
        assert await lease.wait_lost(timeout=5.0) is True


async def test_the_lock_s_znode_is_removed_and_tokens_and_order_go_on(url: str, raw: Any) -> None:
    async with holdfast.connect(url) as locks:
        first = await locks.lock("x").acquire()
        await first.release()
        path = lock_path(url, "x")
        await eventually(lambda: not raw.exists(path))
        assert (await locks.inspect("x")).token >= first.token
        second = await locks.lock("x").acquire()
        assert second.token > first.token
        assert raw.get_children(path)[0].endswith(",0000000000")


async def test_the_whole_namespace_may_vanish(url: str, raw: Any) -> None:
    async with holdfast.connect(url) as locks:
        await (await locks.lock("x").acquire()).release()
        raw.delete(f"/{url.rpartition('/')[2]}", recursive=True)
        lease = await locks.lock("x", ttl=3.0).acquire()
        await lease.renew()
        assert lease.held


async def test_the_znodes_that_prove_sessions_may_vanish_with_their_parent(
    url: str, raw: Any
) -> None:
    """Nothing could be renewed or granted any more: no write was answered."""
    async with holdfast.connect(url) as locks:
        lease = await locks.lock("x", ttl=3.0).acquire()
        raw.delete(f"/{url.rpartition('/')[2]}/holdfast/sessions", recursive=True)

        async def renewed() -> bool:
            try:
                await lease.renew()
            except holdfast.BackendUnavailable:
                return False
            return True

        await eventually(renewed)
        await (await locks.lock("y", ttl=3.0).acquire(timeout=10.0)).release()
        assert await lease.release() is True


async def test_ttls_are_rounded_to_what_a_session_can_give(url: str) -> None:
    async with holdfast.connect(url) as locks:
        assert (await locks.lock("a", ttl=0.2).acquire(timeout=10.0)).ttl == 1.0
        assert (await locks.lock("b", ttl=7.0).acquire()).ttl == 10.0
        assert (await locks.lock("c", ttl=30.0).acquire()).ttl == 30.0
        longest = (await locks.lock("d", ttl=3600.0).acquire()).ttl
        assert (
            longest == 98.333
        )  # the ensemble gives 120 s at the most, of which a part is kept back
        assert (await locks.lock("e", ttl=86400.0).acquire()).ttl == longest
        assert (await locks.lock("f", ttl=0.2, renew=False).acquire(timeout=10.0)).ttl == 0.2
        backend: Any = (await locks._session()).backend
        assert len(backend._attempts._sessions) == 4


@pytest.mark.parametrize(("asked", "given"), [(7.0, 10.0), (3600.0, 98.333)])
async def test_a_waiter_is_given_what_a_session_can_give(
    url: str, asked: float, given: float
) -> None:
    # With a claim window that is longer than any session: that must not be counted on either.
    async with holdfast.connect(url, claim_window=1000.0) as locks:
        holder = await locks.lock("x").acquire()
        waiter = Job(locks.lock("x", ttl=asked).acquire)
        await until_waiting(locks, 1)
        await holder.release()
        lease = await waiter.result()
        assert lease.ttl == given
        assert lease.remaining() <= given
        await lease.renew()
        assert given - 3.0 < lease.remaining() <= given
        # As a heartbeat finds it, or a repeated acquire, rather than its watch.
        backend: Any = (await locks._session()).backend
        claim = Claim("x", lease.owner, asked)
        (outcome,) = await backend.renew([claim], backend.clock.now() + 5.0)
        assert (outcome.token, outcome.ttl) == (lease.token, given)
        await lease.renew(asked)
        assert lease.ttl == given  # by which the keeper goes


async def test_digest_credentials_keep_others_out(url: str) -> None:
    chroot = url.rpartition("/")[2]
    hosts = zookeeper_ensemble().hosts
    async with holdfast.connect(f"zookeeper://ann:s3cret@{hosts}/{chroot}") as locks:
        assert "s3cret" not in repr(locks) + locks.url
        lease = await locks.lock("x").acquire()
        assert (await locks.inspect("x")).holders[0].owner == lease.owner
        async with holdfast.connect(f"zookeeper://ann:s3cret@{hosts}/{chroot}") as same:
            assert await same.lock("x").try_acquire() is None
        with pytest.raises(holdfast.ConfigError, match="does not let us") as refused:
            async with holdfast.connect(f"zookeeper://bob:wr0ng@{hosts}/{chroot}"):
                pass
        assert "wr0ng" not in str(refused.value)
        assert await lease.release() is True


async def test_the_token_is_above_grants_that_ended_before_the_queue_was_read(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with holdfast.connect(url) as others, holdfast.connect(url) as locks:
        first = await others.lock("x").acquire()
        second = Job(others.lock("x").acquire)
        await until_waiting(others, 1)
        backend: Any = (await locks._session()).backend
        attempts = backend._attempts
        send = attempts._send
        late: list[tuple[Any, ...]] = []

        def send_later(attempt: Any, request: Any, on_reply: Any) -> None:
            if on_reply.__name__ == "_on_listed":
                late.append((attempt, request, on_reply))
            else:
                send(attempt, request, on_reply)

        monkeypatch.setattr(attempts, "_send", send_later)
        third = Job(locks.lock("x").acquire)
        await until_waiting(others, 2)
        monkeypatch.undo()
        await first.release()
        between = await second.result()
        assert between.token > first.token
        await between.release()
        with attempts.mutex:
            send(*late[0])
        assert (await third.result()).token > between.token


async def test_many_locks_cost_no_thread_and_no_watch_each(url: str) -> None:
    async with holdfast.connect(url, tick=TICK) as locks:
        first = await locks.lock("first", ttl=TTL).acquire()
        await first.renew()
        leases = await hold_many(locks)
        for lease in leases:
            assert await lease.release() is True
        backend: Any = (await locks._session()).backend
        # ZooKeeper tells us of the end of each znode that we watched, and that ends the watch.
        sessions = backend._attempts._sessions.values()
        await eventually(lambda: all(len(one._watches) <= 1 for one in sessions))
        # And one watch for each session, on the forced releases.
        await eventually(lambda: all(len(one.client._data_watchers) <= 2 for one in sessions))
        assert list(backend._attempts._attempts) == [first.owner]
