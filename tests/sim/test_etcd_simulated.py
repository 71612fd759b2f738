"""The simulated etcd: its answers beside a real one's, and a scene of its own."""

from __future__ import annotations

import os
import random
from asyncio import sleep
from collections.abc import Callable
from typing import Any, cast

import pytest

from holdfast import aio, clock
from holdfast.chaos.servers.etcd import EtcdCluster
from holdfast.sim.etcd.data import Answer, Keys, Refusal
from holdfast.sim.etcd.plan import EtcdPlan
from holdfast.sim.plan import Plan
from holdfast.sim.process import PROCESS
from holdfast.sim.world import World
from holdfast.stores.etcd._async.leases import Leases
from holdfast.stores.etcd.wire import messages
from holdfast.stores.etcd.wire.failures import Failure
from holdfast.stores.etcd.wire.messages import absent, changed_at, created_at
from stores import etcd_cluster

NAMES = [b"a/%d" % number for number in range(4)]
LEASES = [11, 12, 13]


def operation(draw: random.Random, key: bytes, known: list[int]) -> bytes:
    return draw.choice(
        [
            messages.put_for_ever(key, b"v%d" % draw.randrange(99)),
            messages.put(key, b"w", messages.on_lease(draw.choice(LEASES))),
            messages.put(key, b"x"),
            messages.delete(key),
            messages.delete(key, tell=True),
            messages.read(key),
            messages.read(b"a/", b"a0"),
            messages.read(b"a/", b"a0", 2),
            messages.read_latest(b"a/", b"a0"),
            messages.read_newer(b"a/", b"a0", draw.choice(known)),
        ]
    )


def some(draw: random.Random, most: int, known: list[int]) -> list[bytes]:
    """etcd refuses a transaction that changes a key twice."""
    return [operation(draw, key, known) for key in draw.sample(NAMES, draw.randrange(most))]


def transaction(draw: random.Random, known: list[int], *, deep: bool = True) -> bytes:
    key = draw.choice(NAMES)
    condition = draw.choice(
        [
            b"",
            absent(key),
            absent(b"a/", b"a0"),
            created_at(key, draw.choice(known)),
            changed_at(key, draw.choice(known)),
        ]
    )
    other = some(draw, 3, known)
    if deep and not other:
        other = [messages.nested(transaction(draw, known, deep=False))]
    return condition + messages.then(*some(draw, 4, known)) + messages.otherwise(*other)


def answered(simulated: Callable[[bytes], Answer], request: bytes) -> Answer | str:
    try:
        return simulated(request)
    except Refusal as refusal:
        return refusal.text


def without_headers(answer: Any) -> Any:
    """A nested answer's own header says less than the outer one's."""
    if isinstance(answer, messages.Transaction):
        return answer.succeeded, [without_headers(result) for result in answer.results]
    return answer


def test_transactions_leases_and_deletions_are_answered_as_by_a_real_one() -> None:
    server: EtcdCluster = etcd_cluster()
    server.wipe()
    draw = random.Random(5)
    keys = Keys()

    def ask(method: str, request: bytes) -> bytes | str:
        try:
            return server.wire.call(method, request, 20.0)
        except Failure as failure:
            return failure.details

    first = ask(messages.RANGE, messages.range_of(b"a/"))
    assert isinstance(first, bytes)
    # A run begins with the revision that the real one has come to.
    keys.revision = messages.parse_range(first).revision
    known = [keys.revision]
    for _ in range(600):
        lease = draw.choice(LEASES)
        method, request, simulated = draw.choice(
            [
                (messages.LEASE_GRANT, messages.lease_grant(lease, 600), keys.grant),
                (messages.LEASE_REVOKE, messages.lease_id(lease), keys.revoke),
                (messages.DELETE, messages.delete_one(draw.choice(NAMES)), keys.delete),
                *[(messages.TXN, transaction(draw, known), keys.txn)] * 5,
            ]
        )
        real = ask(method, request)
        ours = answered(simulated, request)
        if isinstance(real, str) or isinstance(ours, str):
            assert real == ours, request
            continue
        if method == messages.TXN:
            expected = messages.parse_txn(real)
            assert ours.revision == expected.revision
            assert without_headers(messages.parse_txn(ours.body)) == without_headers(expected)
        elif method == messages.DELETE:
            assert messages.parse_deleted(ours.body) == messages.parse_deleted(real)
        elif method == messages.LEASE_GRANT:
            assert messages.parse_lease(ours.body) == messages.parse_lease(real)
        known.append(keys.revision)
    for lease in list(keys.leases):
        ask(messages.LEASE_REVOKE, messages.lease_id(lease))


class Scene(EtcdPlan):
    """One client, which talks to one member: that one's disk is stuck while it leads, and then the
    client is cut off."""

    url = "etcd://etcd1:2379"


async def believed(leases: Leases, term: int, deadline: float) -> bool:
    return True


@pytest.mark.parametrize("rule", [True, False])
def test_a_keep_alive_by_a_leader_that_was_deposed_does_not_count(
    rule: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The holder is told before its key is gone; without the rule it is not."""
    plan = Scene()
    world = World(cast(Plan, plan), 3)
    cluster = plan.cluster
    client = world.clients[0]
    ended: dict[str, float] = {}
    managers: list[aio.Locks] = []

    async def hold() -> None:
        locks = aio.connect(plan.url)
        managers.append(locks)
        lease = await locks.lock("x", ttl=9.0).acquire()
        cluster.leader.get_stuck(3.5)
        await sleep(4.5)
        assert cluster.leader is not cluster.members[0], "nobody else was elected"
        plan.isolate(world, 30.0)
        await lease.wait_lost()
        ended["ours"] = world.loop.now

    async def watch() -> None:
        while "theirs" not in ended:
            await sleep(0.01)
            if cluster.keys.revision > 1 and not plan.residue([]):
                ended["theirs"] = world.loop.now

    async def both() -> None:
        holder = client.spawn(hold())
        await watch()
        await holder

    world.clients = [client]
    monkeypatch.setattr(clock, "source", lambda: PROCESS.get().clock)
    monkeypatch.setattr(os, "urandom", random.Random(1).randbytes)
    if not rule:
        monkeypatch.setattr(Leases, "_led_by", believed)
    with plan.altered():
        world.loop.run(world.director.spawn(both()), world.director, 100_000, 60.0)
    world.loop.close()
    assert (ended["ours"] < ended["theirs"]) == rule, ended
