"""The stores that the conformance suite runs on. A new backend joins by its line in `STORES`."""

from __future__ import annotations

import atexit
import itertools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from pathlib import Path

from servers.etcd import EtcdCluster
from servers.mariadb import MariaServer
from servers.postgres import PostgresServer
from servers.redis import RedisServer

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
    server = PostgresServer()
    atexit.register(server.stop)
    return server


@cache
def mariadb_server() -> MariaServer:
    server = MariaServer()
    atexit.register(server.stop)
    return server


@contextmanager
def redis(folder: Path) -> Iterator[str]:
    server = redis_server()
    server("FLUSHALL")
    yield server.url


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
    "sqlite": sqlite,
}
