"""Asking the cluster: what proves what, how long one member may take, and what is left in doubt."""

from __future__ import annotations

from typing import Any

import pytest

from _async.etcd.scenes import soon
from holdfast import aio as holdfast
from holdfast._runtime.aio import Turn
from holdfast.chaos.servers.etcd import EtcdCluster
from holdfast.clock import system_clock
from holdfast.stores.etcd._async.retry import SHORTEST_TRY, Retrier
from holdfast.stores.etcd.address import Address
from holdfast.stores.etcd.wire import messages
from holdfast.stores.etcd.wire.aio import Wire
from holdfast.stores.etcd.wire.failures import Failure
from worlds.aio import Job, eventually, pause


async def calls_of(locks: holdfast.Locks) -> Any:
    return (await locks._session()).backend._retrier  # type: ignore[attr-defined]


async def test_a_keep_alive_is_not_proved_by_what_was_sent_before_it(cluster: EtcdCluster) -> None:
    """Its leader may have been deposed in between."""
    async with holdfast.connect(cluster.url) as locks:
        retrier = await calls_of(locks)
        deadline = (await locks._session()).deadline()
        call = retrier.call
        proved: list[str] = []

        def prove() -> None:
            proved.append("kept alive")

        async def meanwhile(*args: Any) -> Any:
            answer = await call(*args)
            retrier.unproven[prove] = messages.parse_term(answer)
            return answer

        retrier.call = meanwhile
        await retrier.txn(messages.then(messages.read(b"x")), deadline)
        retrier.call = call
        assert proved == []
        await retrier.txn(messages.then(messages.read(b"x")), deadline)
        assert proved == ["kept alive"]
        assert retrier.unproven == {}


async def test_a_member_that_hangs_leaves_time_for_the_others() -> None:
    for members, left, most in (
        (1, 9.0, 9.0),
        (3, 10.0, 2.0),
        (3, 1.0, SHORTEST_TRY),
        (3, 0.2, 0.2),
    ):
        address = Address(tuple(f"m{number}:1" for number in range(members)), "", "", None)
        wire: Any = None
        assert Retrier(wire, address, system_clock())._patience(left) == most


async def test_a_call_that_begins_when_its_time_is_over_is_made_all_the_same(
    cluster: EtcdCluster,
) -> None:
    """All before it was answered in time: it is late because this process stood still."""
    async with holdfast.connect(cluster.url) as locks:
        retrier = await calls_of(locks)
        over = (await locks._session()).now() - 60.0
        call, given = retrier.wire.call, []

        async def note(method: str, request: bytes, timeout: float) -> Any:
            given.append(timeout)
            return await call(method, request, timeout)

        retrier.wire.call = note
        await retrier.range(messages.range_of(b"x"), over)
        assert given == [SHORTEST_TRY]


async def test_a_turn_that_is_asked_for_when_the_time_is_over_is_waited_for_all_the_same(
    cluster: EtcdCluster,
) -> None:
    async with holdfast.connect(cluster.url) as locks:
        retrier = await calls_of(locks)
        over = (await locks._session()).now() - 60.0
        turn = Turn()
        begun: list[bool] = []

        async def hold() -> None:
            assert await turn.take(1.0)
            begun.append(True)
            await pause(0.05)
            turn.end()

        async def work() -> str:
            return "done"

        job = Job(hold)
        await eventually(lambda: begun)
        assert await retrier.in_turn(turn, over, work) == "done"
        await job.result()


@pytest.mark.parametrize("tries", [1, 2])
async def test_a_call_that_is_broken_off_is_in_doubt(cluster: EtcdCluster, tries: int) -> None:
    """At its first try, or at another: in both cases it may have been carried out."""
    async with holdfast.connect(cluster.url) as locks:
        retrier = await calls_of(locks)
        deadline = soon((await locks._session()).backend)
        ask = retrier.wire.call
        asked: list[str] = []
        doubts: list[int] = []

        class BrokenOff(BaseException):
            """As a cancellation, or an interrupt, does."""

        async def broken_off(method: str, request: bytes, timeout: float) -> bytes:
            asked.append(method)
            if len(asked) < tries:
                raise Failure("UNAVAILABLE", "etcdserver: no leader", retrier.wire.endpoint)
            doubts.clear()
            raise BrokenOff

        retrier.wire.call = broken_off
        with pytest.raises(BrokenOff):
            await retrier.call(messages.TXN, b"", deadline, lambda: doubts.append(1))
        retrier.wire.call = ask
        assert len(asked) == tries
        assert doubts == [1]


async def test_of_several_who_turn_from_a_member_one_is_heard() -> None:
    address = Address(("a:1", "b:1", "c:1"), "", "", None)
    wire = Wire(address)
    while wire.endpoint != "a:1":
        wire.turn_from(wire.endpoint)
    for _ in range(3):
        wire.turn_from("a:1")
    assert wire.endpoint == "b:1"
    wire.turn_from("b:1")
    wire.turn_from("c:1")
    assert wire.endpoint == "a:1"
    await wire.close()
