"""The stores that the conformance suite runs on. A new backend joins by its line in `STORES`."""

from __future__ import annotations

import atexit
import itertools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from pathlib import Path

from servers.azure import AzureServer
from servers.cluster import Cluster
from servers.etcd import EtcdCluster
from servers.gcs import GcsServer
from servers.mariadb import MariaServer
from servers.postgres import PostgresServer
from servers.redis import RedisServer
from servers.redlock import RedlockNodes
from servers.s3 import S3Server
from servers.sentinel import Watch
from servers.zookeeper import ZooKeeperEnsemble

_numbers = itertools.count(1)


@contextmanager
def memory(folder: Path) -> Iterator[str]:
    """The URL of a store of its own."""
    yield f"memory://conformance-{next(_numbers)}"


@contextmanager
def sqlite(folder: Path) -> Iterator[str]:
    yield f"sqlite://{folder}/locks.db"


@cache
def redis_server() -> RedisServer:
    """One for the whole run. If it cannot be started, the tests that need it fail and say so."""
    server = RedisServer()
    atexit.register(server.stop)
    return server


@cache
def postgres_server() -> PostgresServer:
    server = PostgresServer("fsync=off")  # nobody cuts its power
    atexit.register(server.stop)
    return server


@cache
def mariadb_server() -> MariaServer:
    server = MariaServer("--innodb-flush-log-at-trx-commit=0")
    atexit.register(server.stop)
    return server


@cache
def s3_server() -> S3Server:
    server = S3Server()
    atexit.register(server.stop)
    return server


@cache
def azure_server() -> AzureServer:
    server = AzureServer()
    atexit.register(server.stop)
    return server


@cache
def gcs_server() -> GcsServer:
    server = GcsServer()
    atexit.register(server.stop)
    return server


@contextmanager
def redis(folder: Path) -> Iterator[str]:
    server = redis_server()
    server("FLUSHALL")
    yield server.url


@cache
def redlock_servers() -> RedlockNodes:
    nodes = RedlockNodes()
    atexit.register(nodes.stop)
    return nodes


@contextmanager
def redlock(folder: Path) -> Iterator[str]:
    nodes = redlock_servers()
    nodes.flush()
    yield f"{nodes.url}?node_timeout=5"  # a machine that stands still is no node that is out


@cache
def redis_watch() -> Watch:
    watch = Watch()
    atexit.register(watch.stop)
    watch.calm()  # nobody is to fail over because this machine stood still for a moment
    return watch


@contextmanager
def redis_sentinel(folder: Path) -> Iterator[str]:
    watch = redis_watch()
    watch.primary("FLUSHALL")
    yield watch.url


@cache
def redis_nodes() -> Cluster:
    cluster = Cluster()
    atexit.register(cluster.stop)
    return cluster


@contextmanager
def redis_cluster(folder: Path) -> Iterator[str]:
    cluster = redis_nodes()
    cluster.flush()
    yield cluster.url


@cache
def zookeeper_ensemble() -> ZooKeeperEnsemble:
    ensemble = ZooKeeperEnsemble()
    atexit.register(ensemble.stop)
    return ensemble


@contextmanager
def zookeeper(folder: Path | None = None) -> Iterator[str]:
    yield f"{zookeeper_ensemble().url}/conformance-{next(_numbers)}"


@cache
def etcd_cluster() -> EtcdCluster:
    """Of one member, which is quick; the tests of faults have three."""
    cluster = EtcdCluster()
    atexit.register(cluster.stop)
    return cluster


@contextmanager
def etcd(folder: Path) -> Iterator[str]:
    cluster = etcd_cluster()
    cluster.wipe()
    yield cluster.url


STORES: dict[str, Callable[[Path], AbstractContextManager[str]]] = {
    "etcd": etcd,
    "memory": memory,
    "redis": redis,
    "redis+cluster": redis_cluster,
    "redis+sentinel": redis_sentinel,
    "redlock": redlock,
    "sqlite": sqlite,
    "zookeeper": zookeeper,
}

UNFAIR = ("redlock",)
"""Those whose guarantees say so: no queue, no hand-over, and a lock has one holder."""
