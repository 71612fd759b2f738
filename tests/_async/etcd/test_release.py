"""A release deletes a key: by whom, on what condition, and what the caller is told."""

from __future__ import annotations

from typing import Any

import pytest

from _async.etcd.scenes import backend_of, soon
from holdfast import aio as holdfast
from holdfast.chaos.servers.etcd import EtcdCluster
from holdfast.model import Granted, Label
from holdfast.stores._async.contract import Terms, Ticket
from holdfast.stores.etcd._async import release as release_module
from holdfast.stores.etcd.wire import messages


async def held(backend: Any, owner: str = "me") -> Any:
    """An attempt that has the lock."""
    ticket = Ticket(Terms("x", 60.0, Label("here", 1)), owner)
    assert isinstance(await backend.acquire(ticket, soon(backend)), Granted)
    return backend._attempts.known("x", owner)


async def delete(backend: Any, key: bytes) -> None:
    await backend._retrier.call(messages.DELETE, messages.delete_one(key), soon(backend))


async def holders(locks: holdfast.Locks) -> list[str]:
    return [one.owner for one in (await locks.inspect("x")).holders]


async def test_only_the_first_who_gives_it_up_deletes_without_a_condition(
    cluster: EtcdCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until that is answered nobody else may have the key."""
    monkeypatch.setattr(release_module, "SHORTLY", 1e6)
    async with holdfast.connect(cluster.url) as locks:
        backend = await backend_of(locks)
        attempt = await held(backend, "first")
        call = backend._retrier.call
        asked: list[str] = []

        async def called(method: str, *args: Any) -> Any:
            asked.append(method)
            if len(asked) == 1:
                # Another releases it as well, and the lock is granted again.
                await backend._releaser.release(attempt, soon(backend))
                assert (await held(backend, "second")).key != attempt.key
            return await call(method, *args)

        backend._retrier.call = called
        await backend._releaser.release(attempt, soon(backend))
        backend._retrier.call = call
        assert [asked[0], asked.count(messages.DELETE)] == [messages.DELETE, 1]
        assert backend._attempts.known("x", "first") is None
        assert await holders(locks) == ["second"]


async def test_a_key_is_reserved_for_as_long_as_any_deletion_may_be_late(
    cluster: EtcdCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One release deletes without a condition and is answered while another is under way."""
    monkeypatch.setattr(release_module, "SHORTLY", 1e6)
    async with holdfast.connect(cluster.url) as locks:
        backend = await backend_of(locks)
        attempt = await held(backend, "first")
        txn = backend._retrier.txn
        call = backend._retrier.call

        async def late(*args: Any) -> Any:
            backend._retrier.txn = txn
            # The first release has its answer, and all that it does then is done.
            await delete(backend, attempt.key)
            attempt.deleted_blindly()
            backend._attempts.forget(attempt)
            assert (await held(backend, "second")).key != attempt.key
            return await txn(*args)

        async def meanwhile(method: str, *args: Any) -> Any:
            backend._retrier.call = call
            backend._retrier.txn = late
            await backend._releaser.release(attempt, soon(backend))
            return await call(method, *args)

        backend._retrier.call = meanwhile
        await backend._releaser.release(attempt, soon(backend))
        assert await holders(locks) == ["second"]


async def test_a_key_that_was_given_back_is_not_deleted_without_a_condition(
    cluster: EtcdCluster,
) -> None:
    async with holdfast.connect(cluster.url) as locks:
        backend = await backend_of(locks)
        attempts = backend._attempts
        attempt = await held(backend, "first")
        assert attempts.reserve_key(attempt, blind=True)
        assert attempt.doubtful
        attempt.deleted_blindly()
        await delete(backend, attempt.key)
        attempts.forget(attempt)
        assert (await held(backend, "second")).key == attempt.key
        assert not attempts.reserve_key(attempt, blind=True)
        attempt.doubt()
        assert await backend._releaser.release(attempt, soon(backend)) is False
        assert await holders(locks) == ["second"]


async def test_a_tombstone_that_arrives_twice_deletes_once(cluster: EtcdCluster) -> None:
    """Its key is used again once it is answered."""
    async with holdfast.connect(cluster.url) as locks:
        backend = await backend_of(locks)
        txn = backend._retrier.txn
        sent: list[bytes] = []

        async def noted(request: bytes, *args: Any) -> Any:
            sent.append(request)
            return await txn(request, *args)

        attempt = await held(backend, "first")
        attempt.doubt()  # an earlier try has no answer
        backend._retrier.txn = noted
        await backend._releaser.release(attempt, soon(backend))
        backend._retrier.txn = txn
        assert (await held(backend, "second")).key == attempt.key
        for request in sent:
            await txn(request, soon(backend))
        assert await holders(locks) == ["second"]


async def test_another_managers_key_is_deleted_on_a_condition_only(cluster: EtcdCluster) -> None:
    """Its manager may have given that key to another attempt by now."""
    async with holdfast.connect(cluster.url) as others, holdfast.connect(cluster.url) as locks:
        theirs, backend = await backend_of(others), await backend_of(locks)
        first = await held(theirs, "first")
        attempt = await backend._renewer.find("x", "first", soon(backend))
        attempt.doubt()  # a release of ours was not answered
        assert await theirs.release("x", "first", soon(theirs)) is True
        assert (await held(theirs, "second")).key == first.key
        await backend.release("x", "first", soon(backend))
        assert await holders(others) == ["second"]


async def test_a_deletion_that_was_broken_off_leaves_a_tombstone(
    cluster: EtcdCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(release_module, "SHORTLY", 1e6)
    async with holdfast.connect(cluster.url) as locks:
        backend = await backend_of(locks)
        attempt = await held(backend)
        call = backend._retrier.call

        async def cut(*args: Any) -> Any:
            raise holdfast.BackendUnavailable("the way is cut")

        backend._retrier.call = cut
        with pytest.raises(holdfast.BackendUnavailable):
            await backend.release("x", "me", soon(backend))
        backend._retrier.call = call
        assert attempt.doubtful
        assert attempt in backend._attempts._pending
        assert await backend.release("x", "me", soon(backend)) is True
        assert backend._attempts._pending == {}
        assert "left/me" in cluster.ctl("get", "--prefix", "--keys-only", "/holdfast/")


async def test_what_was_deleted_by_another_was_not_ours(
    cluster: EtcdCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless a try of our own did it, whose reply was lost; and then only while it was ours."""
    async with holdfast.connect(cluster.url) as locks:
        backend = await backend_of(locks)
        for shortly in (0.0, 1e6):
            monkeypatch.setattr(release_module, "SHORTLY", shortly)
            for lost, late, ours in (
                (False, False, False),
                (True, False, True),
                (True, True, False),
            ):
                attempt = await held(backend, f"{shortly} {lost} {late}")
                call = backend._retrier.call

                async def answered(
                    method: str,
                    request: bytes,
                    deadline: float,
                    unanswered: Any = None,
                    lost: bool = lost,
                    key: bytes = attempt.key,
                    call: Any = call,
                ) -> Any:
                    backend._retrier.call = call
                    await delete(backend, key)
                    if lost:
                        unanswered()
                    return await call(method, request, deadline, unanswered)

                backend._retrier.call = answered
                if late:
                    attempt.until = 0.0
                freed = await backend._releaser.release(attempt, soon(backend))
                assert freed is ours, (shortly, lost, late)


async def test_the_next_who_has_its_key_is_left_alone(cluster: EtcdCluster) -> None:
    async with holdfast.connect(cluster.url) as locks:
        backend = await backend_of(locks)
        attempt = await held(backend, "first")
        await delete(backend, attempt.key)
        backend._attempts.forget(attempt)
        second = await held(backend, "second")
        assert second.key == attempt.key
        for wanted in (False, True):
            if wanted:
                attempt.queue.saw_waiters()
            freed, _ = await backend._releaser._leave_queue(attempt, False, soon(backend))
            assert freed is False
            assert await holders(locks) == ["second"]


async def test_one_that_was_asked_for_but_not_answered_is_refused_if_it_arrives(
    cluster: EtcdCluster,
) -> None:
    """Another thread is still acquirer, and nothing has failed yet."""
    async with holdfast.connect(cluster.url) as locks:
        backend = await backend_of(locks)
        deadline = soon(backend)
        attempt = backend._attempts.enrol(Ticket(Terms("x", 60.0, Label("here", 1)), "me"))
        hold = await backend._granter.lease_to_hold(attempt, deadline)
        request = backend._acquirer._request(attempt, hold, None, 1.0)
        assert await backend._releaser.release(attempt, deadline) is False
        answer = await backend._retrier.txn(request, deadline)
        assert not answer.succeeded
        assert await holders(locks) == []


async def test_a_clean_up_that_failed_is_still_a_clean_up(cluster: EtcdCluster) -> None:
    """Its request may still arrive: the next try has to leave a tombstone as well."""
    async with holdfast.connect(cluster.url) as locks:
        backend = await backend_of(locks)
        attempt = await held(backend)
        attempt.doubt()
        txn = backend._retrier.txn

        async def cut(*args: Any, **options: Any) -> Any:
            raise holdfast.BackendUnavailable("the way is cut")

        backend._retrier.txn = cut
        with pytest.raises(holdfast.BackendUnavailable):
            await backend._releaser.release(attempt, soon(backend))
        backend._retrier.txn = txn
        assert attempt.doubtful
        await backend._releaser.release(attempt, soon(backend))
        assert "left/me" in cluster.ctl("get", "--prefix", "--keys-only", "/holdfast/")


@pytest.mark.parametrize("doubtful", [False, True])
async def test_a_waiter_that_was_granted_it_meanwhile_gives_it_back(
    cluster: EtcdCluster, doubtful: bool
) -> None:
    """A waiter that has not heard of its grant leaves the queue: the lock was held, and goes on."""
    async with holdfast.connect(cluster.url) as locks:
        backend = await backend_of(locks)
        attempt = await held(backend)
        attempt.token = 0
        attempt.doubts = int(doubtful)
        assert await backend.release("x", "me", soon(backend)) is True
        assert await holders(locks) == []
