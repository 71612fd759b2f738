"""ACLs, the ensemble's limits, and sessions that nothing is on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from kazoo.security import OPEN_ACL_UNSAFE, READ_ACL_UNSAFE, make_digest_acl

from holdfast import aio as holdfast
from holdfast.chaos.servers.zookeeper import TICK, ZooKeeperEnsemble, raw_client
from holdfast.stores.zookeeper import session
from holdfast.stores.zookeeper._async import inspection
from stores import zookeeper_ensemble
from worlds.aio import eventually, pause

ANN = make_digest_acl("ann", "s3cret", all=True)


@pytest.fixture
def raw() -> Iterator[Any]:
    with raw_client(zookeeper_ensemble().hosts) as client:
        client.add_auth("digest", "ann:s3cret")
        yield client


def path(url: str, *parts: str) -> str:
    return "/".join(["", url.rpartition("/")[2], "holdfast", *parts])


async def test_a_lock_that_we_may_not_read_is_not_called_free(url: str, raw: Any) -> None:
    async with holdfast.connect(url) as locks:
        lease = await locks.lock("x").acquire()
        raw.set_acls(path(url, "locks", "x"), [ANN])
        with pytest.raises(holdfast.ConfigError, match="does not let us work on the znodes of 'x'"):
            await locks.inspect("x")
        with pytest.raises(holdfast.ConfigError, match="does not let us"):
            await locks.force_release("x")
        with pytest.raises(holdfast.ConfigError, match="does not let us"):
            await locks.lock("x").try_acquire()
        with pytest.raises(holdfast.ConfigError, match="does not let us"):
            await locks.list()
        raw.set_acls(path(url, "locks", "x"), OPEN_ACL_UNSAFE)
        assert (await locks.inspect("x")).holders[0].owner == lease.owner
        assert await lease.release() is True


async def test_locks_that_we_may_not_list_are_not_called_free(url: str, raw: Any) -> None:
    async with holdfast.connect(url) as locks:
        await locks.lock("x").acquire()
        raw.set_acls(path(url, "locks"), [ANN])
        with pytest.raises(holdfast.ConfigError, match="cannot be listed"):
            await locks.list()
        raw.set_acls(path(url, "locks"), OPEN_ACL_UNSAFE)
        assert len(await locks.list()) == 1


async def test_a_waiter_whose_queue_may_not_be_read_any_more_is_told(url: str, raw: Any) -> None:
    async with holdfast.connect(url) as locks, holdfast.connect(url) as others:
        await others.lock("x").acquire()
        raw.set_acls(path(url, "locks", "x"), [ANN])
        with pytest.raises(holdfast.ConfigError, match="does not let us"):
            await locks.lock("x").acquire()
        backend: Any = (await locks._session()).backend
        await eventually(lambda: not backend._attempts._attempts)
        raw.set_acls(path(url, "locks", "x"), OPEN_ACL_UNSAFE)


async def test_a_lock_that_may_not_be_created_is_refused_with_the_reason(
    url: str, raw: Any
) -> None:
    async with holdfast.connect(url) as locks:
        await locks.semaphore("there", permits=2).acquire()
        raw.set_acls(path(url, "locks"), [ANN, *READ_ACL_UNSAFE])
        for lock in (locks.lock("new"), locks.semaphore("new", permits=2)):
            with pytest.raises(holdfast.ConfigError, match=r"the znodes of 'new' \(NoAuthError"):
                await lock.acquire(timeout=5.0)
        async with holdfast.connect(url) as others:  # which does not know that this one is there
            lease = await others.semaphore("there", permits=2).acquire(timeout=5.0)
            assert await lease.release() is True
        raw.set_acls(path(url, "locks"), OPEN_ACL_UNSAFE)
        assert (await locks.lock("new").acquire(timeout=5.0)).held


@pytest.mark.parametrize("when", ["it is there", "it is to be made"])
async def test_what_cannot_be_recorded_is_not_released_by_force(
    url: str, raw: Any, when: str
) -> None:
    async with holdfast.connect(url) as locks:
        if when == "it is there":
            await locks.lock("y").acquire()
            assert await locks.force_release("y") is True
            raw.set_acls(path(url, "audit"), READ_ACL_UNSAFE)
        else:
            raw.set_acls(path(url), READ_ACL_UNSAFE)
        lease = await locks.lock("x").acquire()
        with pytest.raises(holdfast.ConfigError, match="cannot be recorded"):
            await locks.force_release("x")
        await lease.renew()
        assert (await locks.inspect("x")).held


async def test_the_record_of_forced_releases_keeps_its_size(
    url: str, raw: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with holdfast.connect(url) as locks:
        monkeypatch.setattr(inspection, "AUDIT_SIZE", 600)
        for number in range(12):
            await locks.lock(f"x{number}").acquire()
            assert await locks.force_release(f"x{number}") is True
        text = raw.get(path(url, "audit"))[0].decode()
        assert len(text) < 800
        assert '"x11"' in text
        assert '"x0"' not in text


async def test_a_session_longer_than_was_asked_for_is_what_the_lease_says() -> None:
    options = "minSessionTimeout=20000\nmaxSessionTimeout=40000\n"
    ensemble = ZooKeeperEnsemble([("127.0.0.1", ())], options)
    try:
        async with holdfast.connect(ensemble.url, tick=TICK) as locks:
            lease = await locks.lock("a", ttl=2.0).acquire()
            assert lease.ttl == 16.25
            assert (await locks.lock("b", ttl=10.0).acquire()).ttl == lease.ttl
            assert (await locks.lock("c", ttl=2.0, renew=False).acquire()).ttl == 2.0
            await lease.renew()
            assert 10.0 < lease.remaining() <= lease.ttl
            backend: Any = (await locks._session()).backend
            assert len(backend._attempts._sessions) == 2
    finally:
        ensemble.stop()


async def test_sessions_that_nothing_is_on_are_closed(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "IDLE", 0.4)
    async with holdfast.connect(url, tick=TICK) as locks:
        for ttl in (10.0, 20.0, 60.0):
            await (await locks.lock("x", ttl=ttl).acquire(timeout=10.0)).release()
        lease = await locks.lock("y", ttl=30.0).acquire(timeout=10.0)
        backend: Any = (await locks._session()).backend
        sessions = backend._attempts._sessions
        await eventually(lambda: list(sessions) == [30.0])
        await pause(1.0)
        await lease.renew()
        assert await lease.release() is True
        await eventually(lambda: not sessions)
        assert not (await locks.inspect("x")).held  # by a session that is opened again
        assert (await locks.lock("x", ttl=10.0).acquire()).held


async def test_idle_managers_write_nothing(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "IDLE", 0.4)
    ensemble = zookeeper_ensemble()

    def zxid() -> int:
        lines = ensemble.leader().ask("srvr").splitlines()
        return next(int(line.split()[1], 16) for line in lines if line.startswith("Zxid"))

    managers = [holdfast.connect(url, tick=TICK) for _ in range(5)]
    try:
        for locks in managers:
            await (await locks.lock("x", ttl=10.0).acquire()).release()
            backend: Any = (await locks._session()).backend
            await eventually(lambda one=backend: not one._attempts._sessions)  # type: ignore[misc]
        await eventually(lambda: path(url, "sessions") not in ensemble.leader().ask("dump"))

        for _ in range(15):  # sessions that other tests have left behind end one after another
            before = zxid()
            await pause(4.0)  # longer than any of them would be silent
            if zxid() == before:
                break
        else:
            pytest.fail("somebody goes on writing")
    finally:
        for locks in managers:
            await locks.close()
