"""What is made once for all attempts at a lock: its line, our keys in it, and the request."""

from __future__ import annotations

from typing import Any

import pytest

from _async.etcd.scenes import soon
from holdfast import aio as holdfast
from holdfast.model import Label, new_owner
from holdfast.stores._async.contract import Terms, Ticket
from holdfast.stores.etcd._async import attempts as etcd_roll
from holdfast.stores.etcd._async.leases import HOLD, QUEUE, Lease
from holdfast.stores.etcd.wire import messages
from holdfast.stores.etcd.wire.codec import fields
from servers.etcd import EtcdCluster


def terms(name: str = "x", *, renew: bool = True) -> Terms:
    return Terms(name, 30.0, Label("here", 1, "a text"), renew=renew)


def pairs() -> list[tuple[Lease, Lease | None]]:
    """The leases that it may come to hang on: of those who hold, and of those who wait."""
    hold, another = Lease(2**62 + 5, HOLD, 30, 30, 0.0), Lease(7, HOLD, 30, 30, 0.0)
    wait = Lease(2**40, QUEUE, 5, 5, 0.0)
    return [(hold, None), (hold, None), (hold, wait), (another, wait)]


def value_of(part: int | bytes) -> bytes:
    assert isinstance(part, bytes)
    return part


OWNERS = [new_owner(), new_owner(), "short", "with/a/slash/and/24/char", "%" * 24, "x" * 64]


@pytest.mark.parametrize("renew", [True, False])
@pytest.mark.parametrize("wall", [1_700_000_000.5, 1.0, 99_999_999_999.0])
async def test_a_prepared_request_is_the_one_that_would_be_written(
    cluster: EtcdCluster, renew: bool, wall: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with holdfast.connect(cluster.url) as locks:
        backend: Any = (await locks._session()).backend
        asking, roll = backend._asking, backend._roll
        monkeypatch.setattr(backend.clock, "wall", lambda: wall)
        asked = terms(renew=renew)
        places = pairs()
        for owner in OWNERS:
            attempt = roll.enrol(Ticket(asked, owner))
            for hold, wait in places:
                request = asking._request(attempt, hold, wait)
                assert request == asking._written(attempt, owner, f"{wall:.3f}", hold, wait)
                # As etcd reads it.
                then = dict(fields(request))[2]
                put = dict(fields(value_of(then)))[2]
                assert dict(fields(value_of(put))) == {
                    1: attempt.key,
                    2: attempt.entry(True, wall),
                    3: hold.id,
                }
            if owner != OWNERS[0]:  # whose key stays in use: the others have another
                roll.forget(attempt)


async def test_a_lease_that_ended_is_not_used_again_by_a_lock_that_was_on_it(
    cluster: EtcdCluster,
) -> None:
    async with holdfast.connect(cluster.url) as locks:
        backend: Any = (await locks._session()).backend
        lock = locks.lock("x")
        await (await lock.acquire()).release()
        (old,) = backend._leases._all.values()
        await backend._calls.call(messages.LEASE_REVOKE, messages.lease_id(old.id), soon(backend))
        lease = await lock.acquire(timeout=10.0)
        now = backend._roll.known("x", lease.owner).lease
        assert now is not old
        now.sent -= 20.0  # neither is one that has to be kept alive first
        kept = now.sent
        other = await locks.lock("y").acquire(timeout=10.0)
        assert backend._roll.known("y", other.owner).lease is now
        assert now.sent > kept
        assert await lease.release() is True


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(etcd_roll, "LINES", 2)


@pytest.mark.usefixtures("few")
async def test_all_who_ask_for_a_lock_have_one_line_though_it_was_dropped(
    cluster: EtcdCluster,
) -> None:
    """Two lines would give the same key to two attempts."""
    async with holdfast.connect(cluster.url) as locks:
        roll: Any = (await locks._session()).backend._roll  # type: ignore[attr-defined]
        asked = terms()
        roll.forget(roll.enrol(Ticket(asked, new_owner())))
        old = asked.prepared.line
        for name in ("a", "b", "c"):
            roll.forget(roll.enrol(Ticket(terms(name), new_owner())))
        assert old.dropped
        attempts = [roll.enrol(Ticket(one, new_owner())) for one in (asked, terms(), asked)]
        assert len({attempt.line for attempt in attempts} - {old}) == 1
        assert len({attempt.key for attempt in attempts}) == 3
        assert [roll._at(attempt.key) for attempt in attempts] == attempts
        for attempt in attempts:
            roll.forget(attempt)


@pytest.mark.usefixtures("few")
async def test_a_line_that_is_of_use_is_not_dropped(cluster: EtcdCluster) -> None:
    async with holdfast.connect(cluster.url) as locks:
        roll: Any = (await locks._session()).backend._roll  # type: ignore[attr-defined]
        held = roll.enrol(Ticket(terms("held"), new_owner()))
        burned = roll.enrol(Ticket(terms("burned"), new_owner()))
        burned.burn()  # what deletes its key may still be under way
        roll.forget(burned)
        for name in ("a", "b", "c"):
            roll.forget(roll.enrol(Ticket(terms(name), new_owner())))
        assert roll._at(held.key) is held
        again = roll.enrol(Ticket(terms("burned"), new_owner()))
        assert again.line is burned.line
        assert again.key != burned.key
        for attempt in (held, again):
            roll.forget(attempt)
