"""Labs: for each store, one to be started and broken; and one for a store that the user has."""

from __future__ import annotations

from importlib import import_module

from ..faults import FAULTS, NAMESPACES
from ..servers.rooms import Rooms
from .lab import CannotBreak, Chance, Injury, Lab, Worker

__all__ = [
    "LABS",
    "CannotBreak",
    "Chance",
    "Injury",
    "Lab",
    "Worker",
    "lab_class",
    "open_lab",
    "own_lab",
]

LABS: dict[str, str] = {
    "sqlite": "sqlite.SqliteLab",
    "redis": "redis.RedisLab",
    "redis+sentinel": "sentinel.SentinelLab",
    "redis+replica": "replica.ReplicaLab",
    "redis+cluster": "cluster.ClusterLab",
    "redlock": "redlock.RedlockLab",
    "etcd": "etcd.EtcdLab",
    "zookeeper": "zookeeper.ZooKeeperLab",
    "postgresql": "postgres.PostgresLab",
    "postgresql+standby": "postgres.StandbyLab",
    "mysql": "mariadb.MariaLab",
    "mysql+replica": "mariadb.MariaReplicaLab",
}
"""The names that `--backend` takes, each with its module and class. A new store joins by its line."""


def lab_class(name: str) -> type[Lab]:
    """Returns the lab of this store, which is not started: for what it needs, and what it can do."""
    module, _, word = LABS[name].partition(".")
    found: type[Lab] = getattr(import_module(f"{__name__}.{module}"), word)
    return found


def open_lab(name: str, fault: str = "") -> Lab:
    """Starts a throw-away store; raises `ServerError` if that cannot be done here, and says why.

    If it is for a `fault` of packets, servers and workers are in rooms of their own.
    """
    kind = lab_class(name)
    if not fault or FAULTS[fault].tier != NAMESPACES:
        return kind()
    rooms = Rooms()
    try:
        return kind(rooms)
    except BaseException:
        rooms.stop()
        raise


def own_lab(url: str) -> Lab:
    """Opens a lab on the user's own store: client faults and a proxy only, and its own namespace."""
    from .own import OwnLab

    return OwnLab(url)
