"""Sentinels that fail over, on command, by a crash or after a stand-still; and those that are gone."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations

import pytest

from holdfast import aio as holdfast
from holdfast._async import session
from holdfast.chaos.servers.proxy import Proxy
from holdfast.chaos.servers.redis import RedisServer
from holdfast.chaos.servers.sentinel import NAME, Sentinel, Watch
from stores import redis_watch
from worlds.aio import Job, eventually


@pytest.fixture
def watch() -> Iterator[Watch]:
    made = Watch()
    yield made
    made.stop()


async def waits(locks: holdfast.Locks, number: int = 1) -> None:
    async def there() -> bool:
        try:
            return len((await locks.inspect("x")).waiters) == number
        except holdfast.BackendUnavailable:
            return False

    await eventually(there)


async def in_time(locks: holdfast.Locks, name: str) -> holdfast.Lease:
    """Repeats a call until there is a primary again: one call raises after 5 seconds."""
    leases: list[holdfast.Lease] = []

    async def asked() -> bool:
        try:
            leases.append(await locks.lock(name).acquire(timeout=20.0))
        except holdfast.BackendUnavailable:
            return False
        return True

    await eventually(asked)
    return leases[0]


def demoted(server: RedisServer) -> bool:
    try:
        return b"role:slave" in server("INFO", "replication")
    except OSError:
        return False  # sentinels hang up on everybody then, on us too


async def replicated(watch: Watch, key: str) -> None:
    await eventually(lambda: watch.replica("EXISTS", key) == 1)


@pytest.mark.parametrize("how", ["asked to", "killed", "demoted by hand"])
async def test_holders_and_waiters_outlive_a_failover(watch: Watch, how: str) -> None:
    async with holdfast.connect(watch.url, heartbeat=0.2) as locks:
        lease = await locks.lock("x", ttl=30.0).acquire()
        waiters = [Job(locks.lock("x").acquire) for _ in range(2)]
        await waits(locks, 2)
        before = watch.primary
        await eventually(lambda: watch.replica("LLEN", "holdfast:{x}:q") == 2)
        if how == "asked to":
            watch.fail_over()
        elif how == "killed":
            before.kill()
        else:
            before("REPLICAOF", "127.0.0.1", 1)  # its connections stay: it answers READONLY
        other = await in_time(locks, "y")  # waits for the failover, if it has to
        assert other.token > lease.token
        assert watch.primary is not before
        if how == "asked to":
            # The old primary has not been told yet, and grants what will be lost. It is left soon.
            last = other
            while not watch.primary("EXISTS", "holdfast:{y}"):
                await last.release()
                last = await in_time(locks, "y")
            assert last.token > lease.token
        await lease.renew()
        await waits(locks, 2)
        assert await lease.release() is True
        tokens = [lease.token]
        while waiters:
            await eventually(lambda: any(job.done() for job in waiters))
            (done,) = [job for job in waiters if job.done()]
            waiters.remove(done)
            granted = await done.result()
            tokens.append(granted.token)
            assert await granted.release() is True
        assert tokens == sorted(tokens)


async def test_a_request_to_a_primary_that_stands_still_is_not_granted_twice(watch: Watch) -> None:
    async with holdfast.connect(watch.url, heartbeat=0.2) as locks:
        lease = await locks.lock("held", ttl=20.0).acquire()
        await replicated(watch, "holdfast:{held}")
        before = watch.primary
        (await locks._session()).patience = 1.0
        before.pause()
        try:
            asking = Job(locks.lock("x").try_acquire)
            watch.await_(lambda: watch.primary is not before)
            # Asked again at the new primary, or given up.
            failed = await asking.error()
            assert failed is None or isinstance(failed, holdfast.BackendUnavailable)
            second = None if failed else await asking.result()
            # The holder's renewals find the new primary by themselves.
            key = "holdfast:{held}"
            left = watch.primary("PTTL", key)
            (await locks._session()).look_at([lease.owner])
            await eventually(lambda: watch.primary("PTTL", key) > left)
            assert lease.held
            (await locks._session()).patience = session.IO_LIMIT
            second = second or await in_time(locks, "x")
        finally:
            watch.hurry()
            before.resume()
        # What had been sent to the old primary happens there now, and is forgotten with its data.
        await eventually(lambda: demoted(before))
        assert second.held
        (holder,) = (await locks.inspect("x")).holders
        assert (holder.owner, holder.token) == (second.owner, second.token)


async def test_a_failover_that_forgets_is_declared_and_tokens_go_on_rising() -> None:
    watch = Watch()
    line = Proxy(watch.first.port)
    try:
        watch.second("REPLICAOF", "127.0.0.1", line.port)
        await eventually(lambda: b"link_status:up" in watch.second("INFO", "replication"))
        async with holdfast.connect(watch.url, heartbeat=0.2) as locks:
            assert "forget" in locks.guarantees.consistency
            kept = await locks.lock("kept", ttl=30.0).acquire()
            await replicated(watch, "holdfast:{kept}")
            line.close()  # from now on nothing is replicated
            forgotten = await locks.lock("x", ttl=30.0).acquire()
            watch.first.kill()
            second = await in_time(locks, "x")
            assert second.token > forgotten.token
            await eventually(lambda: watch.primary is watch.second)
            # Its holder finds out when it asks; what was replicated is held.
            with pytest.raises(holdfast.LeaseLost):
                await forgotten.renew()
            await kept.renew()
            assert await kept.release() is True
    finally:
        line.close()
        watch.stop()


async def test_a_primary_that_does_not_know_that_it_was_replaced_is_left() -> None:
    """Cuts the primary off from the sentinels, not from us: it would go on granting."""
    servers: list[RedisServer] = []
    try:
        old, new = RedisServer(), RedisServer()
        servers += [old, new]
        sentinel = Sentinel(old.port)
        servers.append(sentinel)
        old("SET", "holdfast:{x}", "somebody else's")
        url = f"redis+sentinel://127.0.0.1:{sentinel.port}/{NAME}"
        async with holdfast.connect(url, heartbeat=0.2) as locks:
            waiter = Job(locks.lock("x").acquire)
            await waits(locks)
            sentinel("SENTINEL", "REMOVE", NAME)
            sentinel("SENTINEL", "MONITOR", NAME, "127.0.0.1", new.port, 2)

            async def moved() -> bool:
                await (await locks.lock("y").acquire()).release()
                return bool(new("DBSIZE"))

            await eventually(moved)
            lease = await waiter.result()
            assert lease.owner.encode() in new("GET", "holdfast:{x}")
    finally:
        for server in servers:
            server.stop()


async def test_of_sentinels_that_disagree_those_who_know_the_latest_failover_count() -> None:
    servers: list[RedisServer] = []
    try:
        old, new = RedisServer(), RedisServer()
        servers += [old, new]
        first = Sentinel(old.port)
        second = Sentinel(new.port, f"sentinel config-epoch {NAME} 7")
        servers += [first, second]
        for one, other in ((first, second), (second, first)):
            url = f"redis+sentinel://127.0.0.1:{one.port},127.0.0.1:{other.port}/{NAME}"
            async with holdfast.connect(url) as locks:
                await (await locks.lock("x").acquire()).release()
        assert old("DBSIZE") == 0
        assert new("DBSIZE") == 1
    finally:
        for server in servers:
            server.stop()


async def test_the_one_sentinel_that_knows_of_the_latest_failover_counts() -> None:
    """Most have not heard of it yet, and the old primary is back: it calls itself the primary."""
    servers: list[RedisServer] = []
    try:
        old, new = RedisServer(), RedisServer()
        servers += [old, new]
        late = [Sentinel(old.port), Sentinel(old.port)]
        servers += late
        latest = Sentinel(new.port, f"sentinel config-epoch {NAME} 7")
        servers.append(latest)
        for order in permutations([*late, latest]):
            hosts = ",".join(f"127.0.0.1:{one.port}" for one in order)
            async with holdfast.connect(f"redis+sentinel://{hosts}/{NAME}") as locks:
                await (await locks.lock("x").acquire()).release()
        assert old("DBSIZE") == 0
        assert new("DBSIZE") == 1
    finally:
        for server in servers:
            server.stop()


async def test_sentinels_that_are_gone_or_stand_still_are_passed_over(watch: Watch) -> None:
    watch.sentinels[0].kill()
    watch.sentinels[1].pause()
    try:
        async with holdfast.connect(watch.url) as locks:
            assert await locks.lock("x").try_acquire() is not None
    finally:
        watch.sentinels[1].resume()
    for sentinel in watch.sentinels[1:]:
        sentinel.kill()
    with pytest.raises(holdfast.BackendUnavailable, match="no sentinel answers"):
        async with holdfast.connect(watch.url) as locks:
            pass


async def test_passwords_of_the_primary_and_of_the_sentinels_are_two() -> None:
    watch = Watch(password="s3cret", sentinel_password="sesame")
    try:
        url = watch.url.replace("//", "//:s3cret@")
        async with holdfast.connect(url, sentinel_password="sesame") as locks:
            assert "s3cret" not in repr(locks)
            assert await locks.lock("x").try_acquire() is not None
        bad = {url: "", url.replace("s3cret", "wr0ng"): "sesame"}
        for given, word in bad.items():
            with pytest.raises(holdfast.ConfigError, match="does not let us in") as raised:
                async with holdfast.connect(given, sentinel_password=word) as locks:
                    await locks.lock("x").try_acquire()
            assert not {"s3cret", "wr0ng", "sesame"} & set(str(raised.value).split())
    finally:
        watch.stop()


async def test_what_is_named_must_be_what_it_is(watch: Watch) -> None:
    wrong = {
        watch.url.replace(NAME, "nobody"): "know no primary called 'nobody'",
        f"redis://127.0.0.1:{watch.sentinels[0].port}": "is a sentinel, and not a single server",
        f"redis+sentinel://127.0.0.1:{watch.first.port}/{NAME}": "and not a sentinel",
    }
    for url, words in wrong.items():
        with pytest.raises(holdfast.ConfigError, match=words):
            async with holdfast.connect(url):
                pass


@pytest.mark.parametrize(
    "url",
    [
        "redis+sentinel://",
        "redis+sentinel://host",
        "redis+sentinel://host/",
        "redis+sentinel://host,/name",
        "redis+sentinel://host:0/name",
        "redis+sentinel://host/name/db",
        "redis+sentinel://u:s3cret@/name",
        "redis+sentinel://u:12/s3cret@host/0",
        "redis+sentinel://u:s3cret@h1,u:s3cret@h2/name",
        "redis+sentinel://host/name?tls=2",
    ],
)
async def test_a_bad_url_is_refused_without_showing_a_secret(url: str) -> None:
    with pytest.raises(holdfast.ConfigError) as raised:
        holdfast.connect(url)
    assert "s3cret" not in str(raised.value)


async def test_sentinels_that_are_only_slow_are_waited_for() -> None:
    watch = redis_watch()
    line = Proxy(watch.sentinels[0].port)
    line.delay = 0.8  # longer than a sentinel has, while there are others to be asked
    try:
        async with holdfast.connect(f"redis+sentinel://127.0.0.1:{line.port}/{NAME}") as locks:
            assert (await locks.lock("x").acquire(timeout=10.0)).held
    finally:
        line.close()
