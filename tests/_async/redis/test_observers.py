"""Those who observe an election: what wakes them, what they miss nothing of, and what they leave."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import aclosing

import pytest

from _async.conformance.test_contract import LABEL, Bench, bench
from holdfast import aio as holdfast
from holdfast.chaos.servers.proxy import Proxy
from holdfast.chaos.servers.redis import NEEDED, RedisServer
from holdfast.model import Label, new_owner
from holdfast.stores._async.contract import Terms, Ticket
from worlds.aio import Job, eventually

DAY = 86_400_000
CHANGES, OBSERVERS = "holdfast:{x}:c", "holdfast:{x}:o"


@pytest.fixture
def proxy(server: RedisServer) -> Iterator[Proxy]:
    made = Proxy(server.port)
    made.about = b"EVALSHA"
    yield made
    made.close()


def candidate(text: str, name: str = "x", ttl: float = 60.0) -> Ticket:
    return Ticket(Terms(name, ttl, Label("host", 7, text), kind="election"), new_owner())


class Eye:
    """An observer of one election, and what it has seen."""

    def __init__(self, store: Bench, name: str = "x") -> None:
        self.store = store
        self.ticket = Ticket(Terms(name, 30.0, LABEL, kind="election"), new_owner())
        self.after = 0
        self.seen: list[str] = []

    async def look(self) -> list[str]:
        """Returns the values of the changes since the last look."""
        store = self.store
        observation = await store.backend.observe(self.ticket, self.after, store.deadline())
        values = []
        for change in observation.changes:
            assert change.number > self.after
            self.after = change.number
            values.append(change.label.text if change.owner else "nobody")
        self.seen += values
        return values

    async def woken(self) -> bool:
        before = self.store.clock.now()
        await self.store.backend.wait(self.ticket, before + 20.0)
        return self.store.clock.now() < before + 15.0

    async def follow(self, last: str) -> list[str]:
        """Looks and waits until it has seen `last`; returns all that it saw."""
        while last not in self.seen:
            if not await self.look():
                assert await self.woken()
        return self.seen


def connections(server: RedisServer) -> int:
    lines = server("CLIENT", "LIST").splitlines()
    return sum(b"name=holdfast" in line for line in lines)


async def test_a_thousand_elections_are_observed_on_one_connection(server: RedisServer) -> None:
    async with bench(server.url) as store, bench(server.url) as others:
        leaders = {f"e{n}": candidate("a", f"e{n}") for n in (0, 500, 999)}
        for leader in leaders.values():
            await others.grant(leader)
        before = connections(server)
        eyes = {f"e{n}": Eye(store, f"e{n}") for n in range(1000)}
        for eye in eyes.values():
            await eye.look()
        # In blocking code one listens, and the thread that calls has its own.
        assert connections(server) <= before + 2
        for name, leader in leaders.items():
            assert eyes[name].seen == ["a"]
            assert await others.release(leader) is True
            assert await eyes[name].woken()
            assert await eyes[name].look() == ["nobody"]
        told = [name for name, eye in eyes.items() if eye.ticket._told]
        assert sorted(told) == sorted(leaders)
        for eye in eyes.values():
            await store.backend.unobserve(eye.ticket, store.deadline())
        assert server("KEYS", "*:o") == []


async def test_nothing_is_missed_when_the_connection_breaks(
    server: RedisServer, proxy: Proxy
) -> None:
    async with bench(server.url) as others, bench(proxy.url) as store:
        eye = Eye(store)
        assert await eye.look() == []
        expected: list[str] = []
        for number in range(5):
            follower = Job(eye.follow, f"v{number}")
            leader = candidate(f"v{number}")
            proxy.hang_up()
            await others.grant(leader)
            expected.append(f"v{number}")
            await follower.result()
            if number % 2:
                proxy.hang_up()
            assert await others.release(leader) is True
            expected.append("nobody")
            while eye.seen != expected:
                if not await eye.look():
                    await eye.woken()
        await others.grant(candidate("last"))
        assert await eye.follow("last") == [*expected, "last"]


async def test_an_observer_is_told_when_its_connection_has_broken(
    server: RedisServer, proxy: Proxy
) -> None:
    async with bench(proxy.url) as store:
        eye = Eye(store)
        await eye.look()
        proxy.hang_up()
        assert await eye.woken()
        assert await eye.look() == []


async def test_all_that_is_left_of_an_election_ends_by_itself(server: RedisServer) -> None:
    async with bench(server.url) as others:
        leader = candidate("a")
        await others.grant(leader)
        async with bench(server.url) as store:
            eye = Eye(store)
            await eye.look()
            assert DAY - 60_000 < server("PTTL", CHANGES) <= DAY
            assert 0 < server("PTTL", OBSERVERS) <= 60_000
            assert server("ZCARD", OBSERVERS) == 1
        # Its manager is closed: nobody hears the next change, and the server drops it.
        await eventually(lambda: len(server("PUBSUB", "CHANNELS", "holdfast:wake:*")) == 0)
        assert await others.release(leader) is True
        assert server("EXISTS", OBSERVERS) == 0
        assert DAY - 60_000 < server("PTTL", CHANGES) <= DAY
        for number in range(100):
            one = candidate(str(number))
            await others.grant(one)
            await others.release(one)
        assert server("LLEN", CHANGES) == 64
        left = {key.decode() for key in server("KEYS", "holdfast:{x}*")}
        assert left == {CHANGES}


async def test_an_observer_whose_time_is_over_is_dropped(server: RedisServer) -> None:
    async with bench(server.url) as store:
        eye = Eye(store)
        await eye.look()
        (member,) = server("ZRANGE", OBSERVERS, 0, -1)
        server("ZADD", OBSERVERS, 1, member)
        await store.grant(candidate("a"))
        assert server("EXISTS", OBSERVERS) == 0
        assert not eye.ticket._told


async def test_plain_locks_leave_no_changes(server: RedisServer) -> None:
    async with holdfast.connect(server.url) as locks:
        for lock in (locks.lock("x"), locks.semaphore("y", permits=2), locks.rwlock("z").write()):
            await (await lock.acquire()).release()
            await lock.acquire()
            assert await locks.force_release(lock.name) is True
        assert server("KEYS", "holdfast:{*:c") == []


async def test_a_leader_that_was_lost_with_all_data_is_seen_to_be_gone(
    server: RedisServer,
) -> None:
    async with bench(server.url) as store:
        eye, leader = Eye(store), candidate("a")
        await store.grant(leader)
        assert await eye.look() == ["a"]
        server("FLUSHALL")
        assert await eye.look() == ["nobody"]
        assert await eye.look() == []
        await store.grant(candidate("b"))
        assert await eye.woken()
        assert await eye.look() == ["b"]


async def test_a_server_killed_under_an_observer_is_asked_again(server: RedisServer) -> None:
    async with bench(server.url) as store:
        eye, leader = Eye(store), candidate("a")
        await store.grant(leader)
        assert await eye.look() == ["a"]
        server.kill()
        server.start()
        assert await eye.woken()
        await store.grant(candidate("b"))
        # It lost the leader, and then has another one.
        assert await eye.follow("b") in (["a", "nobody", "b"], ["a", "b"])


async def test_numbers_rise_though_the_clock_was_set_back(server: RedisServer) -> None:
    async with bench(server.url) as store:
        eye, leader = Eye(store), candidate("a")
        await store.grant(leader)
        number, *rest = server("LINDEX", CHANGES, -1).split(b"\x1f")
        ahead = b"%d" % (int(number) + 3_600_000_000)
        server("LSET", CHANGES, -1, b"\x1f".join([ahead, *rest]))
        assert await eye.look() == ["a"]
        assert eye.after == int(ahead)
        assert await store.backend.amend("x", leader.owner, store.deadline(), text="b") is True
        assert await eye.look() == ["b"]
        assert await store.release(leader) is True
        await store.grant(candidate("c"))
        assert await eye.look() == ["nobody", "c"]


async def test_a_leader_outlives_what_is_kept_of_changes(server: RedisServer) -> None:
    async with bench(server.url) as store:
        eye, late, leader = Eye(store), Eye(store), candidate("a")
        await store.grant(leader)
        assert await eye.look() == ["a"]
        server("DEL", CHANGES)  # as if nobody had looked for a day
        assert await eye.look() == []
        assert await late.look() == ["a"]
        server("DEL", CHANGES)
        assert await store.release(leader) is True
        assert await eye.look() == ["nobody"]
        assert await late.look() == ["nobody"]


async def test_a_look_keeps_the_changes_for_another_day(server: RedisServer) -> None:
    async with bench(server.url) as store:
        eye = Eye(store)
        await store.grant(candidate("a"))
        assert server("PEXPIRE", CHANGES, 60_000) == 1
        await eye.look()
        assert server("PTTL", CHANGES) > 60_000


async def test_a_stranger_at_the_key_is_no_leader(server: RedisServer) -> None:
    async with bench(server.url) as store:
        eye, leader = Eye(store), candidate("a")
        await store.grant(leader)
        assert await eye.look() == ["a"]
        server("SET", "holdfast:{x}", "theirs", "PX", 60_000)
        assert await eye.look() == ["nobody"]
        assert await eye.look() == []
        server("DEL", "holdfast:{x}")
        await store.grant(candidate("b"))
        assert await eye.look() == ["b"]


async def test_an_adopted_term_is_another_leader(server: RedisServer) -> None:
    async with bench(server.url) as store:
        eye, leader, heir = Eye(store), candidate("a"), candidate("b")
        await store.grant(leader)
        await eye.look()
        await store.backend.adopt(heir, leader.owner, store.deadline())
        assert await eye.look() == ["b"]


async def test_a_user_who_may_not_listen_cannot_observe_and_is_told_why(
    server: RedisServer,
) -> None:
    server("ACL", "SETUSER", "app", "on", ">word", "resetchannels", "~holdfast:*", *NEEDED)
    async with bench(f"redis://app:word@127.0.0.1:{server.port}/0") as store:
        eye = Eye(store)
        with pytest.raises(holdfast.ConfigError, match="needs &holdfast:"):
            await eye.look()
        server("ACL", "SETUSER", "app", "&holdfast:*")

        async def looks() -> bool:
            try:
                return await eye.look() == []
            except holdfast.ConfigError:
                return False

        await eventually(looks)


async def test_nobody_is_seen_once_when_the_server_has_lost_its_data(server: RedisServer) -> None:
    async with (
        holdfast.connect(server.url) as locks,
        aclosing(locks.election("x").observe()) as changes,
    ):
        assert await anext(changes) is None
        await (await locks.election("x", "first").campaign()).resign()
        assert await anext(changes) is not None
        assert await anext(changes) is None
        following = Job(lambda: anext(changes))
        server("FLUSHALL")
        server("CLIENT", "KILL", "TYPE", "pubsub")  # so that it looks again
        await eventually(lambda: server("EXISTS", CHANGES) == 1)  # it has
        await locks.election("x", "second").campaign()
        state = await following.result()
        assert state is not None
        assert state.holders[0].label.text == "second"
