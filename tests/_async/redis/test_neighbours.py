"""Plain clients of other languages on the same keys; what is left on the server; odd options."""

from __future__ import annotations

import sys

import pytest

from _async.waiting import until_waiting
from holdfast import aio as holdfast
from holdfast.chaos.servers.redis import RedisServer
from holdfast.entries import Claim
from holdfast.model import Renewed, Unknown
from stores import redis_server
from worlds.aio import Job, eventually

COMPARE_AND_DELETE = (
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0"
)


@pytest.fixture
def server() -> RedisServer:
    made = redis_server()
    made("FLUSHALL")
    return made


async def test_ours_holds_others_off_and_they_cannot_free_it(server: RedisServer) -> None:
    async with holdfast.connect(server.url, namespace="shop") as locks:
        lease = await locks.lock("x", ttl=20.0).acquire()
        assert server("TYPE", "shop:{x}") == b"string"
        assert 15_000 < server("PTTL", "shop:{x}") <= 20_000
        assert server("SET", "shop:{x}", "theirs", "NX", "PX", 1000) is None
        assert server("EVAL", COMPARE_AND_DELETE, 1, "shop:{x}", "theirs") == 0
        await lease.renew()
        permit = await locks.semaphore("pool", permits=2).acquire()
        assert server("SET", "shop:{pool}", "theirs", "NX", "PX", 1000) is None
        assert permit.held


async def test_theirs_holds_us_off_until_it_ends(server: RedisServer) -> None:
    async with holdfast.connect(server.url, heartbeat=0.5) as locks:
        assert server("SET", "holdfast:{x}", "theirs", "NX", "PX", 60_000) == b"OK"
        for lock in (locks.lock("x"), locks.semaphore("x", permits=2), locks.lock("x", fair=False)):
            assert await lock.try_acquire() is None
        state = await locks.inspect("x")
        assert state.held
        assert "theirs" not in str(state)  # it is a secret of theirs
        waiter = Job(locks.lock("x").acquire)

        await until_waiting(locks)
        with pytest.raises(holdfast.ConfigError, match="in use as a lock"):
            await locks.semaphore("x", permits=2).try_acquire()
        assert server("EVAL", COMPARE_AND_DELETE, 1, "holdfast:{x}", "theirs") == 1
        # Their release wakes nobody; the heartbeat notices.
        assert (await waiter.result()).held


async def test_something_else_in_place_of_one_lock_is_no_loss_of_the_others(
    server: RedisServer,
) -> None:
    async with holdfast.connect(server.url) as locks:
        leases = [await locks.lock(name, ttl=20.0).acquire() for name in ("a", "b", "c")]
        backend = (await locks._session()).backend
        claims = [Claim(lease.name, lease.owner, 20.0) for lease in leases]
        server("DEL", "holdfast:{b}")
        server("LPUSH", "holdfast:{b}", "theirs")

        async def renewed(some: list[Claim]) -> list[type]:
            outcomes = await backend.renew(some, backend.clock.now() + 5.0)
            return [type(outcome) for outcome in outcomes]

        assert await renewed(claims) == [Renewed, Unknown, Renewed]
        with pytest.raises(holdfast.BackendUnavailable, match="WRONGTYPE"):
            await renewed([claims[1]])


async def test_a_lock_that_they_deleted_is_lost_and_not_re_created(server: RedisServer) -> None:
    async with holdfast.connect(server.url) as locks:
        lease = await locks.lock("x").acquire()
        permit = await locks.semaphore("pool", permits=2).acquire()
        server("DEL", "holdfast:{x}", "holdfast:{pool}")
        for one in (lease, permit):
            with pytest.raises(holdfast.LeaseLost):
                await one.renew()
        assert await locks.list() == []
        assert (await locks.semaphore("pool", permits=2).acquire()).token > permit.token


async def test_waiters_whose_queue_was_deleted_are_served(server: RedisServer) -> None:
    async with holdfast.connect(server.url, heartbeat=0.1) as locks:
        lease = await locks.lock("x").acquire()
        waiters = [Job(locks.lock("x").acquire) for _ in range(2)]

        async def wait() -> bool:
            return len((await locks.inspect("x")).waiters) == 2

        await eventually(wait)
        server("DEL", "holdfast:{x}:q")
        await lease.release()
        for _ in range(2):
            await eventually(lambda: any(job.done() for job in waiters))
            (done,) = [job for job in waiters if job.done()]
            waiters.remove(done)
            assert await (await done.result()).release() is True


async def test_a_lock_of_which_a_part_was_deleted_is_looked_at_like_any_other(
    server: RedisServer,
) -> None:
    async with holdfast.connect(server.url) as locks:
        permits = [await locks.semaphore("pool", permits=2).acquire() for _ in range(2)]
        server("DEL", "holdfast:{pool}:e")
        for permit in permits:
            await permit.renew()
        assert len((await locks.inspect("pool")).holders) == 2
        assert await locks.semaphore("pool", permits=2).try_acquire() is None
        await locks.lock("x").acquire()
        server("DEL", "holdfast:{pool}:h")
        assert (await locks.inspect("pool")).holders == ()
        assert [state.name for state in await locks.list()] == ["x"]
        for counter in server("KEYS", "holdfast:token:*"):
            server("SET", counter, "nonsense")
        assert (await locks.inspect("pool")).token == 0
        server("SET", "holdfast:{pool}:f", "nonsense")
        assert (await locks.inspect("pool")).token == 0
        with pytest.raises(holdfast.LeaseLost):
            await permits[0].renew()
        new = await locks.semaphore("pool", permits=2).acquire()
        assert new.token > permits[1].token


@pytest.mark.parametrize(
    "value",
    [
        "hf1\x1f",
        "hf2\x1fme",
        "hf1\x1fme\x1f7\x1f\x1f1\x1f1\x1flock",
        "hf1\x1f\x1f\x1f\x1f",
        "hf3\x1fme\x1fx",
        "hf3\x1fme\x1f7\x1f\x1f1\x1f8\x1fsemaphore",
    ],
)
async def test_what_begins_like_ours_and_cannot_be_read_is_shown_as_a_strangers(
    server: RedisServer, value: str
) -> None:
    async with holdfast.connect(server.url) as locks:
        lease = await locks.lock("mine").acquire()
        server("SET", "holdfast:{x}", value, "PX", 600_000)
        server("RPUSH", "holdfast:{mine}:q", "nobody")
        server("SET", "holdfast:{mine}:q:nobody", value)
        (holder,) = (await locks.inspect("x")).holders
        assert holder.label.text == "not a holdfast client"
        assert 500.0 < holder.remaining <= 600.0
        states = {state.name: state for state in await locks.list()}
        assert states["x"].holders == (holder._replace(remaining=states["x"].holders[0].remaining),)
        assert states["mine"].holders[0].owner == lease.owner
        assert states["mine"].waiters == ()
        assert await locks.force_release("x") is True
        assert await locks.lock("x").try_acquire() is not None


async def test_the_name_of_the_lock_key_can_be_chosen(server: RedisServer) -> None:
    async with holdfast.connect(server.url, key="lock:*") as locks:
        server("SET", "lock:theirs", "x", "PX", 60_000)
        assert await locks.lock("theirs").try_acquire() is None
        lease = await locks.lock("job:7").acquire()
        assert server("PTTL", "lock:job:7") > 0
        waiter = Job(locks.lock("job:7").acquire)

        async def waits() -> bool:
            return len((await locks.inspect("job:7")).waiters) == 1

        await eventually(waits)
        assert [state.name for state in await locks.list()] == ["job:7", "theirs"]
        await lease.release()
        assert (await waiter.result()).held
    for bad in ("lock", "lock:*:*", "{lock}:*", 7):
        with pytest.raises(holdfast.ConfigError, match="key"):
            holdfast.connect(server.url, key=bad)  # type: ignore[arg-type]


async def test_namespaces_with_braces_do_not_meet(server: RedisServer) -> None:
    async with (
        holdfast.connect(server.url, namespace="a") as first,
        holdfast.connect(server.url, namespace="a:{b") as second,
    ):
        await first.lock("b:{c").acquire()
        assert await second.lock("c").try_acquire() is not None
        assert [state.name for state in await second.list()] == ["c"]


async def test_any_number_of_names_leaves_a_bounded_number_of_keys(server: RedisServer) -> None:
    async with holdfast.connect(server.url) as locks:
        for number in range(2000):
            await (await locks.lock(f"order:{number}").acquire()).release()
        assert server("DBSIZE") <= 256
        lease = await locks.semaphore("pool", permits=3).acquire()
        assert await locks.lock("order:1").try_acquire(timeout=0.0) is not None
        await lease.release()
        left = {key.decode() for key in server("KEYS", "*")}
        assert {key for key in left if ":token:" not in key} == {"holdfast:{order:1}"}


async def test_a_forced_release_is_audited(server: RedisServer) -> None:
    async with holdfast.connect(server.url, label="ops") as locks:
        await locks.lock("x").acquire()
        await locks.force_release("x")
        (record,) = server("LRANGE", "holdfast:audit", 0, -1)
        assert b"ops" in record
        assert record.endswith(b"released x")
        server("RPUSH", "holdfast:audit", *["older"] * 1000)
        await locks.force_release("x")
        assert server("LLEN", "holdfast:audit") == 1000


async def test_a_missing_driver_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "hiredis", None)
    monkeypatch.setattr("holdfast.stores.redis.wire.protocol.find_spec", lambda name: None)
    with pytest.raises(holdfast.ConfigError, match=r"pip install 'holdfast-locks\[redis\]'"):
        holdfast.connect("redis://127.0.0.1:1")


@pytest.mark.parametrize(
    "url",
    [
        "redis://",
        "redis://:0",
        "redis://host:port",
        "redis://host:99999",
        "redis://host/notanumber",
        "redis://host/0/1",
        "redis://u:s3cret@",
        "redis://u:s3/cret@host",
        "redis+unix://host/path",
        "redis://[::1",
        "redis://host?tls_ca=x",
        "redis://host?nonsense=1",
        "redis://a..b",
        "redis://.",
        f"redis://{'a' * 64}.example",
        "redis://ho%00st",
        "redis://ho\udcffst",
        "redis://u:s3cret\udcff@host",
        "redis://u:s3cret%00@host",
        "redis+unix:///path/with%00zero",
        "redis://host/1?db=2",
        "redis+sentinel://host/name/1?db=2",
    ],
)
async def test_a_bad_url_is_refused_without_showing_a_secret(url: str) -> None:
    with pytest.raises(holdfast.ConfigError) as raised:
        holdfast.connect(url)
    assert "s3" not in str(raised.value)
    assert "cret" not in str(raised.value)


@pytest.mark.parametrize(
    "url",
    [
        "redis://u:s3,cret@127.0.0.1:6379/0",
        "redis+unix://u:s3,cret@/path",
        "redis+sentinel://u:s3,cret@h1,h2/name",
        "redis+cluster://u:s3,cret@h1,h2",
        "redlock://u:s3cret@h1,u:s3cret@h2,u:s3cret@h3",
    ],
)
async def test_a_password_with_a_comma_is_not_shown_in_part(url: str) -> None:
    locks = holdfast.connect(url)
    assert "s3" not in repr(locks) + locks.url
    assert "u:" not in repr(locks) + locks.url
    assert "h2" in locks.url or "h2" not in url


async def test_an_unreachable_server_is_said_to_be() -> None:
    said = "^cannot reach the server at 127.0.0.1:1: Connection refused$"
    with pytest.raises(holdfast.BackendUnavailable, match=said) as raised:
        async with holdfast.connect("redis://user:s3cret@127.0.0.1:1/0"):
            pass
    causes: list[BaseException] = [raised.value]
    while (before := causes[-1].__context__) is not None:
        causes.append(before)
    # Nothing but the refusal is told: no other error was under way.
    assert [type(one) for one in causes] == [holdfast.BackendUnavailable, ConnectionRefusedError]
