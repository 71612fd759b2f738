"""Leases are shared, kept alive, given back and taken away; some belong to one attempt."""

from __future__ import annotations

from typing import Any

from _async.etcd.scenes import backend_of, soon
from holdfast import aio as holdfast
from holdfast.chaos.servers.etcd import EtcdCluster
from holdfast.entries import Claim
from holdfast.model import Label, Renewed
from holdfast.stores._async.contract import Terms, Ticket
from holdfast.stores.etcd._async.leases import HOLD, LONGEST, OWN, TOMBSTONES, seconds
from holdfast.stores.etcd._async.release import TOMBSTONE_TTL
from holdfast.stores.etcd.wire.failures import Failure
from holdfast.stores.etcd.wire.messages import LEASE_GRANT, LEASE_KEEP_ALIVE


def enrolled(backend: Any, owner: str) -> Any:
    return backend._attempts.enrol(Ticket(Terms("x", 60.0, Label("here", 1)), owner))


async def test_one_on_which_something_may_still_be_put_is_not_given_to_another(
    cluster: EtcdCluster,
) -> None:
    """A late request would hang on what is kept alive for somebody else."""
    async with holdfast.connect(cluster.url) as locks:
        backend = await backend_of(locks)
        leases, deadline = backend._leases, soon(backend)
        attempt = enrolled(backend, "me")
        for doubtful in (False, True):
            lease = await leases.own(60.0, deadline)
            backend._attempts.hang_on(attempt, lease)
            attempt.doubts = int(doubtful)
            backend._attempts._give_back(attempt, attempt.end())
            assert (await leases.own(60.0, deadline) is lease) is not doubtful


async def test_what_was_given_up_is_put_on_no_lease(cluster: EtcdCluster) -> None:
    async with holdfast.connect(cluster.url) as locks:
        backend = await backend_of(locks)
        leases = backend._leases
        attempt = enrolled(backend, "me")
        lease = await leases.shared(HOLD, 60.0, soon(backend))
        assert attempt.give_up() is True
        assert attempt.give_up() is False  # somebody is about to tell the store
        backend._attempts.hang_on(attempt, lease)
        assert attempt.lease is None
        assert attempt not in lease.attempts


async def test_one_that_is_over_by_our_clock_is_not_kept_alive(cluster: EtcdCluster) -> None:
    """Though etcd would: who held something on it was told that it is lost."""
    async with holdfast.connect(cluster.url) as locks:
        backend = await backend_of(locks)
        lease = await backend._leases.shared(HOLD, 60.0, soon(backend))
        lease.sent = lease.unproven = lease.sent - 60.0
        assert await backend._leases.keep_alive(lease, soon(backend)) is False
        assert await backend._leases.shared(HOLD, 60.0, soon(backend)) is not lease


async def test_one_whose_grant_was_not_answered_counts_from_the_first_try(
    cluster: EtcdCluster,
) -> None:
    async with holdfast.connect(cluster.url) as locks:
        backend = await backend_of(locks)
        wire = backend._wire
        ask = wire.call
        tries: list[float] = []

        async def lost(method: str, request: bytes, timeout: float) -> bytes:
            if method == LEASE_GRANT:
                tries.append(backend.clock.now())
            answer: bytes = await ask(method, request, timeout)
            if len(tries) == 1:
                raise Failure("UNAVAILABLE", "the answer was lost", wire.endpoint)
            return answer

        wire.call = lost
        lease = await backend._leases.own(60.0, soon(backend))
        wire.call = ask
        assert len(tries) == 2
        assert lease.sent <= tries[0]
        remaining = await backend._leases.remaining(lease.id, soon(backend))
        assert lease.sent + 60.0 - backend.clock.now() <= remaining <= 60.0  # that at the most


async def test_another_managers_is_kept_alive_for_it_and_not_taken_away(
    cluster: EtcdCluster,
) -> None:
    async with holdfast.connect(cluster.url) as others:
        lease = await others.lock("x", ttl=60.0).acquire()
        async with holdfast.connect(cluster.url) as locks:
            backend = await backend_of(locks)
            call = backend._retrier.call
            kept: list[float] = []

            async def called(method: str, *args: Any) -> Any:
                if method == LEASE_KEEP_ALIVE:
                    kept.append(backend.clock.now())
                return await call(method, *args)

            backend._retrier.call = called
            claim = Claim("x", lease.owner, 60.0)
            (renewed,) = await backend.renew([claim], soon(backend))
            assert isinstance(renewed, Renewed)
            assert renewed.token == lease.token
            assert kept  # nothing was known of it before
            assert renewed.since is not None
            assert renewed.since <= kept[0]
        assert [one.token for one in (await others.inspect("x")).holders] == [lease.token]


async def test_a_release_that_cannot_be_sent_now_keeps_nobody_from_renewing(
    cluster: EtcdCluster,
) -> None:
    async with holdfast.connect(cluster.url) as locks:
        backend = await backend_of(locks)
        leases = backend._leases
        lease = await leases.shared(HOLD, 60.0, soon(backend))
        release = backend._releaser.release
        tried: list[Any] = []

        async def cut(attempt: Any, deadline: float) -> None:
            tried.append(attempt)
            raise holdfast.BackendUnavailable("the way is cut")

        backend._releaser.release = cut
        attempt = enrolled(backend, "me")
        attempt.give_up()
        backend._attempts.postpone(attempt)
        assert await leases.keep_alive(lease, soon(backend)) is True
        assert tried == []  # not in the turn to keep it alive
        await leases.settle(lease, soon(backend))
        assert tried == [attempt]
        await leases.settle(lease, soon(backend))
        assert tried == [attempt]  # once, until it is kept alive again
        backend._releaser.release = release


async def test_pending_releases_are_sent_though_the_lease_of_tombstones_has_to_be_kept_alive(
    cluster: EtcdCluster,
) -> None:
    """Keeping that one alive must not wait for the releases, which need it."""
    async with holdfast.connect(cluster.url) as locks:
        backend = await backend_of(locks)
        deadline = soon(backend)
        tombstones = await backend._leases.shared(TOMBSTONES, TOMBSTONE_TTL, deadline)
        tombstones.sent -= TOMBSTONE_TTL / 2
        pending = [enrolled(backend, owner) for owner in ("me", "you")]
        for attempt in pending:
            attempt.doubt()
            attempt.give_up()
            backend._attempts.postpone(attempt)
        await backend._releaser.release(pending[1], deadline)
        assert backend.clock.now() < deadline  # not given up
        assert backend._attempts.known("x", "you") is None
        lease = await backend._leases.shared(HOLD, 60.0, deadline)
        assert await backend._leases.keep_alive(lease, deadline)
        await backend._leases.settle(lease, deadline)
        assert backend._attempts.known("x", "me") is None
        assert cluster.ctl(
            "get", "--prefix", "--keys-only", "/holdfast/holdfast/left/"
        ).split() == [
            "/holdfast/holdfast/left/me",
            "/holdfast/holdfast/left/you",
        ]


async def test_what_is_not_renewed_has_one_of_its_own(cluster: EtcdCluster) -> None:
    """Which ends by itself, whatever else is kept alive."""
    async with holdfast.connect(cluster.url) as locks:
        attempts = (await backend_of(locks))._attempts
        hung = []
        for name, renew in (("x", False), ("y", False), ("z", True)):
            lease = await locks.lock(name, ttl=60.0, renew=renew).acquire()
            hung.append(attempts.known(name, lease.owner).lease)
        assert [one.kind for one in hung] == [OWN, OWN, HOLD]
        assert hung[0] is not hung[1]


async def test_a_ttl_is_rounded_up(cluster: EtcdCluster) -> None:
    assert [seconds(ttl) for ttl in (0.1, 1.0, 1.001, 29.5, 1e12)] == [1, 1, 2, 30, LONGEST]
    async with holdfast.connect(cluster.url) as locks:
        lease = await locks.lock("x", ttl=58.3).acquire()
        assert lease.ttl == 59.0
        attempt = (await backend_of(locks))._attempts.known("x", lease.owner)
        assert attempt.until == attempt.lease.sent + 59.0
