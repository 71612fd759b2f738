"""The stores that the conformance suite runs on. A new backend joins by its line in `STORES`."""

from __future__ import annotations

import atexit
import itertools
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from pathlib import Path
from typing import Protocol, TypeVar

from holdfast.chaos.servers.cluster import Cluster
from holdfast.chaos.servers.etcd import EtcdCluster
from holdfast.chaos.servers.mariadb import MariaServer
from holdfast.chaos.servers.postgres import PostgresServer
from holdfast.chaos.servers.redis import RedisServer
from holdfast.chaos.servers.redlock import RedlockNodes
from holdfast.chaos.servers.sentinel import Watch
from holdfast.chaos.servers.service import ServiceServer
from holdfast.chaos.servers.zookeeper import ZooKeeperEnsemble
from servers.azure import AzureServer
from servers.gcs import GcsServer
from servers.s3 import S3Server

_numbers = itertools.count(1)

HTTP_NAMESPACES = ("holdfast", "one", "two", "a", "a/b", "a:b")
"""The namespaces of the service: a service has those that it was started with, and no others."""


class Stopped(Protocol):
    def stop(self) -> None: ...


Server = TypeVar("Server", bound=Stopped)


@contextmanager
def memory(folder: Path) -> Iterator[str]:
    """The URL of a store of its own."""
    yield f"memory://conformance-{next(_numbers)}"


@contextmanager
def sqlite(folder: Path) -> Iterator[str]:
    yield f"sqlite://{folder}/locks.db"


def _kept(make: Callable[[], Server]) -> Callable[[], Server]:
    """One for the whole run. If it cannot be started, the tests that need it fail and say so."""

    @cache
    def kept() -> Server:
        server = make()
        process = os.getpid()

        @atexit.register
        def stop() -> None:
            if os.getpid() == process:  # the server is not that of a forked child
                server.stop()

        return server

    return kept


redis_server = _kept(RedisServer)
redlock_servers = _kept(RedlockNodes)
# Nobody is to fail over because this machine stood still for a moment.
redis_watch = _kept(lambda: Watch().calm())
redis_nodes = _kept(Cluster)
zookeeper_ensemble = _kept(ZooKeeperEnsemble)
etcd_cluster = _kept(EtcdCluster)  # of one member, which is quick; the tests of faults have three
postgres_server = _kept(  # nobody cuts its power
    lambda: PostgresServer("fsync=off", "max_prepared_transactions=20")
)
mariadb_server = _kept(lambda: MariaServer("--innodb-flush-log-at-trx-commit=0"))
http_store = _kept(RedisServer)
http_service = _kept(lambda: ServiceServer(http_store().url, HTTP_NAMESPACES))
second_http_service = _kept(lambda: ServiceServer(http_store().url, HTTP_NAMESPACES))
s3_server = _kept(S3Server)
azure_server = _kept(AzureServer)
gcs_server = _kept(GcsServer)


@contextmanager
def redis(folder: Path) -> Iterator[str]:
    server = redis_server()
    server("FLUSHALL")
    yield server.url


@contextmanager
def redlock(folder: Path) -> Iterator[str]:
    nodes = redlock_servers()
    nodes.flush()
    yield f"{nodes.url}?node_timeout=5"  # a machine that stands still is no node that is out


@contextmanager
def redis_sentinel(folder: Path) -> Iterator[str]:
    watch = redis_watch()
    watch.primary("FLUSHALL")
    yield watch.url


@contextmanager
def redis_cluster(folder: Path) -> Iterator[str]:
    cluster = redis_nodes()
    cluster.flush()
    yield cluster.url


@contextmanager
def zookeeper(folder: Path | None = None) -> Iterator[str]:
    yield f"{zookeeper_ensemble().url}/conformance-{next(_numbers)}"


@contextmanager
def etcd(folder: Path) -> Iterator[str]:
    cluster = etcd_cluster()
    cluster.wipe()
    yield cluster.url


@contextmanager
def http(folder: Path) -> Iterator[str]:
    service = http_service()
    http_store()("FLUSHALL")
    yield service.url


@contextmanager
def postgres(folder: Path | None = None) -> Iterator[str]:
    yield postgres_server().emptied_database()


@contextmanager
def mariadb(folder: Path | None = None) -> Iterator[str]:
    yield mariadb_server().new_database()


STORES: dict[str, Callable[[Path], AbstractContextManager[str]]] = {
    "etcd": etcd,
    "http": http,
    "mariadb": mariadb,
    "memory": memory,
    "postgres": postgres,
    "redis": redis,
    "redis+cluster": redis_cluster,
    "redis+sentinel": redis_sentinel,
    "redlock": redlock,
    "sqlite": sqlite,
    "zookeeper": zookeeper,
}

UNFAIR = ("redlock",)
"""Those whose guarantees say so: no queue, no hand-over, and no weights but those of semaphores,
readers and writers."""
