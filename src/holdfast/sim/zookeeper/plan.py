"""ZooKeeper: the queue of `zookeeper://` on a simulated ensemble of three nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, ClassVar

from .. import faults
from ..calm import Calm, Unclean

if TYPE_CHECKING:
    from ..world import World
    from .ensemble import Ensemble, SimNode


class ZooKeeperPlan:
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

    def start(self, world: World) -> list[SimNode]:
        from .client import SimClient
        from .ensemble import Ensemble

        self.ensemble = Ensemble(world)
        SimClient.world = world
        SimClient.ensemble = self.ensemble
        return self.ensemble.nodes

    def unsettle(self, world: World) -> None:
        """A node is cut off from the others, while clients still reach it."""
        node = world.loop.random.choice(self.ensemble.nodes)
        length = world.loop.random.choice((0.3, 2.0, 5.0)) * world.loop.random.random()
        world.trace.add(node.process.name, "is cut off from the others for %.3f s", length)
        self.ensemble.cut_off(node, length)

    def may_crash(self, servers: Sequence[SimNode], server: SimNode) -> bool:
        return True

    @contextmanager
    def _stood_in(self) -> Iterator[None]:
        """kazoo, its threads and the timer's thread are replaced; all that is ours is as it is."""
        from ..._runtime.aio import Alarm
        from ...stores.zookeeper import deletion as ending
        from ...stores.zookeeper import session as link
        from ...stores.zookeeper._async import backend as backend
        from .client import SimClient

        changed: list[tuple[Any, str, Any]] = [
            (link, "Client", SimClient),
            (ending, "Alarm", Alarm),
            (backend, "Worker", Inline),
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
        """For a variant: what else to replace."""
        return []

    def altered(self) -> AbstractContextManager[object]:
        return self._stood_in()

    def leftovers(self, servers: Sequence[SimNode]) -> list[str]:
        tree = self.ensemble.truth.nodes
        locks = "/holdfast/locks/"
        return [path for path in tree if path.startswith(locks) and path.count("/") > 3]

    def describe(self, data: bytes) -> object:
        return data


class Inline:
    """A worker that needs no thread: what it is asked to do does not block here."""

    def __init__(self, name: str) -> None:
        pass

    async def call(self, function: Callable[[], Any]) -> Any:
        return function()

    def close(self) -> None:
        pass


class ProofByReading(ZooKeeperPlan):
    """A renewal that only reads: a node that has lost its leader goes on answering that."""

    faults = (faults.DRIFT,)
    unsettled = 6
    pace = 3.0
    ttls = (0.4, 1.0)

    def changes(self) -> list[tuple[Any, str, Any]]:
        from ...stores.zookeeper import session as link
        from ...stores.zookeeper.client import get_data

        return [(link, "set_data", lambda path, data: get_data(path))]


class OneWrite(ZooKeeperPlan):
    """One answered write, less a tick: the leader may not have been told of the session since long."""

    def changes(self) -> list[tuple[Any, str, Any]]:
        from ...stores.zookeeper.session import Link

        def vouch(link: Any, sent: float) -> float:
            spare: float = link._given - link._store.tick - link.ttl
            return sent + spare

        return [(Link, "vouch", vouch)]


class Forgetful(ZooKeeperPlan):
    """A creation whose answer was lost is taken for one that never happened."""

    faults = (faults.NETWORK,)

    def changes(self) -> list[tuple[Any, str, Any]]:
        from ...stores.zookeeper.creation import Joining

        def seek(queue: Any, node: Any) -> None:
            node.unsure = False
            queue._drive(node)

        return [(Joining, "_seek", seek)]


class Heedless(ZooKeeperPlan):
    """A plain lock: nobody looks whether it is still held, and the resource has no fence."""

    faults = (faults.PAUSE,)
    heedless = True


class CalmZooKeeper(Calm, ZooKeeperPlan):
    pass


class UncleanZooKeeper(Unclean, CalmZooKeeper):
    pass


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
"""Known to be bad. Each must be caught, or the checker proves nothing."""
