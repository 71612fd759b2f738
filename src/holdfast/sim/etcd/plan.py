"""Runs of `etcd://` on a simulated cluster of three members."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, ClassVar

from .. import faults
from ..calm import Calm, Unclean

if TYPE_CHECKING:
    from ..world import World
    from .cluster import Cluster
    from .member import SimMember


class EtcdPlan:
    """A run with clients, a cluster, and faults of both."""

    calm = False
    url = "etcd://etcd1:2379,etcd2:2379,etcd3:2379"
    options: ClassVar[dict[str, Any]] = {"claim_window": 2.0}
    faults: Sequence[str] = (
        faults.NETWORK,
        faults.CUT,
        faults.PAUSE,
        faults.STALL,
        faults.CRASH,
        faults.KILL,
        faults.DRIFT,
    )
    all_at_once = False
    memories: Sequence[str] = ("all",)
    crashes = 2
    # Only an etcd without the fix of etcd#15247 does that: docs/etcd.md says so.
    breaks_exclusion = frozenset({"revoked"})
    breaks_tokens: frozenset[str] = frozenset()
    recovery = 30.0
    settle = 12.0
    trouble = 5.0
    unsettled = 2
    clients: Sequence[int] = (2, 3, 4)
    turns = 4
    pace = 0.6
    ttls = (0.4, 3.0)
    heedless = False
    cluster: Cluster

    def start(self, world: World) -> list[SimMember]:
        from .cluster import Cluster

        self.cluster = Cluster(world, old=world.loop.random.random() < 0.3)
        world.passes_on = True
        return self.cluster.members

    def unsettle(self, world: World) -> None:
        """Upsets the cluster as only a cluster can be, or cuts a client off from all of it."""
        draw, tell, cluster = world.loop.random, world.trace.add, self.cluster
        member = draw.choice((*cluster.members, cluster.leader, cluster.leader))
        length = draw.choice((0.3, 2.0, 5.0)) * draw.random()
        name = member.process.name
        fate = draw.random()
        if fate < 0.3:
            tell(name, "is cut off from the others for %.3f s", length)
            cluster.cut_off(member, length)
        elif fate < 0.6:
            tell(name, "has a disk that is stuck for %.3f s", length)
            member.get_stuck(length)
        elif fate < 0.8:
            self.isolate(world, length)
        else:
            tell("etcd", "compacts what was before revision %d", cluster.keys.revision)
            cluster.keys.compacted = cluster.keys.revision

    def isolate(self, world: World, length: float) -> None:
        client = world.loop.random.choice(world.clients).name
        world.trace.add(client, "is cut off from the whole cluster for %.3f s", length)
        there = [(client, member.process.name) for member in self.cluster.members]
        world.cut(there + [(member, client) for client, member in there], length)

    def may_crash(self, servers: Sequence[SimMember], server: SimMember) -> bool:
        return True

    @contextmanager
    def _stood_in(self) -> Iterator[None]:
        """Replaces the wire; all the rest stays as it is."""
        from ...stores.etcd._async import backend as backend
        from .wire import Wire

        changed: list[tuple[Any, str, Any]] = [
            (backend, "Wire", Wire),
            (backend, "require_hpack", lambda: None),
            *self.changes(),
        ]
        before = [(where, name, getattr(where, name)) for where, name, _ in changed]
        for where, name, value in changed:
            setattr(where, name, value)
        try:
            yield
        finally:
            for where, name, value in before:
                setattr(where, name, value)

    def changes(self) -> list[tuple[Any, str, Any]]:
        """Returns what else a variant replaces."""
        return []

    def altered(self) -> AbstractContextManager[object]:
        return self._stood_in()

    def residue(self, servers: Sequence[SimMember]) -> list[str]:
        keys = self.cluster.keys
        return [
            found.key.decode()
            for first in (b"/holdfast/holdfast/lock/", b"/holdfast/holdfast/slot/")
            for found in keys.among(first, first[:-1] + b"0", keys.revision)
        ]

    def describe(self, data: bytes) -> object:
        return Described(data)


class Described:
    """A request as the trace shows it; taken apart only if it is shown."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def __str__(self) -> str:
        line, _, message = self._data.partition(b"\n")
        keys = re.findall(rb"/holdfast/holdfast/([a-z]+/[!-~]*)", message)
        return f"{line.decode()} {' '.join(key.decode() for key in keys[:4])}"


class Heedless(EtcdPlan):
    """A variant: no holder looks whether it still holds the lock, and the resource has no fence."""

    faults = (faults.PAUSE,)
    heedless = True


class PutRenews(EtcdPlan):
    """A variant: a write on a lease is taken to renew it."""

    faults = (faults.DRIFT,)
    trouble = 12.0
    unsettled = 4
    pace = 2.0
    ttls = (2.0, 4.0)
    clients = (3,)
    turns = 8

    def unsettle(self, world: World) -> None:
        self.isolate(world, 4.0)

    def changes(self) -> list[tuple[Any, str, Any]]:
        from ...stores.etcd._async.attempts import Attempts
        from ...stores.etcd._async.leases import Lease

        granted = Attempts.granted

        def too_much(attempts: Any, attempt: Any, *args: Any) -> Any:
            grant = granted(attempts, attempt, *args)
            return grant and grant._replace(since=0.0)

        return [
            (Attempts, "granted", too_much),
            (Lease, "fresh_for", property(lambda lease: lease.ttl)),
        ]


class BlindGrant(EtcdPlan):
    """A variant: locks are granted though the waiter's key may not be there as it was."""

    faults = (faults.PAUSE, faults.CUT)
    all_at_once = True
    clients = (4,)
    trouble = 8.0
    turns = 10
    pace = 0.5

    def changes(self) -> list[tuple[Any, str, Any]]:
        from ...stores.etcd.wire import messages

        return [(messages, "changed_at", lambda key, revision: b"")]


class Forgetful(EtcdPlan):
    """A variant: a request without a reply is taken for one that never happened."""

    faults = (faults.NETWORK,)
    clients = (4,)
    trouble = 8.0
    turns = 10
    pace = 0.3

    def changes(self) -> list[tuple[Any, str, Any]]:
        from ...stores.etcd._async.attempt import Attempt

        return [(Attempt, "doubt", lambda attempt, *, blind=False: None)]


class CalmEtcd(Calm, EtcdPlan):
    """A calm run."""


class UncleanEtcd(Unclean, CalmEtcd):
    """A variant: a client that gives up leaves its request on the store."""


def plan(seed: int) -> EtcdPlan:
    return EtcdPlan()


def calm(seed: int) -> EtcdPlan:
    return CalmEtcd()


VARIANTS: dict[str, type[EtcdPlan]] = {
    "heedless": Heedless,
    "put-renews": PutRenews,
    "blind-grant": BlindGrant,
    "forgetful": Forgetful,
    "unclean": UncleanEtcd,
}
"""Known to be bad. Each must be caught, or the checker proves nothing."""
