"""The runs on ZooKeeper: the queue of `zookeeper://` on a simulated ensemble of three servers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, ClassVar

from .. import faults
from ..calm import Calm, Unclean

if TYPE_CHECKING:
    from ..world import World
    from .ensemble import Ensemble, EnsembleServer


class ZooKeeperPlan:
    """The plan of a run on ZooKeeper."""

    calm = False
    url = "zookeeper://zk1:2181,zk2:2181,zk3:2181"
    options: ClassVar[dict[str, Any]] = {"tick": 0.2}
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
    breaks_exclusion: frozenset[str] = frozenset()
    breaks_tokens: frozenset[str] = frozenset()
    recovery = 30.0
    settle = 10.0
    trouble = 5.0
    unsettled = 2
    clients: Sequence[int] = (2, 3, 4)
    turns = 4
    pace = 0.6
    ttls = (0.4, 2.4)
    heedless = False
    ensemble: Ensemble

    def start(self, world: World) -> list[EnsembleServer]:
        from .client import SimClient
        from .ensemble import Ensemble

        self.ensemble = Ensemble(world)
        SimClient.world = world
        SimClient.ensemble = self.ensemble
        return self.ensemble.servers

    def unsettle(self, world: World) -> None:
        """Cuts a server off from the others, while clients still reach it."""
        server = world.loop.random.choice(self.ensemble.servers)
        length = world.loop.random.choice((0.3, 2.0, 5.0)) * world.loop.random.random()
        world.trace.add(server.process.name, "is cut off from the others for %.3f s", length)
        self.ensemble.cut_off(server, length)

    def may_crash(self, servers: Sequence[EnsembleServer], server: EnsembleServer) -> bool:
        return True

    @contextmanager
    def _replace(self) -> Iterator[None]:
        """Replaces kazoo, its threads and the timer's thread; all that is ours stays as it is."""
        from ..._runtime.aio import Alarm
        from ...stores.zookeeper import attempt_table, session
        from .client import SimClient

        changed: list[tuple[Any, str, Any]] = [
            (session, "Client", SimClient),
            (attempt_table, "Alarm", Alarm),
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
        """Returns what else to replace, for a variant: the owner, the name and the value of each."""
        return []

    def altered(self) -> AbstractContextManager[object]:
        return self._replace()

    def residue(self, servers: Sequence[EnsembleServer]) -> list[str]:
        tree = self.ensemble.agreed.znodes
        locks = "/holdfast/locks/"
        return [path for path in tree if path.startswith(locks) and path.count("/") > 3]

    def describe(self, data: bytes) -> object:
        return data


class ProofByReading(ZooKeeperPlan):
    """A renewal that only reads: a server that has lost its leader goes on answering that."""

    faults = (faults.DRIFT,)
    unsettled = 10
    trouble = 10.0
    clients = (2,)
    turns = 8
    pace = 2.0
    ttls = (0.4, 1.0)

    def changes(self) -> list[tuple[Any, str, Any]]:
        from ...stores.zookeeper import session
        from ...stores.zookeeper.requests import get_data

        return [(session, "set_data", lambda path, data: get_data(path))]


class OneWrite(ZooKeeperPlan):
    """A session that counts from one answered write, less a tick, of which the leader may not know."""

    def changes(self) -> list[tuple[Any, str, Any]]:
        from ...stores.zookeeper.session import ClientSession

        def vouch(session: Any, sent_at: float) -> float:
            spare: float = session._timeout - session._table.tick - session.ttl
            return sent_at + spare

        return [(ClientSession, "vouch", vouch)]


class Forgetful(ZooKeeperPlan):
    """A creation whose reply was lost is taken for one that never happened."""

    faults = (faults.NETWORK,)

    def changes(self) -> list[tuple[Any, str, Any]]:
        from ...stores.zookeeper.creation import Creation

        def search(attempts: Any, attempt: Any) -> None:
            attempt.maybe_created = False
            attempts._advance(attempt)

        return [(Creation, "_search", search)]


class Heedless(ZooKeeperPlan):
    """A plain lock: clients do not check that they still hold it, and the resource has no fence."""

    faults = (faults.PAUSE,)
    heedless = True


class CalmZooKeeper(Calm, ZooKeeperPlan):
    """The plan of a calm run on ZooKeeper."""


class UncleanZooKeeper(Unclean, CalmZooKeeper):
    """A calm run in which attempts that are given up leave their znodes behind."""


def plan(seed: int) -> ZooKeeperPlan:
    return ZooKeeperPlan()


def calm(seed: int) -> ZooKeeperPlan:
    return CalmZooKeeper()


VARIANTS: dict[str, type[ZooKeeperPlan]] = {
    "heedless": Heedless,
    "proof-by-reading": ProofByReading,
    "forgetful": Forgetful,
    "one-write": OneWrite,
    "unclean": UncleanZooKeeper,
}
"""Variants that are known to be bad. Each must be caught, or the checker proves nothing."""
