"""How a lock is given back: by whom its key is deleted, on what condition, and what is said of it."""

from __future__ import annotations

from typing import Any

import pytest

from _async.etcd.scenes import soon
from holdfast import aio as holdfast
from holdfast.model import Granted, Label
from holdfast.stores._async.contract import Terms, Ticket
from holdfast.stores.etcd._async import release as etcd_leaving
from holdfast.stores.etcd.wire import messages
from servers.etcd import EtcdCluster


async def backend_of(locks: holdfast.Locks) -> Any:
    return (await locks._session()).backend


async def held(backend: Any, owner: str = "me") -> Any:
    """An attempt that has the lock."""
    ticket = Ticket(Terms("x", 60.0, Label("here", 1)), owner)
    assert isinstance(await backend.acquire(ticket, soon(backend)), Granted)
    return backend._roll.known("x", owner)


async def delete(backend: Any, key: bytes) -> None:
    await backend._calls.call(messages.DELETE, messages.delete_one(key), soon(backend))


async def holders(locks: holdfast.Locks) -> list[str]:
    return [one.owner for one in (await locks.inspect("x")).holders]


async def test_only_the_first_who_gives_it_up_deletes_without_a_condition(
    cluster: EtcdCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When that is done another may have the key; and until then nobody may."""
    monkeypatch.setattr(etcd_leaving, "SHORTLY", 1e6)
    async with holdfast.connect(cluster.url) as locks:
        backend = await backend_of(locks)
        attempt = await held(backend)
        call = backend._calls.call
        asked: list[str] = []

        async def called(method: str, *args: Any) -> Any:
            asked.append(method)
            return await call(method, *args)

        backend._calls.call = called
        assert backend._leases.begin_leaving(attempt) is True  # somebody is about to tell the store
        assert await backend._leaving.leave(attempt, soon(backend)) is True
        assert messages.DELETE not in asked
        assert backend._roll.known("x", "me") is attempt
        backend._leases.still_owed(attempt)  # it could not
        assert await backend._leaving.leave(attempt, soon(backend)) is False
        assert messages.DELETE in asked
        assert backend._roll.known("x", "me") is None


async def test_what_was_deleted_by_another_was_not_ours(
    cluster: EtcdCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless a try of our own did it, whose answer was lost; and then only while it was ours."""
    async with holdfast.connect(cluster.url) as locks:
        backend = await backend_of(locks)
        for shortly, lost in ((0.0, "doubtful"), (1e6, "burned")):
            monkeypatch.setattr(etcd_leaving, "SHORTLY", shortly)
            leave = backend._leaving._drop if shortly else backend._leaving._go
            for is_lost, late, ours in (
                (False, False, False),
                (True, False, True),
                (True, True, False),
            ):
                attempt = await held(backend, f"{lost} {is_lost} {late}")
                await delete(backend, attempt.key)
                setattr(attempt, lost, is_lost)
                if late:
                    attempt.until = 0.0
                freed = await leave(attempt, soon(backend))
                assert (freed if shortly else freed[0]) is ours, (lost, is_lost, late)
                attempt.doubtful = attempt.burned = False
                backend._roll.forget(attempt)


async def test_the_next_who_has_its_key_is_left_alone(cluster: EtcdCluster) -> None:
    async with holdfast.connect(cluster.url) as locks:
        backend = await backend_of(locks)
        attempt = await held(backend, "first")
        await delete(backend, attempt.key)
        backend._roll.forget(attempt)
        second = await held(backend, "second")
        assert second.key == attempt.key
        for wanted in (False, True):
            if wanted:
                backend._roll.want(attempt.line)
            freed, _ = await backend._leaving._out(attempt, False, soon(backend))
            assert freed is False
            assert await holders(locks) == ["second"]


async def test_one_that_was_asked_for_but_not_answered_is_refused_if_it_arrives(
    cluster: EtcdCluster,
) -> None:
    """Another thread is still asking, and nothing has failed yet."""
    async with holdfast.connect(cluster.url) as locks:
        backend = await backend_of(locks)
        deadline = soon(backend)
        attempt = backend._roll.enrol(Ticket(Terms("x", 60.0, Label("here", 1)), "me"))
        hold = await backend._roll.lease_to_hold(attempt, deadline)
        request = backend._asking._request(attempt, hold, None)
        assert await backend._leaving.leave(attempt, deadline) is False
        answer = await backend._calls.txn(request, deadline)
        assert not answer.succeeded
        assert await holders(locks) == []


async def test_a_clean_up_that_failed_is_still_a_clean_up(cluster: EtcdCluster) -> None:
    """Its request may still arrive: the next try has to leave a tombstone as well."""
    async with holdfast.connect(cluster.url) as locks:
        backend = await backend_of(locks)
        attempt = await held(backend)
        attempt.doubt()
        txn = backend._calls.txn

        async def cut(*args: Any, **options: Any) -> Any:
            raise holdfast.BackendUnavailable("the way is cut")

        backend._calls.txn = cut
        with pytest.raises(holdfast.BackendUnavailable):
            await backend._leaving.leave(attempt, soon(backend))
        backend._calls.txn = txn
        assert attempt.doubtful
        assert attempt.burned
        await backend._leaving.leave(attempt, soon(backend))
        assert "left/me" in cluster.ctl("get", "--prefix", "--keys-only", "/holdfast/")


@pytest.mark.parametrize("doubtful", [False, True])
async def test_a_waiter_that_was_granted_it_meanwhile_gives_it_back(
    cluster: EtcdCluster, doubtful: bool
) -> None:
    """It has not heard of that yet, and leaves the line: the lock was held, and goes to the next."""
    async with holdfast.connect(cluster.url) as locks:
        backend = await backend_of(locks)
        attempt = await held(backend)
        attempt.token = 0
        attempt.doubtful = doubtful
        assert await backend.release("x", "me", soon(backend)) is True
        assert await holders(locks) == []
